//! The shim that stands in for libnvidia-ml.
