// IValues to the tag stream of docs/wire-format.md.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>

#include "../recorder/inputs.h"

namespace profd::torch_observer {

// Addresses of the tensors of one op, in the order of the stream.
class TensorIds {
 public:
  void add(uint64_t impl, uint64_t storage) {
    if (count_ == kMost) {
      full_ = true;
      return;
    }
    ids_[count_][0] = impl;
    ids_[count_++][1] = storage;
  }
  bool full() const { return full_; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * sizeof ids_[0]; }
  const void* data() const { return ids_; }

 private:
  static constexpr size_t kMost = 256;
  size_t count_ = 0;
  bool full_ = false;
  uint64_t ids_[kMost][2];
};

inline constexpr size_t kWhole = SIZE_MAX;  // of a list: all of its tensors
inline constexpr size_t kCut = 8;           // so many of them where all do not fit: a fused optimizer takes lists of hundreds

// Never throws; no tensor is asked anything that could call Python or touch a reference count. `ids` may be null. Of a list of
// more than `most` tensors the first `most` are written.
void write_inputs(c10::ArrayRef<const c10::IValue> values, inputs::TagWriter& writer, TensorIds* ids, size_t most = kWhole);

}  // namespace profd::torch_observer
