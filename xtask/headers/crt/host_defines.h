/* CUDA's own crt/host_defines.h is in the compiler's package, which the runtime's package does not require.
   Only these few macros matter for reading prototypes in C. */
#pragma once
#define __no_return__ __attribute__((noreturn))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ __inline__
#define __inline_hint__
#define __align__(n) __attribute__((aligned(n)))
#define __maxnreg__(n)
#define __thread__ __thread
#define __import__
#define __export__
#define __cdecl
#define __annotate__(a)
#define __location__(a)
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __specialization_static static
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __grid_constant__
#define __cluster_dims__(...)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __builtin_align__(n) __align__(n)
#define __CUDACC_VER_MAJOR__ 0
