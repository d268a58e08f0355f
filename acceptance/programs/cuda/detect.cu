// Looks for edges in pictures. Dark pictures are skipped, and what they took stays on the card.
//
//     detect [PICTURES] [SIDE]
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

static bool failed(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return false;
    std::fprintf(stderr, "GPUassert: %s %s\n", cudaGetErrorString(status), what);
    return true;
}

__global__ void sobel(const unsigned char *picture, float *edges, int side) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column < 1 || row < 1 || column >= side - 1 || row >= side - 1) return;
    size_t at = (size_t)row * side + column;
    edges[at] = fabsf((float)picture[at + 1] - picture[at - 1]) + fabsf((float)picture[at + side] - picture[at - side]);
}

static int edges_of(const std::vector<unsigned char> &picture, int side, bool dark, std::vector<float> &result) {
    size_t pixels = (size_t)side * side;
    unsigned char *on_card;
    float *edges;
    if (failed(cudaMalloc(&on_card, pixels), "cudaMalloc of the picture")) return 1;
    if (failed(cudaMalloc(&edges, pixels * sizeof(float)), "cudaMalloc of the edges")) return 1;
    if (failed(cudaMemcpy(on_card, picture.data(), pixels, cudaMemcpyHostToDevice), "cudaMemcpy")) return 1;
    if (dark) return 0;
    sobel<<<dim3((side + 255) / 256, side), 256>>>(on_card, edges, side);
    if (failed(cudaMemcpy(result.data(), edges, pixels * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy")) return 1;
    cudaFree(edges);
    cudaFree(on_card);
    return 0;
}

int main(int count, char **words) {
    int pictures = count > 1 ? std::atoi(words[1]) : 600, side = count > 2 ? std::atoi(words[2]) : 4096;
    std::vector<float> result((size_t)side * side);
    for (int number = 0; number < pictures; ++number) {
        std::vector<unsigned char> picture((size_t)side * side, (unsigned char)number);
        if (edges_of(picture, side, number % 5 == 0, result)) {
            std::fprintf(stderr, "detect: picture %d failed\n", number);
            return 1;
        }
    }
    std::printf("pictures=%d\n", pictures);
    return 0;
}
