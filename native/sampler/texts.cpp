#include "texts.h"

#include <algorithm>
#include <charconv>

#include "words.h"

namespace profd::sampler {
namespace {

constexpr std::uint32_t kSurrogates = 0xD800, kBehindSurrogates = 0xE000, kCharacterMax = 0x10FFFF;

// The state of a str: interned in 2 bits, kind in 3, compact, ascii.
unsigned kind_of(std::uint32_t state) { return state >> 2 & 7; }
bool is_compact(std::uint32_t state) { return (state >> 5 & 1) != 0; }
bool is_ascii(std::uint32_t state) { return (state >> 6 & 1) != 0; }

void put_utf8(std::string& into, std::uint32_t character) {
  const auto put = [&into](std::uint32_t byte) { into.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | character >> 6);
    put(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    put(0xE0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  } else {
    put(0xF0 | character >> 18);
    put(0x80 | (character >> 12 & 0x3F));
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  }
}

void put_character(std::string& into, std::uint32_t character) {
  constexpr char kDigits[] = "0123456789abcdef";
  if (character == '"' || character == '\\') {
    into.push_back('\\');
    into.push_back(static_cast<char>(character));
  } else if (character < 0x20 || character == 0x7F) {
    into += "\\u00";
    into.push_back(kDigits[character >> 4]);
    into.push_back(kDigits[character & 15]);
  } else if (character > kCharacterMax || (character >= kSurrogates && character < kBehindSurrogates)) {
    into.push_back('?');
  } else {
    put_utf8(into, character);
  }
}

template <typename Unit>
void put_all(std::string& into, const char* from, std::size_t count) {
  for (std::size_t at = 0; at < count; ++at) put_character(into, load<Unit>(from + at * sizeof(Unit)));
}

}  // namespace

bool read_text(pid_t process, const Layout& layout, std::uint64_t address, const char* begin, std::string& into) {
  const auto length = load<std::uint64_t>(begin + kLength);
  const auto state = load<std::uint32_t>(begin + kState);
  const unsigned kind = kind_of(state);
  if (kind != 1 && kind != 2 && kind != 4) return false;
  const std::size_t count = std::min<std::uint64_t>(length, kCharactersMax), bytes = count * kind;
  const std::size_t offset = is_compact(state) && is_ascii(state) ? layout.text : layout.wide_text;
  static char room[kCharactersMax * sizeof(std::uint32_t)];
  const char* from = begin + offset;
  if (!is_compact(state)) {
    std::uint64_t data = 0;
    if (!read_value(process, address + offset, data) || !read_place(process, data, room, bytes)) return false;
    from = room;
  } else if (offset + bytes > kStringBytes) {
    if (!read_place(process, address + offset, room, bytes)) return false;
    from = room;
  }
  into.clear();
  if (kind == 1) put_all<std::uint8_t>(into, from, count);
  if (kind == 2) put_all<std::uint16_t>(into, from, count);
  if (kind == 4) put_all<std::uint32_t>(into, from, count);
  return true;
}

bool read_text(pid_t process, const Layout& layout, std::uint64_t address, std::string& into) {
  char begin[kStringBytes] = {};
  // A short string may end before that, where nothing more is mapped.
  const std::size_t have = address == 0 ? 0 : read_memory(process, address, begin, sizeof begin);
  if (have < layout.text) return false;
  return read_text(process, layout, address, begin, into);
}

void put_number(std::string& into, std::uint64_t number) {
  char digits[20];
  into.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

}  // namespace profd::sampler
