// Numbers and bytes as the wire format has them (docs/wire-format.md).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace profd::encoder {

inline constexpr std::size_t kVarintMax = 10;

inline std::uint64_t zigzag(std::uint64_t value) {
  return (value << 1) ^ static_cast<std::uint64_t>(static_cast<std::int64_t>(value) >> 63);
}

// `out` has kVarintMax bytes; the first one after the number is returned.
inline std::uint8_t* put_varint(std::uint8_t* out, std::uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

// Numbers of which there are at most so many: written without asking for room each time.
class Column {
 public:
  void begin(std::size_t numbers) {
    if (buffer_.size() < numbers * kVarintMax) buffer_.resize(numbers * kVarintMax);
    at_ = buffer_.data();
  }
  std::size_t size() const { return static_cast<std::size_t>(at_ - buffer_.data()); }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(buffer_.data()), size()}; }

  void varint(std::uint64_t value) {
    if (value < 0x80) {
      *at_++ = static_cast<std::uint8_t>(value);
    } else {
      at_ = put_varint(at_, value);
    }
  }
  void svarint(std::uint64_t value) { varint(zigzag(value)); }

 private:
  std::vector<std::uint8_t> buffer_;
  std::uint8_t* at_ = nullptr;
};

// Bytes that grow, and keep their memory from chunk to chunk.
class Bytes {
 public:
  void clear() { size_ = 0; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::uint8_t* data() const { return buffer_.data(); }

  // Room for `count` bytes at the end, to be written to directly; `end` says how far that went.
  std::uint8_t* room(std::size_t count) {
    if (buffer_.size() - size_ < count) buffer_.resize((size_ + count) * 2);
    return buffer_.data() + size_;
  }
  void end(const std::uint8_t* at) { size_ = static_cast<std::size_t>(at - buffer_.data()); }

  void u8(std::uint8_t value) { *room(1) = value, ++size_; }
  void varint(std::uint64_t value) { end(put_varint(room(kVarintMax), value)); }
  void svarint(std::uint64_t value) { varint(zigzag(value)); }
  void f64(std::uint64_t bits) { raw(&bits, sizeof bits); }
  void append(std::string_view bytes) { raw(bytes.data(), bytes.size()); }
  void append(const Bytes& other) { raw(other.data(), other.size()); }

  void section(unsigned tag, const Bytes& content) {
    varint(tag);
    varint(content.size());
    append(content);
  }

 private:
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");

  void raw(const void* bytes, std::size_t count) {
    if (count == 0) return;
    std::memcpy(room(count), bytes, count);
    size_ += count;
  }

  std::vector<std::uint8_t> buffer_;
  std::size_t size_ = 0;
};

}  // namespace profd::encoder
