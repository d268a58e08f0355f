// A program of one's own on llama.cpp's CUDA library: it takes a buffer of as many MiB as its argument says.

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void *ggml_backend_cuda_init(int device);
void *ggml_backend_get_default_buffer_type(void *backend);
void *ggml_backend_buft_alloc_buffer(void *type, size_t size);
size_t ggml_backend_buffer_get_size(void *buffer);

int main(int count, char **words) {
    void *backend = ggml_backend_cuda_init(0);
    if (!backend) return 3;
    size_t size = (size_t)atoi(count > 1 ? words[1] : "1") << 20;
    void *buffer = ggml_backend_buft_alloc_buffer(ggml_backend_get_default_buffer_type(backend), size);
    if (!buffer) return 4;
    printf("buffer=%zu\n", ggml_backend_buffer_get_size(buffer));
    return 0;
}
