// Pages of Parquet as segments have them: their headers (page_headers), and the numbers and words in them once they are
// decompressed (unpack_numbers, unpack_words). What is not as segments have it is a ValueError: then Arrow reads it, and
// says what is wrong. The layout: https://github.com/apache/parquet-format, Encodings.md and parquet.thrift.
#include "pages.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include <nanobind/stl/optional.h>

#include "arrays.h"
#include "expand.h"

namespace profd {
namespace {

// Of parquet.thrift.
enum Encoding : std::int64_t { kPlain = 0, kPlainDictionary = 2, kRle = 3, kDelta = 5, kRleDictionary = 8 };
enum Compact : std::uint8_t { kTrue = 1, kFalse = 2, kShort = 4, kInt = 5, kLong = 6, kBinary = 8, kStruct = 12 };

constexpr std::uint64_t kBlockMost = 1 << 16;  // values of a block of deltas
constexpr int kWidthMost = 64;

// Bytes with an end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  const std::uint8_t* at() const { return at_; }

  std::uint8_t byte() {
    require(at_ < end_, "a page ends too soon");
    return *at_++;
  }

  Bytes take(std::size_t size) {
    require(size <= left(), "a page ends too soon");
    const Bytes taken(at_, size);
    at_ += size;
    return taken;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t one = byte();
      value |= std::uint64_t{one & 0x7Fu} << shift;
      if (!(one & 0x80)) return value;
    }
    throw nb::value_error("a number of a page is too long");
  }

  std::int64_t zigzag() {
    const std::uint64_t value = varint();
    return static_cast<std::int64_t>(value >> 1 ^ (~(value & 1) + 1));
  }

  template <typename T>
  T plain() {
    T value;
    std::memcpy(&value, take(sizeof(T)).at(), sizeof(T));
    return value;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

// Of a page: what stands in its header, -1 for what does not.
struct Header {
  std::int64_t kind = -1, unpacked = -1, packed = -1, crc = -1, values = -1, encoding = -1, levels = -1;
};

constexpr int kNested = 4;  // structs within each other, at most

// The next field of a struct, its number from that of the one before; false at its end.
bool next_field(Bytes& bytes, std::int64_t& number, std::uint8_t& type) {
  const std::uint8_t head = bytes.byte();
  if (!head) return false;
  number = head >> 4 ? number + (head >> 4) : bytes.zigzag();
  require(number >= 0 && number < 1 << 15, "a page header has a field that there is not");
  type = head & 15;
  return true;
}

void skip(Bytes& bytes, std::uint8_t type, int depth = 0) {
  if (type == kShort || type == kInt || type == kLong) {
    bytes.varint();
  } else if (type == kBinary) {
    bytes.take(bytes.varint());
  } else if (type == kStruct) {
    require(depth < kNested, "a page header has too many structs within each other");
    std::int64_t number = 0;
    for (std::uint8_t inner = 0; next_field(bytes, number, inner);) skip(bytes, inner, depth + 1);
  } else {
    require(type == kTrue || type == kFalse, "a field of a page header is of another type");
  }
}

// Calls visit(number, type) for each field; it takes the value, or says that it has not.
template <typename Visit>
void each_field(Bytes& bytes, Visit visit) {
  std::int64_t number = 0;
  for (std::uint8_t type = 0; next_field(bytes, number, type);) {
    if (!visit(number, type)) skip(bytes, type);
  }
}

bool take_number(Bytes& bytes, std::uint8_t type, std::int64_t& value) {
  if (type != kInt) return false;
  value = bytes.zigzag();
  return true;
}

Header header_of(Bytes& bytes) {
  Header header;
  const auto of_page = [&](std::int64_t number, std::uint8_t type) {
    if (number == 1) return take_number(bytes, type, header.values);
    if (number == 2) return take_number(bytes, type, header.encoding);
    return number == 3 && take_number(bytes, type, header.levels);  // of a dictionary: whether it is sorted
  };
  each_field(bytes, [&](std::int64_t number, std::uint8_t type) {
    if (number == 1) return take_number(bytes, type, header.kind);
    if (number == 2) return take_number(bytes, type, header.unpacked);
    if (number == 3) return take_number(bytes, type, header.packed);
    if (number == 4) return take_number(bytes, type, header.crc);
    if ((number != 5 && number != 7) || type != kStruct) return false;
    each_field(bytes, of_page);
    return true;
  });
  require(header.kind >= 0 && header.unpacked >= 0 && header.packed >= 0 && header.values >= 0 && header.encoding >= 0,
          "a page header lacks something");
  return header;
}

// (kind, place of the body, its bytes, these unpacked, values, encoding, encoding of levels, crc or -1) of each page.
nb::list page_headers(nb::bytes data) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(data.c_str());
  Bytes bytes(begin, data.size());
  nb::list found;
  while (bytes.left()) {
    const Header one = header_of(bytes);
    const auto at = bytes.at() - begin;
    bytes.take(static_cast<std::size_t>(one.packed));
    found.append(nb::make_tuple(one.kind, at, one.packed, one.unpacked, one.values, one.encoding, one.levels,
                                one.crc < 0 && one.crc != -1 ? one.crc + (std::int64_t{1} << 32) : one.crc));
  }
  return found;
}

// Little-endian numbers of `width` bits, one after the other; `behind`: bytes that may be read from `data` on.
class PackedBits {
 public:
  PackedBits(const std::uint8_t* data, std::size_t behind, int width)
      : data_(data), behind_(behind), width_(width), mask_(width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1) {}

