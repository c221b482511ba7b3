// Sizes of the blocks that came through us and live: a deleter is told an address and nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace profd::torch_observer {

// Lock-free; an address is in it at most once, and is added and taken by whoever owns the block then.
class LiveBlocks {
 public:
  // False: no room near its place (of hundreds of thousands of live blocks).
  bool add(const void* address, size_t bytes) {
    Block* bucket = bucket_of(address);
    const auto key = reinterpret_cast<uint64_t>(address);
    for (unsigned at = 0; at < kWays; ++at) {
      uint64_t there = bucket[at].address.load(std::memory_order_relaxed);
      // The same address: it was freed by torch's own deleter, past us.
      if (there == key || (there == 0 && bucket[at].address.compare_exchange_strong(there, key))) {
        bucket[at].bytes.store(bytes, std::memory_order_relaxed);
        return true;
      }
    }
    return false;
  }

  // Its size, and it is forgotten; -1: it is not known.
  int64_t take(const void* address) {
    Block* bucket = bucket_of(address);
    for (unsigned at = 0; at < kWays; ++at) {
      if (bucket[at].address.load(std::memory_order_relaxed) != reinterpret_cast<uint64_t>(address)) continue;
      const auto bytes = static_cast<int64_t>(bucket[at].bytes.load(std::memory_order_relaxed));
      bucket[at].address.store(0, std::memory_order_relaxed);
      return bytes;
    }
    return -1;
  }

 private:
  static constexpr unsigned kWays = 8;
  static constexpr unsigned kBits = 15;  // 4 MB, of which what is used becomes resident
  struct Block {
    std::atomic<uint64_t> address;
    std::atomic<uint64_t> bytes;
  };

  Block* bucket_of(const void* address) {
    return &blocks_[((reinterpret_cast<uint64_t>(address) * 0x9e3779b97f4a7c15) >> (64 - kBits)) * kWays];
  }

  Block blocks_[(size_t{1} << kBits) * kWays];
};

}  // namespace profd::torch_observer
