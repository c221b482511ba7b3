// The buffers that CUPTI fills: made as they are needed, zeroed before they are handed out, never more than the limit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace profd::cupti {

class Buffers {
 public:
  static constexpr size_t kBytes = 2 << 20;
  static constexpr size_t kCount = 24;  // 48 MiB

  // Zeroed memory, or null: all are out, and CUPTI drops what it would have written.
  uint8_t* take();
  // `used`: how much of it was written to.
  void give_back(uint8_t* buffer, size_t used);
  // Unmaps those that CUPTI does not hold. Those that it holds are never freed: it may still write to them.
  void trim();

  // That CUPTI has and has not handed back.
  size_t out();

  // That there were none for, ever.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::vector<uint8_t*> free_;
  size_t made_ = 0;
  std::atomic<uint64_t> refused_{0};
};

}  // namespace profd::cupti
