// What an op has besides name and times: its inputs and tensor ids, TorchScript's stack and module hierarchy, a debug
// handle. Collected on the stack of the callback, as the extension records of arena.h.
#pragma once

#include <ATen/record_function.h>

#include <cstddef>
#include <cstdint>

#include "../recorder/writer.h"

namespace profd::torch_observer {

class Attributes {
 public:
  // `wanted` as in observer.h. What cannot be had is left out; what does not fit is counted as TooLarge.
  void collect(const recorder::Api& api, recorder::Thread* thread, recorder::Session session,
               const at::RecordFunction& fn, uint32_t wanted);

  const uint8_t* data() const { return bytes_; }
  size_t bytes() const { return used_; }

 private:
  static constexpr size_t kBytes = arena::kExtensionsMax * sizeof(arena::Slot);
  static constexpr size_t kRecordHeader = 4;  // u8 type, u8 0, u16 length

  bool add_inputs(const at::RecordFunction& fn, bool with_ids);
  bool add(arena::Ext type, const void* from, size_t bytes);
  void head(size_t at, arena::Ext type, size_t bytes);

  size_t used_ = 0;
  uint8_t bytes_[kBytes];
};

}  // namespace profd::torch_observer
