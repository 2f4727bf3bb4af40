//! Types and codes of the runtime API (`driver_types.h`), both CUDA majors.
