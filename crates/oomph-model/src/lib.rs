//! Model files to tensors, and a workload on them to bytes.
#![forbid(unsafe_code)]