  std::uint64_t operator[](std::size_t i) const {
    const std::size_t bit = i * static_cast<std::size_t>(width_), from = bit >> 3;
    const int shift = static_cast<int>(bit & 7);
    if (width_ + shift <= 64 && from + 8 <= behind_) [[likely]] {
      return word(from) >> shift & mask_;
    }
    return slow(from, shift, mask_);
  }

  int width() const { return width_; }
  const std::uint8_t* at(std::size_t i) const { return data_ + i / 8 * static_cast<std::size_t>(width_); }

  // Whether the next kAtOnce numbers from a multiple of that on can be had by kUnpacks.
  bool few_at(std::size_t i) const {
    return width_ <= 32 && i / 8 * static_cast<std::size_t>(width_) + 4 * static_cast<std::size_t>(width_) + 8 <= behind_;
  }

  // Of numbers of one bit: those from a multiple of 64 on, as far as there are `times`.
  std::uint64_t ones(std::size_t i, std::size_t times) const {
    const std::uint64_t some = i / 8 + 8 <= behind_ ? word(i / 8) : slow(i / 8, 0, ~std::uint64_t{0});
    return times - i >= 64 ? some : some & ((std::uint64_t{1} << (times - i)) - 1);
  }

 private:
  std::uint64_t word(std::size_t from) const {
    std::uint64_t value;
    std::memcpy(&value, data_ + from, sizeof value);
    return value;
  }

  std::uint64_t slow(std::size_t from, int shift, std::uint64_t mask) const {
    unsigned __int128 value = 0;
    for (int i = 0; i < 9 && from + static_cast<std::size_t>(i) < behind_; ++i) {
      value |= static_cast<unsigned __int128>(data_[from + static_cast<std::size_t>(i)]) << (8 * i);
    }
    return static_cast<std::uint64_t>(value >> shift) & mask;
  }

