//! Builds and links the shims, fetches artifacts, makes releases.
