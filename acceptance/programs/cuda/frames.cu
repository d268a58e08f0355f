// A queue of frames: each gets a buffer of its own, and nobody gives it back.
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>
int main() {
    const size_t bytes = 64 << 20;
    std::vector<char> frame(bytes, 1);
    float *weights, *state;
    cudaMalloc(&weights, 256 << 20);
    cudaMalloc(&state, 128 << 20);
    for (int step = 0; step < 200; ++step) {
        float *buffer;
        cudaError_t status = cudaMalloc(&buffer, bytes);
        if (status != cudaSuccess) { std::fprintf(stderr, "step %d: %s\n", step, cudaGetErrorString(status)); return 1; }
        cudaMemcpy(buffer, frame.data(), bytes, cudaMemcpyHostToDevice);
    }
    cudaFree(weights);
    cudaFree(state);
    return 0;
}
