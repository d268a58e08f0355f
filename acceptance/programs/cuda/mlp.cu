// A network of two layers, trained by hand; after training it scores all samples at once.
//
//     mlp [BATCH] [VALIDATION] [STEPS]
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

static void check(cudaError_t status, const char *call, const char *file, int line) {
    if (status == cudaSuccess) return;
    throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(status) + " at " + file + ":" +
                             std::to_string(line) + " in " + call);
}
#define CUDA_CHECK(call) check((call), #call, __FILE__, __LINE__)

const int INPUTS = 1024, HIDDEN = 8192, CLASSES = 1000;

__global__ void layer(const float *input, const float *weights, float *output, int rows, int wide, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= columns || row >= rows) return;
    float sum = 0;
    for (int at = 0; at < wide; ++at) sum += input[(size_t)row * wide + at] * weights[(size_t)at * columns + column];
    output[(size_t)row * columns + column] = fmaxf(sum, 0.0f);
}

class Tensor {
  public:
    Tensor(size_t rows, size_t columns) : bytes(rows * columns * sizeof(float)) { CUDA_CHECK(cudaMalloc(&data, bytes)); }
    ~Tensor() { cudaFree(data); }
    Tensor(const Tensor &) = delete;
    float *data = nullptr;
    size_t bytes;
};

struct Network {
    Tensor first{INPUTS, HIDDEN}, second{HIDDEN, CLASSES}, first_gradient{INPUTS, HIDDEN}, second_gradient{HIDDEN, CLASSES};

    void forward(const Tensor &input, Tensor &hidden, Tensor &scores, int rows) {
        layer<<<dim3(HIDDEN / 256, rows), 256>>>(input.data, first.data, hidden.data, rows, INPUTS, HIDDEN);
        layer<<<dim3((CLASSES + 255) / 256, rows), 256>>>(hidden.data, second.data, scores.data, rows, HIDDEN, CLASSES);
        CUDA_CHECK(cudaGetLastError());
    }
};

static void train(Network &network, int batch, int steps) {
    Tensor input(batch, INPUTS), hidden(batch, HIDDEN), scores(batch, CLASSES);
    for (int step = 0; step < steps; ++step) {
        CUDA_CHECK(cudaMemset(input.data, 0, input.bytes));
        network.forward(input, hidden, scores, batch);
        CUDA_CHECK(cudaDeviceSynchronize());
    }
}

static void validate(Network &network, int samples) {
    Tensor input(samples, INPUTS);
    Tensor hidden(samples, HIDDEN);
    Tensor scores(samples, CLASSES);
    network.forward(input, hidden, scores, samples);
    CUDA_CHECK(cudaDeviceSynchronize());
}

int main(int count, char **words) {
    int batch = count > 1 ? std::atoi(words[1]) : 512, samples = count > 2 ? std::atoi(words[2]) : 100000;
    int steps = count > 3 ? std::atoi(words[3]) : 50;
    try {
        Network network;
        train(network, batch, steps);
        std::printf("trained\n");
        validate(network, samples);
        std::printf("validated\n");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "mlp: %s\n", error.what());
        return 1;
    }
    return 0;
}
