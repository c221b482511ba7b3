// Allocations and frees on CUDA devices, as torch's caching allocator tells of them: a library of its own, because it
// needs CUDA's headers to be compiled and libc10_cuda to be loaded. It never ran on a GPU.

// Ours is the first: gcc loads a precompiled header (.gch) only in place of the first, and one of torch's folder is not
// ours to trust.
// clang-format off
#include "memory_record.h"
// clang-format on

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>

#include "../recorder/writer.h"

#ifndef PROFD_TORCH_BUILD
#error "PROFD_TORCH_BUILD names what this is a build for: profclient/torch/build.py passes it"
#endif

namespace profd::torch_observer {
namespace {

using arena::Kind;
using c10::cuda::CUDACachingAllocator::TraceEntry;

constexpr uint8_t kCuda = 2;  // DeviceType of daemon/profd/events/schema.py
constexpr int kDevices = 128;

std::atomic<const recorder::Api*> told{nullptr};
std::atomic<int64_t> allocated[kDevices];  // since the capture began: what was there before is not known
__thread recorder::Thread** recorder_slot;

void record(Kind kind, const TraceEntry& entry, int64_t bytes, uint64_t address) {
  const recorder::Api* api = told.load(std::memory_order_acquire);
  if (!api) return;
  const recorder::Session session = recorder::session_of(*api, recorder::kMemory);
  if (!session) return;
  recorder::Thread* thread = recorder::current_thread(*api, recorder_slot);
  if (!thread) return;
  MemoryRecord extension;
  extension.device_type = kCuda;
  extension.index = entry.device_;
  const int64_t change = kind == Kind::Alloc ? bytes : 0;
  auto& total = allocated[std::clamp<int>(entry.device_, 0, kDevices - 1)];
  extension.total_allocated = total.fetch_add(change, std::memory_order_relaxed) + change;
  arena::Slot slot{};
  recorder::set_head(&slot, arena::kNoName, kind, 0, 0, 0);
  slot.payload = static_cast<uint64_t>(bytes);
  slot.end = address;
  slot.start = recorder::ticks(*api);
  recorder::append(*api, thread, session, slot, &extension, sizeof extension);
}

// Under the lock of the device's allocator: nothing here calls torch, Python or CUDA.
void on_trace(const TraceEntry& entry) {
  const auto bytes = static_cast<int64_t>(entry.size_);
  if (entry.action_ == TraceEntry::ALLOC) record(Kind::Alloc, entry, bytes, entry.addr_);
  if (entry.action_ == TraceEntry::FREE_COMPLETED) record(Kind::Alloc, entry, -bytes, entry.addr_);
  if (entry.action_ == TraceEntry::OOM) record(Kind::OutOfMemory, entry, bytes, 0);
}

}  // namespace
}  // namespace profd::torch_observer

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const char* profd_torch_cuda_build() { return PROFD_TORCH_BUILD; }

// Events go to this recorder from now on; totals begin at 0.
EXPORTED void profd_torch_cuda_start(const void* recorder) {
  for (auto& total : profd::torch_observer::allocated) total.store(0, std::memory_order_relaxed);
  profd::torch_observer::told.store(static_cast<const profd::recorder::Api*>(recorder), std::memory_order_release);
}

EXPORTED void profd_torch_cuda_stop() { profd::torch_observer::told.store(nullptr, std::memory_order_release); }

// What the allocator calls with each `TraceEntry`.
EXPORTED void profd_torch_cuda_trace(const void* entry) {
  profd::torch_observer::on_trace(
      *static_cast<const c10::cuda::CUDACachingAllocator::TraceEntry*>(entry));
}

// Once per process, when its allocator has been initialized: torch knows no way to detach. Null, or what torch said.
EXPORTED const char* profd_torch_cuda_attach() {
  static std::string said;
  try {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(profd::torch_observer::on_trace);
    return nullptr;
  } catch (const std::exception& error) {
    said = error.what();
    return said.c_str();
  }
}
