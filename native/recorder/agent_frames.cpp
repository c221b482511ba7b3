#include "agent_frames.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace profd::agent {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

bool Fields::parse(std::string_view body) {
  count_ = 0;
  while (!body.empty()) {
    const std::size_t end = body.find('\n');
    if (end == body.npos || count_ == kFieldsMax) return false;
    const std::string_view line = body.substr(0, end);
    const std::size_t equals = line.find('=');
    if (equals == line.npos || equals == 0 || std::any_of(line.begin(), line.end(), is_control)) return false;
    const std::string_view key = line.substr(0, equals);
    if (find(key)) return false;
    fields_[count_++] = {key, line.substr(equals + 1)};
    body.remove_prefix(end + 1);
  }
  return true;
}

const Fields::Field* Fields::find(std::string_view key) const {
  const auto end = fields_.begin() + count_;
  const auto found = std::find_if(fields_.begin(), end, [&](const Field& field) { return field.key == key; });
  return found == end ? nullptr : &*found;
}

std::string_view Fields::text(std::string_view key) const {
  const Field* field = find(key);
  return field ? field->value : std::string_view{};
}

std::optional<uint64_t> Fields::number(std::string_view key, uint64_t otherwise) const {
  const Field* field = find(key);
  if (!field) return otherwise;
  uint64_t value = 0;
  const char* end = field->value.data() + field->value.size();
  const auto [stop, error] = std::from_chars(field->value.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

bool parse_frame(const char* packet, std::size_t bytes, Frame* frame) {
  FrameHeader header;
  if (bytes < sizeof header || bytes > kFrameBytesMax) return false;
  std::memcpy(&header, packet, sizeof header);
  if (header.magic != kMagic || header.reserved != 0) return false;
  frame->type = header.type;
  frame->epoch = header.epoch;
  frame->body = {packet + sizeof header, bytes - sizeof header};
  return frame->fields.parse(frame->body);
}

bool lists(std::string_view list, std::string_view key, char separator) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(separator));
    if (item.substr(0, item.find(':')) == key) return true;
    list.remove_prefix(std::min(item.size() + 1, list.size()));
  }
  return false;
}

void Packet::begin(Type type, uint64_t epoch) {
  const FrameHeader header{kMagic, type, 0, epoch};
  std::memcpy(bytes_.data(), &header, sizeof header);
  size_ = sizeof header;
}

void Packet::add(std::string_view key, std::string_view value) {
  value = value.substr(0, kValueBytesMax);
  if (size_ + key.size() + value.size() + 2 > bytes_.size()) return;
  char* at = bytes_.data() + size_;
  at = std::copy(key.begin(), key.end(), at);
  *at++ = '=';
  at = std::replace_copy_if(value.begin(), value.end(), at, is_control, ' ');
  *at++ = '\n';
  size_ = at - bytes_.data();
}

void Packet::add(std::string_view key, uint64_t value) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  add(key, std::string_view(digits, end - digits));
}

void Packet::add_seconds(std::string_view key, uint64_t nanoseconds) {
  char text[32];
  char* at = std::to_chars(text, text + 20, nanoseconds / 1'000'000'000).ptr;
  *at++ = '.';
  uint64_t rest = nanoseconds % 1'000'000'000;
  for (int i = 8; i >= 0; --i, rest /= 10) at[i] = static_cast<char>('0' + rest % 10);
  add(key, std::string_view(text, at + 9 - text));
}

void Packet::add_hex(std::string_view key, uint64_t value) {
  char digits[16];
  for (int i = 15; i >= 0; --i, value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
  add(key, std::string_view(digits, sizeof digits));
}

void Packet::add_lines(std::string_view lines) {
  if (size_ + lines.size() > bytes_.size()) return;
  std::copy(lines.begin(), lines.end(), bytes_.data() + size_);
  size_ += lines.size();
}

}  // namespace profd::agent
