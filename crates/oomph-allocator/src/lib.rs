//! Replays a memory trace through the models of PyTorch's, CUDA's and TensorFlow's allocators.
#![forbid(unsafe_code)]
