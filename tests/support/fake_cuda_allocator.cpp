// What torch's caching allocator of CUDA devices would tell, said by a test: there is no GPU.
#include <c10/cuda/CUDACachingAllocator.h>

namespace c10::cuda::CUDACachingAllocator {
std::atomic<CUDAAllocator*> allocator{nullptr};
}

using c10::cuda::CUDACachingAllocator::TraceEntry;

extern "C" __attribute__((visibility("default"))) void tell(void (*trace)(const void*), int action, int device,
                                                            uint64_t address, uint64_t bytes) {
  const TraceEntry entry(static_cast<TraceEntry::Action>(action), static_cast<c10::DeviceIndex>(device), address, bytes,
                         nullptr, {0, 0}, 0);
  trace(&entry);
}
