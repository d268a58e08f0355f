// A 2-D heat equation, solved twice: as one writes it first, and as one writes it after reading what oomph says of it.
//
//     heat naive|lean SIDE STEPS
//
// The plate is a square of SIDE x SIDE cells with fixed edges; each step replaces a cell by the mean of itself and its
// neighbours, weighted by the conductivity of the material. Every 10 steps the plate is looked at.
//
// `naive` allocates its scratch in every step and frees it, sends the conductivity and the sources again in every step
// from ordinary memory, keeps a second copy of the conductivity, computes in float, reads the whole plate back to look
// at its hottest cell, and forgets to free two buffers. `lean` allocates once from the driver's pool, sends once from
// page-locked memory, stores in half precision, and reads one number back.
//
// Each prints what it did, as `key=value` lines, for the test that compares them with the report.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static const float RATE = 0.2f;

static void check(cudaError_t status, const char *what) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "heat: %s: %s\n", what, cudaGetErrorString(status));
        std::exit(4);
    }
}

#define CHECK(call) check((call), #call)

template <typename Cell>
__global__ void flux(const Cell *plate, const Cell *conductivity, Cell *result, int side) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column < 1 || row < 1 || column >= side - 1 || row >= side - 1) return;
    size_t at = static_cast<size_t>(row) * side + column;
    float here = static_cast<float>(plate[at]);
    float around = static_cast<float>(plate[at - 1]) + static_cast<float>(plate[at + 1]) +
                   static_cast<float>(plate[at - side]) + static_cast<float>(plate[at + side]);
    result[at] = static_cast<Cell>(static_cast<float>(conductivity[at]) * (around - 4.0f * here));
}

template <typename Cell>
__global__ void advance(Cell *plate, const Cell *change, const Cell *sources, float rate, int side) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= side || row >= side) return;
    size_t at = static_cast<size_t>(row) * side + column;
    plate[at] = static_cast<Cell>(static_cast<float>(plate[at]) + rate * static_cast<float>(change[at]) +
                                  static_cast<float>(sources[at]));
}

template <typename Cell>
__global__ void hottest(const Cell *plate, float *result, size_t cells) {
    __shared__ float best[256];
    float mine = 0.0f;
    for (size_t at = threadIdx.x; at < cells; at += blockDim.x) mine = fmaxf(mine, static_cast<float>(plate[at]));
    best[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) *result = best[0];
}

template <typename Cell>
static void material(Cell *conductivity, Cell *sources, Cell *plate, int side) {
    for (int row = 0; row < side; ++row) {
        for (int column = 0; column < side; ++column) {
            size_t at = static_cast<size_t>(row) * side + column;
            conductivity[at] = static_cast<Cell>(0.5f + 0.5f * static_cast<float>((row * 31 + column * 17) % 97) / 97.0f);
            sources[at] = static_cast<Cell>((row + column) % 1009 == 0 ? 0.25f : 0.0f);
            plate[at] = static_cast<Cell>(row == 0 ? 100.0f : 20.0f);
        }
    }
}

static dim3 threads() { return dim3(16, 16); }
static dim3 blocks(int side) { return dim3((side + 15) / 16, (side + 15) / 16); }

