// Stand-ins for NVIDIA's libraries, one for each of BLAS, LT and NVML. Each appends its name to the file LOG when
// it is loaded. Their functions succeed and do nothing.

#include <stdio.h>
#include <string.h>

#define FUNCTION(name) int name(void) { return 0; }

#ifdef BLAS
#define NAME "libcublas"
FUNCTION(cublasCreate_v2) FUNCTION(cublasDestroy_v2) FUNCTION(cublasSetStream_v2)
FUNCTION(cublasSetWorkspace_v2) FUNCTION(cublasSetPointerMode_v2) FUNCTION(cublasSetMathMode)
FUNCTION(cublasGemmEx_64) FUNCTION(cublasGemmBatchedEx_64) FUNCTION(cublasGemmStridedBatchedEx_64)
FUNCTION(cublasStrsm_v2_64) FUNCTION(cublasDtrsm_v2_64) FUNCTION(cublasCtrsm_v2_64)
FUNCTION(cublasZtrsm_v2_64) FUNCTION(cublasStrsmBatched_64) FUNCTION(cublasDtrsmBatched_64)
FUNCTION(cublasCtrsmBatched_64) FUNCTION(cublasZtrsmBatched_64) FUNCTION(cublasDotEx_64)
FUNCTION(cublasDotcEx_64) FUNCTION(cublasNrm2Ex_64) FUNCTION(cublasAxpyEx_64) FUNCTION(cublasSasum_v2_64)
FUNCTION(cublasDasum_v2_64) FUNCTION(cublasScasum_v2_64)
#ifndef INCOMPLETE
FUNCTION(cublasDzasum_v2_64)
#endif
// cuBLAS calls cuBLASLt.
int cublasLtMatmul(void);
int (*const needed)(void) = cublasLtMatmul;
#endif

#ifdef LT
#define NAME "libcublasLt"
FUNCTION(cublasLtMatmul) FUNCTION(cublasLtMatmulAlgoGetHeuristic) FUNCTION(cublasLtMatmulDescCreate)
FUNCTION(cublasLtMatmulDescSetAttribute) FUNCTION(cublasLtMatmulDescDestroy)
FUNCTION(cublasLtMatrixLayoutCreate) FUNCTION(cublasLtMatrixLayoutSetAttribute)
FUNCTION(cublasLtMatrixLayoutDestroy) FUNCTION(cublasLtMatmulPreferenceCreate)
FUNCTION(cublasLtMatmulPreferenceSetAttribute) FUNCTION(cublasLtMatmulPreferenceDestroy)
#endif

#ifdef NVML
#define NAME "libnvidia-ml"
FUNCTION(nvmlInit_v2) FUNCTION(nvmlShutdown)
int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    if (length < sizeof "580.159.04") return 7;
    strcpy(version, "580.159.04");
    return 0;
}
#endif

__attribute__((constructor)) static void loaded(void) {
    FILE *log = fopen(LOG, "a");
    if (log) fputs(NAME "\n", log), fclose(log);
}
