/* cuBLASLt: descriptors, and the products that can be said as cuBLAS says them. */

static void lt(void)
{
    void *own = NULL, *desc = NULL, *a = NULL, *b = NULL, *c = NULL, *preference = NULL;
    uint64_t memory[32], value = 0;
    settle();
    int word = 4, found = -1;
    size_t size = 0;
    struct {
        uint64_t algorithm[8];
        size_t workspace;
        int state;
        float waves;
        int reserved[4];
    } result;
    check("cublasLtCreate null", cublasLtCreate(NULL), INVALID);
    check("cublasLtCreate", cublasLtCreate(&own), OK);
    check("cublasLtMatmulDescCreate", cublasLtMatmulDescCreate(&desc, AS_32F, R_32F), OK);
    check("cublasLtMatmulDescCreate null", cublasLtMatmulDescCreate(NULL, AS_32F, R_32F), INVALID);
    check("cublasLtMatrixLayoutCreate A", cublasLtMatrixLayoutCreate(&a, R_32F, 4, 6, 4), OK);
    check("cublasLtMatrixLayoutCreate B", cublasLtMatrixLayoutCreate(&b, R_32F, 6, 5, 6), OK);
    check("cublasLtMatrixLayoutCreate C", cublasLtMatrixLayoutCreate(&c, R_32F, 4, 5, 4), OK);
    check("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&preference), OK);
    check("cublasLtMatmulDescGetAttribute size", cublasLtMatmulDescGetAttribute(desc, 7, NULL, 0, &size), OK);
    check("four bytes", (long long)size, 4);
    check("cublasLtMatmulDescGetAttribute", cublasLtMatmulDescGetAttribute(desc, 7, &value, 4, &size), OK);
    check("the default epilogue", (long long)value, 1);
    check("cublasLtMatmulDescGetAttribute small", cublasLtMatmulDescGetAttribute(desc, 8, &value, 4, &size), INVALID);
    check("cublasLtMatmulDescGetAttribute of none", cublasLtMatmulDescGetAttribute(desc, 9, &value, 4, &size), INVALID);
    check("cublasLtMatrixLayoutGetAttribute", cublasLtMatrixLayoutGetAttribute(a, 3, &value, 8, &size), OK);
    check("six columns", (long long)value, 6);
    check("cublasLtMatmulPreferenceGetAttribute", cublasLtMatmulPreferenceGetAttribute(preference, 12, &value, 8, NULL), OK);
    value = 1 << 20;
    check("cublasLtMatmulPreferenceSetAttribute", cublasLtMatmulPreferenceSetAttribute(preference, 1, &value, 8), OK);
    check("cublasLtMatmulPreferenceSetAttribute size", cublasLtMatmulPreferenceSetAttribute(preference, 1, &value, 4), INVALID);
    check("cublasLtMatmulDescInit_internal", cublasLtMatmulDescInit_internal(memory, sizeof memory, AS_32F, R_32F), OK);
    check("cublasLtMatmulDescInit_internal small", cublasLtMatmulDescInit_internal(memory, 8, AS_32F, R_32F), INVALID);
    check("cublasLtMatrixLayoutInit_internal", cublasLtMatrixLayoutInit_internal(memory, CUDA == 13 ? 112 : 64, R_32F, 4, 5, 4), OK);
    check("cublasLtMatrixLayoutSetAttribute of another kind", cublasLtMatmulDescSetAttribute(memory, 3, &word, 4), INVALID);
    check("cublasLtMatmulPreferenceInit_internal", cublasLtMatmulPreferenceInit_internal(memory, CUDA == 13 ? 96 : 64), OK);

    CASE("", cublasLtMatmul, OK, 1, cublasLtMatmul(own, desc, S1, A, a, B, b, S0, NULL, c, C, c, NULL, NULL, 0, NULL));
    CASE("with a handle of cuBLAS", cublasLtMatmul, OK, 1,
         cublasLtMatmul(handle, desc, S1, A, a, B, b, S1, C, c, C, c, NULL, A, 4096, NULL));
    CASE("without handle", cublasLtMatmul, NOT_INITIALIZED, 0,
         cublasLtMatmul(NONE, desc, S1, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("another C", cublasLtMatmul, OK, 1,
         cublasLtMatmul(own, desc, S1, A, a, B, b, S1, B, c, C, c, NULL, NULL, 0, NULL));
    CASE("no product", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, NULL, S1, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("no layout", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, desc, S1, A, NULL, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("wrong shape", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, desc, S1, A, b, B, a, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("no alpha", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, desc, NULL, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    check("cublasLtMatmulAlgoGetHeuristic",
          cublasLtMatmulAlgoGetHeuristic(own, desc, a, b, c, c, preference, 8, &result, &found), OK);
    check("one algorithm", found, 1);
    check("its state", result.state, OK);
    CASE("with that algorithm", cublasLtMatmul, OK, 1,
         cublasLtMatmul(own, desc, S1, A, a, B, b, S0, C, c, C, c, result.algorithm, NULL, 0, NULL));
    check("cublasLtMatmulAlgoGetHeuristic none wanted",
          cublasLtMatmulAlgoGetHeuristic(own, desc, a, b, c, c, preference, 0, &result, &found), INVALID);
    check("cublasLtMatmulDescSetAttribute epilogue", cublasLtMatmulDescSetAttribute(desc, 7, &word, 4), OK);
    CASE("an epilogue without its bias", cublasLtMatmul, INVALID, 0,
         cublasLtMatmul(own, desc, S1, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    check("cublasLtMatmulAlgoGetHeuristic of an epilogue",
          cublasLtMatmulAlgoGetHeuristic(own, desc, a, b, c, c, preference, 8, &result, &found), OK);
    check("one algorithm of an epilogue", found, 1);
    word = 1;
    check("cublasLtMatrixLayoutSetAttribute rows", cublasLtMatrixLayoutSetAttribute(c, 1, &word, 4), OK);
    check("cublasLtMatmulDescDestroy", cublasLtMatmulDescDestroy(desc), OK);
    check("cublasLtMatmulDescDestroy null", cublasLtMatmulDescDestroy(NULL), OK);
    check("cublasLtMatrixLayoutDestroy of another kind", cublasLtMatrixLayoutDestroy(preference), INVALID);
    check("cublasLtMatrixLayoutDestroy", cublasLtMatrixLayoutDestroy(a) | cublasLtMatrixLayoutDestroy(b) | cublasLtMatrixLayoutDestroy(c), OK);
    check("cublasLtMatmulPreferenceDestroy", cublasLtMatmulPreferenceDestroy(preference), OK);
    check("cublasLtDestroy", cublasLtDestroy(own), OK);
    check("cublasLtDestroy null", cublasLtDestroy(NULL), INVALID);
    check("cublasLtDestroy of another handle", cublasLtDestroy(handle), INVALID);
}
