// How many header fields a block of HPACK has (RFC 7541), without knowing one of them: no table is kept and no string is
// decoded, so that what comes before a block does not matter. A field of one byte can stand for 4 KiB of an earlier one, and
// gRPC makes each of them anew.
#pragma once

#include <cstddef>
#include <cstdint>

namespace profd::host {

// Untrusted bytes of one block, in pieces cut anywhere.
class HeaderFields {
 public:
  // Fields and changes of the table's size that have begun so far; MALFORMED behind what no HPACK has.
  static constexpr std::size_t MALFORMED = SIZE_MAX;
  std::size_t count() const { return count_; }
  void feed(const std::uint8_t* data, std::size_t bytes);

 private:
  enum class Next : std::uint8_t {
    FIELD,   // begins
    NUMBER,  // goes on: that of an entry of a table, or a new size of it
    STRING,  // begins with its length
    LENGTH,  // goes on
    TEXT,    // `left_` bytes of a string
  };
  Next next_ = Next::FIELD;
  std::uint8_t strings_ = 0;  // of the field that are still to come
  std::uint8_t more_ = 0;     // bytes of a number that went on
  std::size_t left_ = 0;
  std::size_t count_ = 0;

  void begin(std::uint8_t byte);
  void go_on(std::uint8_t byte);
  void say_length(std::uint8_t byte);
  void end_part();
  bool is_too_long();
};

}  // namespace profd::host
