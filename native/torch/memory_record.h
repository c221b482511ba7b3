// Ext::Memory as arena.h has it, with the head of its record.
#pragma once

#include <cstdint>
#include <limits>

#include "../recorder/arena.h"

namespace profd::torch_observer {

struct __attribute__((packed)) MemoryRecord {
  arena::Ext type = arena::Ext::Memory;
  uint8_t zero = 0;
  uint16_t length = 24;
  uint8_t device_type = 0;
  uint8_t zero2 = 0;
  int16_t index = -1;
  uint32_t zero3 = 0;
  int64_t total_allocated = 0;
  int64_t total_reserved = std::numeric_limits<int64_t>::min();
};
static_assert(sizeof(MemoryRecord) == 28);

}  // namespace profd::torch_observer