static void naive(int side, int steps) {
    size_t cells = static_cast<size_t>(side) * side, bytes = cells * sizeof(float);
    std::vector<float> conductivity(cells), sources(cells), plate(cells), seen(cells);
    material(conductivity.data(), sources.data(), plate.data(), side);

    float *on_card, *conductivity_on_card, *again, *log;
    CHECK(cudaMalloc(&on_card, bytes));
    CHECK(cudaMalloc(&conductivity_on_card, bytes));
    CHECK(cudaMalloc(&again, bytes));  // A second copy that nobody needs.
    CHECK(cudaMalloc(&log, 4096));
    CHECK(cudaMemcpy(on_card, plate.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(again, conductivity.data(), bytes, cudaMemcpyHostToDevice));

    long allocations = 4, frees = 0, sent = 2, resent = 0, read = 0;
    for (int step = 0; step < steps; ++step) {
        float *change, *sources_on_card;
        CHECK(cudaMalloc(&change, bytes));
        CHECK(cudaMalloc(&sources_on_card, bytes));
        CHECK(cudaMemcpy(conductivity_on_card, conductivity.data(), bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(sources_on_card, sources.data(), bytes, cudaMemcpyHostToDevice));
        flux<<<blocks(side), threads()>>>(on_card, conductivity_on_card, change, side);
        advance<<<blocks(side), threads()>>>(on_card, change, sources_on_card, RATE, side);
        CHECK(cudaGetLastError());
        if (step % 10 == 9) {
            CHECK(cudaMemcpy(seen.data(), on_card, bytes, cudaMemcpyDeviceToHost));
            read += 1;
        }
        CHECK(cudaFree(change));
        CHECK(cudaFree(sources_on_card));
        allocations += 2;
        frees += 2;
        sent += 2;
        resent += 2;
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(on_card));
    CHECK(cudaFree(conductivity_on_card));
    frees += 2;
    // `again` and `log` are never freed.
    resent -= 1;  // The sources of the first step; its conductivity had been sent as `again`.
    std::printf("allocations=%ld\nfrees=%ld\nto_card_bytes=%zu\nresent_bytes=%zu\nto_host_bytes=%zu\n", allocations, frees,
                sent * bytes, resent * bytes, read * bytes);
    std::printf("pageable_bytes=%zu\nnever_freed_bytes=%zu\ndoubled_bytes=%zu\n", (sent + read) * bytes, bytes + 4096, bytes);
    std::printf("most_held_bytes=%zu\n", 5 * bytes + 4096);
}

static void lean(int side, int steps) {
    size_t cells = static_cast<size_t>(side) * side, bytes = cells * sizeof(half);
    half *conductivity, *sources, *plate;
    float *seen;
    CHECK(cudaMallocHost(&conductivity, bytes));
    CHECK(cudaMallocHost(&sources, bytes));
    CHECK(cudaMallocHost(&plate, bytes));
    CHECK(cudaMallocHost(&seen, sizeof(float)));
    material(conductivity, sources, plate, side);

    half *on_card, *conductivity_on_card, *sources_on_card, *change;
    float *hottest_on_card;
    CHECK(cudaMalloc(&on_card, bytes));
    CHECK(cudaMalloc(&conductivity_on_card, bytes));
    CHECK(cudaMalloc(&sources_on_card, bytes));
    CHECK(cudaMalloc(&change, bytes));
    CHECK(cudaMalloc(&hottest_on_card, sizeof(float)));
    CHECK(cudaMemcpyAsync(on_card, plate, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyAsync(conductivity_on_card, conductivity, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyAsync(sources_on_card, sources, bytes, cudaMemcpyHostToDevice));
    long read = 0;
    for (int step = 0; step < steps; ++step) {
        flux<<<blocks(side), threads()>>>(on_card, conductivity_on_card, change, side);
        advance<<<blocks(side), threads()>>>(on_card, change, sources_on_card, RATE, side);
        CHECK(cudaGetLastError());
        if (step % 10 == 9) {
            hottest<<<1, 256>>>(on_card, hottest_on_card, cells);
            CHECK(cudaMemcpyAsync(seen, hottest_on_card, sizeof(float), cudaMemcpyDeviceToHost));
            read += 1;
        }
    }
    CHECK(cudaDeviceSynchronize());
    for (void *block : {(void *)on_card, (void *)conductivity_on_card, (void *)sources_on_card, (void *)change,
                        (void *)hottest_on_card}) {
        CHECK(cudaFree(block));
    }
    for (void *block : {(void *)conductivity, (void *)sources, (void *)plate, (void *)seen}) CHECK(cudaFreeHost(block));
    std::printf("allocations=5\nfrees=5\nto_card_bytes=%zu\nresent_bytes=0\nto_host_bytes=%zu\n", 3 * bytes,
                read * sizeof(float));
    std::printf("pageable_bytes=0\nnever_freed_bytes=0\ndoubled_bytes=0\nmost_held_bytes=%zu\n", 4 * bytes + sizeof(float));
}

int main(int count, char **words) {
    int side = count > 2 ? std::atoi(words[2]) : 2048, steps = count > 3 ? std::atoi(words[3]) : 200;
    bool is_lean = count > 1 && std::strcmp(words[1], "lean") == 0;
    if (side < 3 || steps < 1 || (count > 1 && !is_lean && std::strcmp(words[1], "naive") != 0)) {
        std::fprintf(stderr, "usage: heat naive|lean SIDE STEPS\n");
        return 2;
    }
    (is_lean ? lean : naive)(side, steps);
    return 0;
}
