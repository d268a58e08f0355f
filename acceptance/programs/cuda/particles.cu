// Particles that repel each other, in managed memory; all pairs of distances are kept in a matrix.
//
//     particles [COUNT] [STEPS]
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                              \
    do {                                                                                                         \
        cudaError_t status = (call);                                                                             \
        if (status != cudaSuccess) {                                                                             \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, cudaGetErrorName(status),                \
                         cudaGetErrorString(status));                                                            \
            std::exit(EXIT_FAILURE);                                                                             \
        }                                                                                                        \
    } while (0)

struct Particle {
    float position[3];
    float velocity[3];
    float mass;
    int kind;
};

__global__ void distances(const Particle *particles, double *matrix, int count) {
    int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= count) return;
    double sum = 0;
    for (int axis = 0; axis < 3; ++axis) {
        double between = particles[row].position[axis] - particles[column].position[axis];
        sum += between * between;
    }
    matrix[(size_t)row * count + column] = sqrt(sum);
}

int main(int words_count, char **words) {
    int count = words_count > 1 ? std::atoi(words[1]) : 40000, steps = words_count > 2 ? std::atoi(words[2]) : 20;
    Particle *particles;
    CHECK(cudaMallocManaged(&particles, count * sizeof(Particle)));
    for (int at = 0; at < count; ++at) {
        particles[at] = Particle{{1.0f * at, 2.0f * at, 3.0f * at}, {0, 0, 0}, 1.0f, at % 4};
    }
    double *matrix;
    CHECK(cudaMalloc(&matrix, (size_t)count * count * sizeof(double)));
    for (int step = 0; step < steps; ++step) {
        distances<<<dim3((count + 255) / 256, count), 256>>>(particles, matrix, count);
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaFree(matrix));
    CHECK(cudaFree(particles));
    std::printf("done\n");
    return 0;
}
