// The tag stream that Ext::Inputs holds (docs/wire-format.md, Inputs): what an operator was called with, without the
// values of tensors. Header only: the recorder writes it for arrays of any library, the torch observer for torch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace profd::inputs {

enum class Tag : uint8_t {
  Nothing = 0,        // None, an undefined tensor
  Tensor = 1,         // dtype, dimensions, sizes, strides
  Unsized = 2,        // dtype: a tensor that must not be asked for its sizes
  Unstrided = 3,      // dtype, dimensions, sizes
  TensorList = 4,     // how many; each with its tag
  Int = 5,            // svarint
  Double = 6,         // f64
  Bool = 7,           // u8
  Complex = 8,        // two f64
  IntList = 9,        // how many, svarints
  DoubleList = 10,    // how many, f64s
  BoolList = 11,      // how many, u8s
  Other = 12,         // present, and of no type that is recorded
  Nested = 13,        // dtype, how many tensors, their dimensions, sizes of each
  CutTensorList = 14,  // how many, how many of them follow; each with its tag
};

// Writes into memory of the caller, which never grows: what does not fit makes the whole stream `full`.
class TagWriter {
 public:
  TagWriter(uint8_t* begin, uint8_t* end) : at_(begin), end_(end) {}

  bool full() const { return full_; }
  uint8_t* at() const { return at_; }

  void tag(Tag tag) { byte(static_cast<uint8_t>(tag)); }

  void byte(uint8_t value) {
    if (__builtin_expect(at_ < end_, 1)) {
      *at_++ = value;
    } else {
      full_ = true;
    }
  }

  void varint(uint64_t value) {
    if (__builtin_expect(end_ - at_ < 10, 0)) {
      full_ = true;
      return;
    }
    while (value >= 0x80) {
      *at_++ = static_cast<uint8_t>(value) | 0x80;
      value >>= 7;
    }
    *at_++ = static_cast<uint8_t>(value);
  }

  void svarint(int64_t value) {
    varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }

  void f64(double value) {
    if (__builtin_expect(end_ - at_ < 8, 0)) {
      full_ = true;
      return;
    }
    std::memcpy(at_, &value, 8);
    at_ += 8;
  }

  // Sizes or strides.
  template <typename Values>
  void all(const Values& values) {
    for (const auto value : values) svarint(static_cast<int64_t>(value));
  }

 private:
  uint8_t* at_;
  uint8_t* end_;
  bool full_ = false;
};

}  // namespace profd::inputs
