//! What `check` prints, and nothing else does.
