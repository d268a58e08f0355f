// A wave equation with Thrust; every tenth state is kept on the card, for its energy at the end.
//
//     history [SIDE] [STEPS]
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/transform.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

struct Wave {
    float speed;
    __host__ __device__ float operator()(float now, float before) const { return now + speed * (now - before); }
};

int main(int count, char **words) {
    size_t side = count > 1 ? std::atoi(words[1]) : 4096;
    int steps = count > 2 ? std::atoi(words[2]) : 1000;
    thrust::device_vector<float> before(side * side, 0.0f), now(side * side, 1.0f), next(side * side);
    std::vector<thrust::device_vector<float>> history;
    for (int step = 0; step < steps; ++step) {
        thrust::transform(now.begin(), now.end(), before.begin(), next.begin(), Wave{0.1f});
        before.swap(now);
        now.swap(next);
        if (step % 10 == 0) {
            history.push_back(now);
        }
    }
    double energy = 0;
    for (const auto &state : history) {
        thrust::host_vector<float> host = state;
        for (float value : host) energy += value;
    }
    std::printf("states=%zu energy=%g\n", history.size(), energy);
    return 0;
}
