/* Versions, handles and what is set on them. */

static void versions(void)
{
    int value = -1;
    check("cublasGetVersion_v2 without handle", cublasGetVersion_v2(NONE, &value), OK);
    check("the version's major", value / 10000, CUDA);
    check("cublasGetVersion_v2 null", cublasGetVersion_v2(NONE, NULL), INVALID);
    check("cublasGetProperty", cublasGetProperty(0, &value), OK);
    check("major", value, CUDA);
    check("cublasGetProperty of none", cublasGetProperty(3, &value), INVALID);
    check("cublasGetProperty null", cublasGetProperty(0, NULL), INVALID);
    check("cublasGetCudartVersion", (long long)cublasGetCudartVersion() / 1000, CUDA);
    check_text("cublasGetStatusName", cublasGetStatusName(13), "CUBLAS_STATUS_EXECUTION_FAILED");
    check_text("cublasGetStatusString", cublasGetStatusString(3), "the resource allocation failed");
    check_text("cublasGetStatusString of none", cublasGetStatusString(99), "unrecognized status");
    check("cublasLtGetVersion", (long long)cublasLtGetVersion() / 10000, CUDA);
    check("cublasLtGetCudartVersion", (long long)cublasLtGetCudartVersion() / 1000, CUDA);
    check("cublasLtGetProperty", cublasLtGetProperty(0, &value), OK);
    check("cublasLt's major", value, CUDA);
    check_text("cublasLtGetStatusName", cublasLtGetStatusName(15), "CUBLAS_STATUS_NOT_SUPPORTED");
    check_text("cublasLtGetStatusString", cublasLtGetStatusString(0), "success");
}

static void settings(void)
{
    int value = -1;
    void *stream = &value, *own = NULL;
    uint64_t before = messages(private);
    check("cublasGetPointerMode_v2", cublasGetPointerMode_v2(handle, &value), OK);
    check("scalars are on the host", value, 0);
    check("cublasSetPointerMode_v2", cublasSetPointerMode_v2(handle, 1), OK);
    check("cublasGetPointerMode_v2 again", cublasGetPointerMode_v2(handle, &value), OK);
    check("scalars are on the device", value, 1);
    check("cublasSetPointerMode_v2 bad", cublasSetPointerMode_v2(handle, 2), INVALID);
    check("cublasSetPointerMode_v2 without handle", cublasSetPointerMode_v2(NONE, 0), NOT_INITIALIZED);
    check("cublasGetPointerMode_v2 null", cublasGetPointerMode_v2(handle, NULL), INVALID);
    check("cublasGetAtomicsMode", cublasGetAtomicsMode(handle, &value), OK);
    check("no atomics", value, 0);
    check("cublasSetAtomicsMode", cublasSetAtomicsMode(handle, 1), OK);
    check("cublasSetAtomicsMode bad", cublasSetAtomicsMode(handle, 2), INVALID);
    check("cublasSetAtomicsMode without handle", cublasSetAtomicsMode(NONE, 0), NOT_INITIALIZED);
    check("cublasGetAtomicsMode null", cublasGetAtomicsMode(handle, NULL), INVALID);
    check("cublasGetMathMode", cublasGetMathMode(handle, &value), OK);
    check("default math", value, 0);
    check("cublasSetMathMode", cublasSetMathMode(handle, 3), OK);
    check("cublasSetMathMode with a flag", cublasSetMathMode(handle, 3 | 16), OK);
    check("cublasGetMathMode again", cublasGetMathMode(handle, &value), OK);
    check("as it was set", value, 19);
    check("cublasSetMathMode of one major", cublasSetMathMode(handle, 8), CUDA == 13 ? OK : INVALID);
    check("cublasSetMathMode bad", cublasSetMathMode(handle, 32), INVALID);
    check("cublasSetMathMode without handle", cublasSetMathMode(NONE, 0), NOT_INITIALIZED);
    check("cublasGetMathMode null", cublasGetMathMode(handle, NULL), INVALID);
    check("cublasGetMathMode without handle", cublasGetMathMode(NONE, &value), NOT_INITIALIZED);
    check("cublasGetStream_v2", cublasGetStream_v2(handle, &stream), OK);
    check_true("the default stream", stream == NULL);
    check("cublasGetStream_v2 null", cublasGetStream_v2(handle, NULL), INVALID);
    check("cublasSetStream_v2 without handle", cublasSetStream_v2(NONE, NULL), NOT_INITIALIZED);
    check("cublasSetWorkspace_v2", cublasSetWorkspace_v2(handle, A, 4096), OK);
    check("cublasSetWorkspace_v2 without handle", cublasSetWorkspace_v2(NONE, A, 4096), NOT_INITIALIZED);
    check("settings send nothing", (long long)(messages(private) - before), 0);

    CASE("with scalars on the device", cublasSgemm_v2, OK, 1, cublasSgemm_v2(handle, 0, 0, 4, 5, 0, A, A, 4, B, 1, B, C, 4));
    check("cublasSetPointerMode_v2 back", cublasSetPointerMode_v2(handle, 0), OK);
    settle();
    check("cuStreamCreate", cuStreamCreate(&own, 1), 0);
    check("cublasSetStream_v2", cublasSetStream_v2(handle, own), OK);
    check("cublasGetStream_v2 again", cublasGetStream_v2(handle, &stream), OK);
    check_true("the stream that was set", stream == own);
    CASE("on a stream", cublasSgemm_v2, OK, 1, cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4));
    check("cublasSetStream_v2 to none", cublasSetStream_v2(handle, (void *)0x1234560), OK);
    settle();
    check("on a stream that is none", cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4), EXECUTION_FAILED);
    check("cublasSetStream_v2 per thread", cublasSetStream_v2(handle, PER_THREAD), OK);
    (void)cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4); /* its first use makes that stream */
    CASE("on the thread's stream", cublasSgemm_v2, OK, 1, cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4));
    check("cublasSetStream_v2 back", cublasSetStream_v2(handle, NULL), OK);
    settle();
    check("cuStreamDestroy", cuStreamDestroy_v2(own), 0);
}
