// For NVIDIA's wheels of the runtime, whose cuda_runtime_api.h includes a header of this name and does not bring it (nvcc
// does; where there is one it is taken). To a host's compiler all of these words mean nothing, or what gcc calls them.
#pragma once

#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __grid_constant__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __no_return__ __attribute__((noreturn))
#define __CUDA_ARCH_HAS_FEATURE__(feature) 0
