#include "header_fields.h"

#include <algorithm>

namespace profd::host {

namespace {

constexpr std::uint8_t GOES_ON = 0x80;    // a byte of a number behind its first
constexpr std::uint8_t NUMBER_BYTES = 4;  // behind its first: no table has more entries, and no block such a string

}  // namespace

void HeaderFields::feed(const std::uint8_t* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes && count_ != MALFORMED;) {
    if (next_ == Next::TEXT) {
      const std::size_t some = std::min(left_, bytes - at);
      left_ -= some;
      at += some;
      if (left_ == 0) end_part();
      continue;
    }
    const std::uint8_t byte = data[at++];
    switch (next_) {
      case Next::FIELD:
        begin(byte);
        break;
      case Next::NUMBER:
        go_on(byte);
        break;
      default:
        say_length(byte);
    }
  }
}

// 6: what a field is, and the first bits of a number.
void HeaderFields::begin(std::uint8_t byte) {
  ++count_;
  const bool is_known = (byte & 0x80) != 0, is_kept = !is_known && (byte & 0x40) != 0;
  const bool is_size = !is_known && !is_kept && (byte & 0x20) != 0;
  const std::uint8_t most = is_known ? 0x7f : is_kept ? 0x3f : is_size ? 0x1f : 0x0f;
  const std::uint8_t number = byte & most;
  strings_ = is_known || is_size ? 0 : number == 0 ? 2 : 1;  // a name that no table has, and a value
  more_ = 0;
  if (number == most) {
    next_ = Next::NUMBER;
  } else {
    next_ = strings_ > 0 ? Next::STRING : Next::FIELD;
  }
}

void HeaderFields::go_on(std::uint8_t byte) {
  if (is_too_long()) return;
  if ((byte & GOES_ON) == 0) next_ = strings_ > 0 ? Next::STRING : Next::FIELD;
}

void HeaderFields::say_length(std::uint8_t byte) {
  if (next_ == Next::STRING) {
    left_ = byte & 0x7f;
    more_ = 0;
    next_ = left_ == 0x7f ? Next::LENGTH : Next::TEXT;
  } else {
    if (is_too_long()) return;
    left_ += static_cast<std::size_t>(byte & 0x7f) << 7 * (more_ - 1);
    if ((byte & GOES_ON) == 0) next_ = Next::TEXT;
  }
  if (next_ == Next::TEXT && left_ == 0) end_part();
}

void HeaderFields::end_part() { next_ = --strings_ > 0 ? Next::STRING : Next::FIELD; }

bool HeaderFields::is_too_long() {
  if (++more_ <= NUMBER_BYTES) return false;
  count_ = MALFORMED;
  return true;
}

}  // namespace profd::host
