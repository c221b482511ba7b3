// What an op has besides name and times: its inputs and tensor ids, TorchScript's stack and module hierarchy, a debug
// handle; as the extension records of arena.h, in memory of the caller.
#pragma once

#include <ATen/record_function.h>

#include <cstddef>
#include <cstdint>

#include "../recorder/arena.h"

namespace profd::torch_observer {

// Where in TorchScript an op runs, as string ids; 0 outside of it.
struct ScriptPlace {
  uint32_t stack = arena::kNoName;
  uint32_t module = arena::kNoName;
};

class Attributes {
 public:
  Attributes(arena::Slot* slots, uint32_t count)
      : bytes_(reinterpret_cast<uint8_t*>(slots)), capacity_(count * sizeof(arena::Slot)) {}

  // `wanted` as in observer.h. False: they do not fit, and nothing of them is to be used.
  bool collect(const at::RecordFunction& fn, const ScriptPlace& place, uint32_t wanted);

  // After a collect() that did not fit: the same with the first tensors of long lists alone. False: as there.
  bool cut(const at::RecordFunction& fn, uint32_t wanted);

  // The records of the last collect() without what takes most of it.
  void keep_small() { used_ = small_; }

  // How many slots they take. What is left of the last one is zeroed, which ends the records.
  uint32_t close();

  const uint8_t* data() const { return bytes_; }
  size_t bytes() const { return used_; }

 private:
  static constexpr size_t kRecordHeader = 4;  // u8 type, u8 0, u16 length

  bool add_inputs(const at::RecordFunction& fn, bool with_ids, size_t most);
  bool add(arena::Ext type, const void* from, size_t bytes);
  void head(arena::Ext type, size_t bytes);

  uint8_t* const bytes_;
  const size_t capacity_;
  size_t used_ = 0;
  size_t small_ = 0;
};

}  // namespace profd::torch_observer
