// Extension records of one event, put together on the stack before they are appended.
#pragma once

#include <cstdint>
#include <cstring>

#include "arena.h"

namespace profd::recorder {

// Bytes with a bound: what does not fit makes it overflow, and then it holds nothing that may be used.
class Bytes {
 public:
  Bytes(uint8_t* at, size_t room) : begin_(at), at_(at), end_(at + room) {}

  void put(const void* from, size_t bytes) {
    if (overflowed_ || bytes > static_cast<size_t>(end_ - at_)) {
      overflowed_ = true;
      return;
    }
    std::memcpy(at_, from, bytes);
    at_ += bytes;
  }
  template <typename T>
  void put_value(T value) {
    put(&value, sizeof value);
  }
  void put_varint(uint64_t value) {
    uint8_t out[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) out[n++] = static_cast<uint8_t>(value | 0x80);
    out[n++] = static_cast<uint8_t>(value);
    put(out, n);
  }
  void put_svarint(int64_t value) {
    put_varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  // Takes back everything after `size` bytes, an overflow too.
  void cut(size_t size) {
    at_ = begin_ + size;
    overflowed_ = false;
  }
  uint8_t* data() { return begin_; }
  size_t size() const { return static_cast<size_t>(at_ - begin_); }
  size_t room() const { return static_cast<size_t>(end_ - at_); }
  bool overflowed() const { return overflowed_; }

 private:
  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
  bool overflowed_ = false;
};

class Extensions {
 public:
  Extensions() : bytes_(raw_, sizeof raw_) {}
  const uint8_t* data() const { return raw_; }
  size_t size() const { return bytes_.size(); }
  bool too_large() const { return too_large_; }  // a record was left out
  void leave_out() { too_large_ = true; }

  void put(arena::Ext type, const void* from, size_t bytes) {
    Bytes& record = open(type);
    record.put(from, bytes);
    close();
  }
  template <typename T>
  void put_value(arena::Ext type, T value) {
    put(type, &value, sizeof value);
  }
  // A record that is written piece by piece: open, write, close.
  Bytes& open(arena::Ext type) {
    start_ = bytes_.size();
    bytes_.put_value<uint32_t>(static_cast<uint8_t>(type));  // the length is known at close
    return bytes_;
  }
  void close() {
    if (bytes_.overflowed()) {
      bytes_.cut(start_);
      too_large_ = true;
      return;
    }
    const uint16_t length = static_cast<uint16_t>(bytes_.size() - start_ - 4);
    std::memcpy(raw_ + start_ + 2, &length, sizeof length);
  }

 private:
  uint8_t raw_[arena::kExtensionsMax * sizeof(arena::Slot)];
  Bytes bytes_;
  size_t start_ = 0;
  bool too_large_ = false;
};

}  // namespace profd::recorder
