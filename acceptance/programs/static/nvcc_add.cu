// Adds two arrays of 256 MiB. Built by `nvcc nvcc_add.cu` it has the CUDA runtime linked in statically; built by
// `nvcc --cudart shared nvcc_add.cu` it does not.

#include <cstdio>
#include <vector>

__global__ void add(const float *left, const float *right, float *sum, size_t count) {
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (at < count) sum[at] = left[at] + right[at];
}

int main() {
    const size_t count = 64 << 20;
    std::vector<float> host(count, 1.0f);
    float *memory[3];
    for (float *&one : memory) {
        cudaError_t error = cudaMalloc(&one, count * sizeof(float));
        if (error != cudaSuccess) {
            printf("cudaMalloc: %s\n", cudaGetErrorString(error));
            return 1;
        }
    }
    for (int i = 0; i < 2; i++) cudaMemcpy(memory[i], host.data(), count * sizeof(float), cudaMemcpyHostToDevice);
    add<<<(count + 255) / 256, 256>>>(memory[0], memory[1], memory[2], count);
    cudaMemcpy(host.data(), memory[2], count * sizeof(float), cudaMemcpyDeviceToHost);
    printf("done: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 0;
}
