// Which rows of a column have a value, as Arrow wants to know it: presence, validity; and the words that codes use:
// compact_codes.
#include "presence.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "arrays.h"

namespace profd {
namespace {

// A value that is not a number is never equal, not even to itself.
template <typename T>
bool is_there(T value, T absent) {
  if constexpr (std::is_floating_point_v<T>) {
    return value == value;
  } else {
    return value != absent;
  }
}

// As wide as a value, so that compilers make vectors of both.
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint8_t>>;

// 0: nowhere, 1: in some rows, 2: everywhere. Decided block by block: most columns are known after the first.
template <typename T>
int presence(In<T> values, T absent) {
  require_aligned(values, "values");
  constexpr std::size_t kBlock = 4096;
  const std::size_t n = values.shape(0);
  const T* const data = values.data();
  nb::gil_scoped_release release;
  Bits<T> some = 0, none = 0;
  for (std::size_t first = 0; first < n && !(some && none); first += kBlock) {
    const std::size_t end = std::min(n, first + kBlock);
    for (std::size_t i = first; i < end; ++i) {
      const Bits<T> is = is_there(data[i], absent);
      some |= is;
      none |= is ^ 1;
    }
  }
  return !some ? 0 : none ? 1 : 2;
}

// Arrow's marks: a bit per row, least significant first.
template <typename T>
Out<std::uint8_t> validity(In<T> values, T absent) {
  require_aligned(values, "values");
  const std::size_t n = values.shape(0);
  const T* const data = values.data();
  Buffer<std::uint8_t> marks((n + 7) / 8);
  {
    nb::gil_scoped_release release;
    for (std::size_t byte = 0; byte < marks.size(); ++byte) {
      const std::size_t first = byte * 8, bits = std::min<std::size_t>(8, n - first);
      unsigned mark = 0;
      for (std::size_t bit = 0; bit < bits; ++bit) mark |= unsigned{is_there(data[first + bit], absent)} << bit;
      marks[byte] = static_cast<std::uint8_t>(mark);
    }
  }
  return marks.array();
}

// (the codes as places in the list of those used, which codes those are). Absent codes (-1) get place 0.
nb::tuple compact_codes(In<std::int32_t> codes, std::size_t words) {
  require_aligned(codes, "codes");
  require(words <= std::numeric_limits<std::int32_t>::max(), "there are more words than codes");
  const std::size_t n = codes.shape(0);
  Buffer<std::int32_t> places(n);
  std::vector<std::int32_t> used;
  {
    nb::gil_scoped_release release;
    std::vector<std::int32_t> place(words, -1);
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t code = codes.data()[i];
      if (code == -1) continue;
      require(static_cast<std::uint32_t>(code) < words, "a code is out of range");
      place[static_cast<std::size_t>(code)] = 0;
    }
    for (std::size_t code = 0; code < words; ++code) {
      if (place[code] < 0) continue;
      place[code] = static_cast<std::int32_t>(used.size());
      used.push_back(static_cast<std::int32_t>(code));
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t code = codes.data()[i];
      places[i] = code == -1 ? 0 : place[static_cast<std::size_t>(code)];
    }
  }
  return nb::make_tuple(places.array(), to_array(used));
}

template <typename T>
void bind_for(nb::module_& m) {
  m.def("presence", &presence<T>, nb::arg("values").noconvert(), nb::arg("absent"));
  m.def("validity", &validity<T>, nb::arg("values").noconvert(), nb::arg("absent"));
}

}  // namespace

void bind_presence(nb::module_& m) {
  bind_for<std::int64_t>(m);
  bind_for<std::int32_t>(m);
  bind_for<std::uint8_t>(m);
  bind_for<double>(m);
  m.def("compact_codes", &compact_codes, nb::arg("codes").noconvert(), nb::arg("words"));
}

}  // namespace profd
