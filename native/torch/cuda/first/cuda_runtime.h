// In the place of NVIDIA's, which wants headers that only nvcc ships (crt/host_config.h) and that NVIDIA's wheels of the
// runtime, which torch brings, do not have. What torch's headers need of it is the runtime's C API.
#pragma once
#include <cuda_runtime_api.h>
