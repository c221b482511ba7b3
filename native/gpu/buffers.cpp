#include "buffers.h"

#include <cstring>

#include <sys/mman.h>

namespace profd::cupti {

uint8_t* Buffers::take() {
  std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    uint8_t* buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void* made = MAP_FAILED;
  if (made_ < kCount) made = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  made_++;
  return static_cast<uint8_t*>(made);
}

void Buffers::give_back(uint8_t* buffer, size_t used) {
  // Here, on the thread that has walked it, and not on the one that launches kernels.
  std::memset(buffer, 0, used < kBytes ? used : kBytes);
  std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

size_t Buffers::out() {
  std::lock_guard lock(mutex_);
  return made_ - free_.size();
}

void Buffers::trim() {
  std::lock_guard lock(mutex_);
  for (uint8_t* buffer : free_) munmap(buffer, kBytes);
  made_ -= free_.size();
  free_.clear();
  free_.shrink_to_fit();
}

}  // namespace profd::cupti
