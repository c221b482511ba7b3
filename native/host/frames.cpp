#include "frames.h"

#include <algorithm>
#include <cstring>

namespace profd::host {

namespace {

constexpr std::uint8_t END_HEADERS = 0x4, PADDED = 0x8, PRIORITY = 0x20;
constexpr std::size_t PRIORITY_BYTES = 5;
constexpr char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

Frame header_of(const std::uint8_t* data) {
  const auto at = [data](int index) { return static_cast<std::uint32_t>(data[index]); };
  return {at(0) << 16 | at(1) << 8 | at(2), data[3], data[4], (at(5) & 0x7f) << 24 | at(6) << 16 | at(7) << 8 | at(8)};
}

}  // namespace

Frames::Next Frames::look(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return Next::MORE;
  if (preface_ > 0) {
    size = std::min(preface_, bytes);
    const char* expected = PREFACE + (PREFACE_BYTES - preface_);
    return std::memcmp(data, expected, size) == 0 ? Next::BYTES : Next::FOREIGN;
  }
  if (body_ > 0) {
    size = std::min<std::size_t>(body_, bytes);
    return Next::BYTES;
  }
  if (bytes < HEADER_BYTES) return Next::MORE;
  frame = header_of(data);
  // RFC 9113, 3.4: either side begins with SETTINGS, a client behind its preface; 6.2: HEADERS are a stream's.
  if (first_ && frame.type != SETTINGS) return Next::FOREIGN;
  if (frame.type == HEADERS && frame.stream == 0) return Next::FOREIGN;
  // No gRPC pads headers, and gRPC takes the padding for fields: two readers of it would count two numbers.
  if (frame.type == HEADERS && (frame.flags & PADDED) != 0) return Next::FOREIGN;
  // 6.3: a priority is whole in its frame. gRPC would take what is missing of it from the next one.
  if (frame.type == HEADERS && (frame.flags & PRIORITY) != 0 && frame.length < PRIORITY_BYTES) return Next::FOREIGN;
  // 6.10: a header block is CONTINUATION of the same stream until its end, and nothing else is.
  if ((frame.type == CONTINUATION) != in_block()) return Next::FOREIGN;
  if (in_block() && frame.stream != block_stream_) return Next::FOREIGN;
  return Next::HEADER;
}

void Frames::pass(const std::uint8_t* data, std::size_t bytes) {
  if (preface_ > 0) {
    preface_ -= bytes;
  } else {
    if (in_block()) count_fields(data, bytes);
    body_ -= static_cast<std::uint32_t>(bytes);
    end_block();
  }
}

void Frames::count_fields(const std::uint8_t* data, std::size_t bytes) {
  const std::size_t skipped = std::min(priority_, bytes);
  priority_ -= skipped;
  fields_.feed(data + skipped, bytes - skipped);
}

std::size_t Frames::block_bytes() const {
  return frame.type == HEADERS || frame.type == CONTINUATION ? block_ + frame.length : 0;
}

void Frames::pass_header() {
  body_ = frame.length;
  first_ = false;
  if (frame.type != HEADERS && frame.type != CONTINUATION) return;
  if (!in_block()) fields_ = {};
  priority_ = frame.type == HEADERS && (frame.flags & PRIORITY) != 0 ? PRIORITY_BYTES : 0;
  block_ = block_bytes();
  block_stream_ = frame.stream;
  block_ends_ = (frame.flags & END_HEADERS) != 0;
  end_block();
}

void Frames::end_block() {
  if (!block_ends_ || body_ > 0) return;
  block_stream_ = 0;
  block_ = 0;
  block_ends_ = false;
}

}  // namespace profd::host