  const std::uint8_t* data_;
  std::size_t behind_;
  int width_;
  std::uint64_t mask_;
};

constexpr std::size_t kAtOnce = 32;  // numbers, which begin and end with a byte whatever their width is
constexpr int kFewBits = 32;

template <int width, std::size_t... places>
void unpack_some(const std::uint8_t* from, std::uint32_t* out, std::index_sequence<places...>) {
  const auto one = [from](std::size_t bit) {
    std::uint64_t word;
    std::memcpy(&word, from + (bit >> 3), sizeof word);
    return static_cast<std::uint32_t>(word >> (bit & 7) & ((std::uint64_t{1} << width) - 1));
  };
  ((out[places] = one(places * width)), ...);
}

using Unpack = void (*)(const std::uint8_t*, std::uint32_t*);

template <std::size_t... widths>
constexpr std::array<Unpack, sizeof...(widths)> unpacks(std::index_sequence<widths...>) {
  return {[](const std::uint8_t* from, std::uint32_t* out) {
    unpack_some<static_cast<int>(widths)>(from, out, std::make_index_sequence<kAtOnce>{});
  }...};
}

constexpr auto kUnpacks = unpacks(std::make_index_sequence<kFewBits + 1>{});

// Calls visit(i, number) for `times` numbers of `width` bits; `behind` as of PackedBits.
template <typename Visit>
void each_packed(const PackedBits& bits, std::size_t times, Visit visit) {
  std::size_t i = 0;
  std::array<std::uint32_t, kAtOnce> some;
  for (; i + kAtOnce <= times && bits.few_at(i); i += kAtOnce) {
    kUnpacks[static_cast<std::size_t>(bits.width())](bits.at(i), some.data());
    for (std::size_t k = 0; k < kAtOnce; ++k) visit(i + k, std::uint64_t{some[k]});
  }
  for (; i < times; ++i) visit(i, bits[i]);
}

// Runs of RLE and bits, of `count` numbers in all: same(value, times) or each(bits, times) for each run.
template <typename Same, typename Each>
void each_run(Bytes& bytes, int width, std::size_t count, Same same, Each each) {
  require(width >= 0 && width <= 32, "a page has numbers of too many bits");
  while (count) {
    const std::uint64_t head = bytes.varint();
    if (head & 1) {
      const std::uint64_t groups = head >> 1;
      require(groups && groups < std::uint64_t{1} << 32, "a run of a page is empty, or too long");
      const std::size_t size = static_cast<std::size_t>(groups) * static_cast<std::size_t>(width);
      const Bytes run = bytes.take(std::min(size, bytes.left()));
      const std::size_t times = std::min<std::size_t>(count, static_cast<std::size_t>(groups) * 8);
      require((times * static_cast<std::size_t>(width) + 7) / 8 <= run.left(), "a page ends too soon");
      each(PackedBits(run.at(), run.left() + bytes.left(), width), times);
      count -= times;
    } else {
      std::uint64_t value = 0;
      for (int i = 0; i * 8 < width; ++i) value |= std::uint64_t{bytes.byte()} << (8 * i);
      require(head >> 1, "a run of a page is empty");
      const std::size_t times = std::min<std::uint64_t>(count, head >> 1);
      same(value, times);
      count -= times;
    }
  }
}

// Of numbers one after the other; T is their type in the file, `out` what takes them.
template <typename T, typename U>
void unpack_deltas(Bytes& bytes, U* out, std::size_t count) {
  using Unsigned = std::make_unsigned_t<T>;
  const std::uint64_t block = bytes.varint(), minis = bytes.varint(), total = bytes.varint();
  Unsigned value = static_cast<Unsigned>(bytes.zigzag());
  require(block && block <= kBlockMost && minis && block % minis == 0 && block / minis % 32 == 0,
          "deltas of a page come in blocks of another size");
  require(total == count, "a page has other values than it says");
  if (total) out[0] = static_cast<U>(static_cast<T>(value));
  const std::size_t each = block / minis;
  for (std::size_t at = 1; at < total;) {
    const auto least = static_cast<Unsigned>(bytes.zigzag());
    const Bytes widths = bytes.take(minis);
    for (std::size_t mini = 0; mini < minis && at < total; ++mini) {
      const int width = widths.at()[mini];
      require(width <= kWidthMost, "a page has deltas of too many bits");
      const std::size_t rows = std::min(each, total - at), size = each / 8 * static_cast<std::size_t>(width);
      const Bytes run = bytes.take(std::min(size, bytes.left()));
      require((rows * static_cast<std::size_t>(width) + 7) / 8 <= run.left(), "a page ends too soon");
      const PackedBits bits(run.at(), run.left() + bytes.left(), width);
      each_packed(bits, rows, [&](std::size_t i, std::uint64_t more) {
        value += least + static_cast<Unsigned>(more);
        out[at + i] = static_cast<U>(static_cast<T>(value));
      });
      at += rows;
    }
  }
}

// Codes, and what each stands for.
template <typename U>
void unpack_codes(Bytes& bytes, const std::optional<In<std::int64_t>>& words, U* out, std::size_t count) {
  require(words && words->shape(0) > 0, "a page has codes without a dictionary");
  const std::int64_t* const known = words->data();
  const std::size_t size = words->shape(0);
  const auto same = [&](std::uint64_t code, std::size_t times) {
    require(code < size, "a page has a code beyond its dictionary");
    out = std::fill_n(out, times, static_cast<U>(known[code]));
  };
  const auto each = [&](const PackedBits& bits, std::size_t times) {
    std::uint64_t highest = 0;
    each_packed(bits, times, [&](std::size_t i, std::uint64_t code) {
      highest = std::max(highest, code);
      out[i] = static_cast<U>(known[std::min<std::uint64_t>(code, size - 1)]);
    });
    require(highest < size, "a page has a code beyond its dictionary");
    out += times;
  };
  const int width = bytes.byte();
  each_run(bytes, width, count, same, each);
}

// So many values of a page, nulls left out.
template <typename T, typename U>
void unpack_values(Bytes& bytes, std::int64_t encoding, const std::optional<In<std::int64_t>>& words, U* out,
                   std::size_t count) {
  if (encoding == kDelta) return unpack_deltas<T>(bytes, out, count);
  if (encoding == kRleDictionary || encoding == kPlainDictionary) return unpack_codes(bytes, words, out, count);
  require(encoding == kPlain, "a page has another encoding");
  const Bytes values = bytes.take(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, values.at() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<U>(value);
  }
}

// How many rows of a page have a value.
std::size_t count_valid(Bytes levels, std::size_t rows) {
  std::size_t valid = 0;
  each_run(
      levels, 1, rows, [&](std::uint64_t bit, std::size_t times) { valid += bit ? times : 0; },
      [&](const PackedBits& bits, std::size_t times) {
        for (std::size_t i = 0; i < times; i += 64) valid += std::popcount(bits.ones(i, times));
      });
  return valid;
}

// Returns how many rows have a value.
template <typename T, typename U>
std::size_t unpack(Bytes bytes, bool nullable, std::int64_t encoding, const std::optional<In<std::int64_t>>& words, U* out,
            std::size_t rows, U absent) {
  if (!nullable) {
    unpack_values<T>(bytes, encoding, words, out, rows);
    return rows;
  }
  Bytes levels = bytes.take(bytes.plain<std::uint32_t>());
  const std::size_t valid = count_valid(levels, rows);
  // Values stand at the end of their place first: spread from the begin on, none is overwritten before it is moved.
  const U* from = out + (rows - valid);
  if (valid) unpack_values<T>(bytes, encoding, words, out + (rows - valid), valid);
  if (valid == rows) return valid;
  U* to = out;
  const U* const last = out + rows - 1;
  each_run(
      levels, 1, rows,
      [&](std::uint64_t bit, std::size_t times) {
        if (bit) {
          std::memmove(to, from, times * sizeof(U));
          from += times;
        } else {
          std::fill_n(to, times, absent);
        }
        to += times;
      },
      [&](const PackedBits& bits, std::size_t times) {
        for (std::size_t i = 0; i < times; i += 64) {
          const std::size_t some = std::min<std::size_t>(times - i, 64);
          from = expand_some(to, from, last, bits.ones(i, times), some, absent);
          to += some;
        }
      });
  return valid;
}

using AnyOut = nb::ndarray<nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename U>
std::optional<std::size_t> unpack_into(const AnyOut& out, const Bytes& bytes, bool nullable, std::int64_t encoding,
                                       int width, const std::optional<In<std::int64_t>>& words, std::int64_t absent) {
  if (out.dtype() != nb::dtype<U>()) return std::nullopt;
  require(reinterpret_cast<std::uintptr_t>(out.data()) % alignof(U) == 0, "out is not aligned in memory");
  auto* const data = static_cast<U*>(out.data());
  nb::gil_scoped_release release;
  if (width == 4) return unpack<std::int32_t>(bytes, nullable, encoding, words, data, out.shape(0), static_cast<U>(absent));
  return unpack<std::int64_t>(bytes, nullable, encoding, words, data, out.shape(0), static_cast<U>(absent));
}

std::size_t unpack_numbers(In<std::uint8_t> body, bool nullable, std::int64_t encoding, int width,
                           std::optional<In<std::int64_t>> words, AnyOut out, std::int64_t absent) {
  require(width == 4 || width == 8, "numbers have 4 or 8 bytes");
  if (words) require_aligned(*words, "words");
  const Bytes bytes(body.data(), body.shape(0));
  const auto into = [&](auto one) {
    return unpack_into<decltype(one)>(out, bytes, nullable, encoding, width, words, absent);
  };
  if (const auto valid = into(std::int64_t{})) return *valid;
  if (const auto valid = into(std::int32_t{})) return *valid;
  if (const auto valid = into(std::uint8_t{})) return *valid;
  if (const auto valid = into(std::uint16_t{})) return *valid;
  throw nb::type_error("out must be of uint8, uint16, int32 or int64");
}

// (where each word begins, and where the last one ends; all their bytes)
nb::tuple unpack_words(In<std::uint8_t> body, std::size_t count) {
  Bytes bytes(body.data(), body.shape(0));
  require(count <= bytes.left() / sizeof(std::uint32_t), "a dictionary has fewer words than it says");
  Buffer<std::int32_t> offsets(count + 1);
  std::vector<std::uint8_t> data;
  data.reserve(bytes.left());
  for (std::size_t i = 0; i < count; ++i) {
    offsets[i] = static_cast<std::int32_t>(data.size());
    const std::uint32_t size = bytes.plain<std::uint32_t>();
    const Bytes word = bytes.take(size);
    data.insert(data.end(), word.at(), word.at() + size);
    require(data.size() < std::size_t{1} << 31, "the words of a dictionary are too long");
  }
  offsets[count] = static_cast<std::int32_t>(data.size());
  return nb::make_tuple(offsets.array(), to_array(data));
}

}  // namespace

void bind_pages(nb::module_& m) {
  m.def("page_headers", &page_headers, nb::arg("data"));
  m.def("unpack_numbers", &unpack_numbers, nb::arg("body").noconvert(), nb::kw_only(), nb::arg("nullable"),
        nb::arg("encoding"), nb::arg("width"), nb::arg("words").noconvert().none(), nb::arg("out").noconvert(),
        nb::arg("absent"));
  m.def("unpack_words", &unpack_words, nb::arg("body").noconvert(), nb::arg("count"));
}

}  // namespace profd
