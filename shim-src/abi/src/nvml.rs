//! Types and codes of NVML (`nvml.h`).
