//! Types and codes of cuBLAS (`cublas_api.h`).
