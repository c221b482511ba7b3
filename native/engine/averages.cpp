// Key averages: which rows count as what (allowed), and count and sums of each group of them (sum_groups; sum_stored
// and count_pairs of events as they are stored).
#include "averages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "numbering.h"

namespace profd {
namespace {

constexpr std::size_t kBlock = 2048;  // rows whose intermediate values stay in the L1 cache

// A column of small numbers of whichever width it is kept in.
struct Codes {
  const void* data;
  int width;  // bytes: 1 unsigned, 4 or 8 signed

  static Codes of(const AnyColumn& column, std::size_t rows) {
    require(column.shape(0) == rows, "the columns have different lengths");
    int width = 0;
    if (column.dtype() == nb::dtype<std::uint8_t>()) width = 1;
    if (column.dtype() == nb::dtype<std::int32_t>()) width = 4;
    if (column.dtype() == nb::dtype<std::int64_t>()) width = 8;
    if (!width) throw nb::type_error("a column must be of uint8, int32 or int64");
    require(reinterpret_cast<std::uintptr_t>(column.data()) % static_cast<std::uintptr_t>(width) == 0,
            "a column is not aligned in memory: copy it first");
    return {column.data(), width};
  }

  // Calls visit(i, code) for the rows [first, first + n); -1 stands for the last of `size` codes.
  template <typename Visit>
  void each(std::size_t first, std::size_t n, std::uint64_t size, Visit visit) const {
    if (width == 1) return each_of(static_cast<const std::uint8_t*>(data) + first, n, size, visit);
    if (width == 4) return each_of(static_cast<const std::int32_t*>(data) + first, n, size, visit);
    each_of(static_cast<const std::int64_t*>(data) + first, n, size, visit);
  }

 private:
  template <typename T, typename Visit>
  static void each_of(const T* codes, std::size_t n, std::uint64_t size, Visit visit) {
    constexpr bool kSigned = std::is_signed_v<T>;
    if (std::is_same_v<T, std::uint8_t> && size >= 256) {  // none is out of range
      for (std::size_t i = 0; i < n; ++i) visit(i, static_cast<std::uint64_t>(codes[i]));
      return;
    }
    T lowest = 0, highest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      lowest = std::min(lowest, codes[i]);
      highest = std::max(highest, codes[i]);
    }
    require((!kSigned || lowest >= static_cast<T>(-1)) && static_cast<std::uint64_t>(highest) < size,
            "a code is out of range");
    for (std::size_t i = 0; i < n; ++i) {
      visit(i, kSigned && codes[i] == static_cast<T>(-1) ? size - 1 : static_cast<std::uint64_t>(codes[i]));
    }
  }
};

Out<std::uint8_t> allowed(std::vector<std::pair<AnyColumn, In<std::uint8_t>>> rules) {
  require(!rules.empty(), "allowed needs at least one column");
  const std::size_t n = rules[0].first.shape(0);
  std::vector<Codes> columns;
  for (const auto& [column, table] : rules) {
    columns.push_back(Codes::of(column, n));
    require(table.shape(0) > 0, "a table has no entries");
  }
  Buffer<std::uint8_t> roles(n);
  {
    nb::gil_scoped_release release;
    std::memset(roles.data(), 0xff, n);
    for (std::size_t first = 0; first < n; first += kBlock) {
      const std::size_t rows = std::min(kBlock, n - first);
      std::uint8_t* const out = roles.data() + first;
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const std::uint8_t* const table = rules[c].second.data();
        columns[c].each(first, rows, rules[c].second.shape(0),
                        [&](std::size_t i, std::uint64_t code) { out[i] &= table[code]; });
      }
    }
  }
  return roles.array();
}

nb::tuple sum_groups(std::vector<std::pair<AnyColumn, std::uint64_t>> keys, In<std::uint8_t> counted,
                     std::vector<In<std::int64_t>> values) {
  const std::size_t n = counted.shape(0), width = values.size();
  require(n < std::size_t{1} << 31, "there are more rows than groups can be numbered");
  std::vector<Codes> columns;
  std::vector<std::uint64_t> sizes;
  for (const auto& [column, size] : keys) {
    columns.push_back(Codes::of(column, n));
    sizes.push_back(size);
  }
  const std::uint64_t space = key_space(sizes);
  std::vector<const std::int64_t*> data;
  for (const auto& column : values) {
    require_column(column, n, "a column of values");
    data.push_back(column.data());
  }
  Buffer<std::int32_t> group(n);
  std::vector<std::int64_t> first, count, sums;  // sums: those of a group are next to each other
  std::vector<Buffer<std::int64_t>> columnwise;
  {
    nb::gil_scoped_release release;
    Numbering numbers(space);
    std::vector<std::uint64_t> code(kBlock);
    for (std::size_t from = 0; from < n; from += kBlock) {
      const std::size_t rows = std::min(kBlock, n - from);
      std::fill_n(code.begin(), rows, 0);
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const std::uint64_t size = sizes[c];
        columns[c].each(from, rows, size, [&](std::size_t i, std::uint64_t own) { code[i] = code[i] * size + own; });
      }
      for (std::size_t i = 0; i < rows; ++i) {
        const std::size_t row = from + i;
        const std::int32_t id = numbers.of(code[i], static_cast<std::int32_t>(first.size()));
        if (static_cast<std::size_t>(id) == first.size()) {
          first.push_back(static_cast<std::int64_t>(row));
          count.push_back(0);
          sums.resize(sums.size() + width, 0);
        }
        group[row] = id;
        count[id] += counted.data()[row] != 0;
        std::int64_t* const of_group = sums.data() + static_cast<std::size_t>(id) * width;
        for (std::size_t v = 0; v < width; ++v) {
          if (data[v][row] != kAbsent) of_group[v] = plus(of_group[v], data[v][row]);
        }
      }
    }
    for (std::size_t v = 0; v < width; ++v) {
      Buffer<std::int64_t>& column = columnwise.emplace_back(first.size());
      for (std::size_t id = 0; id < first.size(); ++id) column[id] = sums[id * width + v];
    }
  }
  nb::list sum_arrays;
  for (auto& column : columnwise) sum_arrays.append(column.array());
  return nb::make_tuple(group.array(), to_array(first), to_array(count), sum_arrays);
}

constexpr std::size_t kDevices = 8;   // types of devices, and room for one more
constexpr std::size_t kOnCpu = 1;     // the type of the CPU
constexpr std::size_t kByKind = 256;  // entries of a table by kind, or by phase
constexpr std::size_t kPlaces = 3;    // such tables: of neither, of the CPU, of devices

// Stored columns of a row group. `phase` may be null: no row has one.
struct Stored {
  std::size_t n, names;
  const std::int32_t* name;
  const std::int32_t* kind;
  const std::int32_t* device;
  const std::int32_t* phase;
  const std::int64_t* lasting;
  const std::int64_t* own;
  const std::uint8_t* fits;
  const std::uint8_t* phases;

  static bool within(std::int32_t value, std::size_t size) {
    return value >= 0 && static_cast<std::size_t>(value) < size;
  }

  // Whether the stored self time of a row is that of strict nesting, and can be added to a group.
  bool is_plain(std::size_t i) const {
    if (name[i] < -1 || (name[i] >= 0 && !within(name[i], names))) return false;
    if (!within(kind[i], kByKind) || !within(device[i], kDevices) || lasting[i] < 0) return false;
    if (phase && !(within(phase[i], kByKind) && phases[phase[i]])) return false;
    const std::size_t place = std::min<std::size_t>(static_cast<std::size_t>(device[i]), kPlaces - 1);
    if (!fits[place * kByKind + static_cast<std::size_t>(kind[i])]) return false;
    return place != kOnCpu || own[i] != kAbsent || lasting[i] == 0;
  }
};

nb::object sum_stored(In<std::int32_t> name, std::size_t names, In<std::int32_t> kind, In<std::int32_t> device,
                      std::optional<In<std::int32_t>> phase, In<std::int64_t> lasting, In<std::int64_t> own,
                      In<std::uint8_t> fits, In<std::uint8_t> phases) {
  const std::size_t n = name.shape(0);
  require(n < std::size_t{1} << 31, "there are more rows than groups can be numbered");
  require(names < std::size_t{1} << 31, "there are more names than codes");
  require_aligned(name, "name");
  require_column(kind, n, "kind");
  require_column(device, n, "device");
  if (phase) require_column(*phase, n, "phase");
  require_column(lasting, n, "lasting");
  require_column(own, n, "own");
  require_column(fits, kPlaces * kByKind, "fits");
  require_column(phases, kByKind, "phases");
  const Stored rows{n, names, name.data(), kind.data(), device.data(), phase ? phase->data() : nullptr,
                    lasting.data(), own.data(), fits.data(), phases.data()};
  Buffer<std::int32_t> group(n);
  std::vector<std::int64_t> first, count, took, alone;
  bool plain = true;
  {
    nb::gil_scoped_release release;
    Numbering numbers((names + 1) * kDevices);
    for (std::size_t i = 0; i < n && (plain = rows.is_plain(i)); ++i) {
      const std::size_t named = rows.name[i] < 0 ? names : static_cast<std::size_t>(rows.name[i]);
      const std::size_t on = static_cast<std::size_t>(rows.device[i]);
      const std::int32_t id = numbers.of(named * kDevices + on, static_cast<std::int32_t>(first.size()));
      if (static_cast<std::size_t>(id) == first.size()) {
        first.push_back(static_cast<std::int64_t>(i));
        for (std::vector<std::int64_t>* sums : {&count, &took, &alone}) sums->push_back(0);
      }
      group[i] = id;
      ++count[id];
      took[id] = plus(took[id], rows.lasting[i]);
      if (on == kOnCpu && rows.own[i] != kAbsent) alone[id] = plus(alone[id], rows.own[i]);
    }
  }
  if (!plain) return nb::none();
  return nb::make_tuple(group.array(), to_array(first), to_array(count), to_array(took), to_array(alone));
}

// (first row of each pair of group and code, how many rows have it): of rows of this kind that have a name that is wanted
// and are counted; no `counted`: all are. The last of `wanted` answers for no name.
template <typename Kind>
nb::tuple count_pairs(In<std::int32_t> group, std::size_t groups, In<std::int32_t> name, In<std::uint8_t> wanted,
                      In<Kind> kind, std::int32_t of_kind, In<std::int32_t> code, std::size_t codes,
                      std::optional<In<std::uint8_t>> counted) {
  const std::size_t n = group.shape(0), names = wanted.shape(0);
  require_aligned(group, "group");
  require_column(name, n, "name"), require_column(kind, n, "kind"), require_column(code, n, "code");
  if (counted) require_column(*counted, n, "counted");
  require(names > 0 && n < std::size_t{1} << 31, "there are more rows than can be numbered");
  const std::uint64_t space = key_space({std::max<std::uint64_t>(groups, 1), std::max<std::uint64_t>(codes, 1)});
  Buffer<std::int32_t> rows(n + 1);
  std::vector<std::int64_t> first, count;
  {
    nb::gil_scoped_release release;
    const std::int32_t *const group_of = group.data(), *const name_of = name.data(), *const code_of = code.data();
    const std::uint8_t all = 1, *const is_wanted = wanted.data(), *const counts = counted ? counted->data() : &all;
    const std::size_t step = counted ? 1 : 0;
    const Kind* const kinds = kind.data();
    std::int32_t* const some = rows.data();
    std::size_t found = 0;
    for (std::size_t i = 0; i < n; ++i) {  // names come in any order: no branch is guessed well
      const std::int32_t own = name_of[i];
      require(own >= -1 && own < static_cast<std::int64_t>(names) - 1, "a name is out of range");
      const std::size_t place = own < 0 ? names - 1 : static_cast<std::size_t>(own);
      some[found] = static_cast<std::int32_t>(i);
      found += static_cast<std::size_t>((is_wanted[place] != 0) & (kinds[i] == of_kind) & (counts[i * step] != 0) &
                                        (static_cast<std::uint32_t>(code_of[i]) < codes));
    }
    Numbering numbers(space);
    for (std::size_t k = 0; k < found; ++k) {
      const auto i = static_cast<std::size_t>(some[k]);
      require(Stored::within(group_of[i], groups), "a group number is out of range");
      const std::uint64_t key = static_cast<std::uint64_t>(group_of[i]) * codes + static_cast<std::uint64_t>(code_of[i]);
      const std::int32_t id = numbers.of(key, static_cast<std::int32_t>(first.size()));
      if (static_cast<std::size_t>(id) == first.size()) {
        first.push_back(some[k]);
        count.push_back(0);
      }
      ++count[static_cast<std::size_t>(id)];
    }
  }
  return nb::make_tuple(to_array(first), to_array(count));
}

}  // namespace

void bind_averages(nb::module_& m) {
  m.def("allowed", &allowed, nb::arg("rules").noconvert());
  m.def("sum_groups", &sum_groups, nb::arg("keys").noconvert(), nb::arg("counted").noconvert(),
        nb::arg("values").noconvert());
  const auto count_pairs_of = [&m](auto count) {
    m.def("count_pairs", count, nb::arg("group").noconvert(), nb::arg("groups"), nb::arg("name").noconvert(),
          nb::arg("wanted").noconvert(), nb::arg("kind").noconvert(), nb::arg("of_kind"), nb::arg("code").noconvert(),
          nb::arg("codes"), nb::arg("counted").noconvert() = nb::none());
  };
  count_pairs_of(&count_pairs<std::int32_t>), count_pairs_of(&count_pairs<std::uint8_t>);
  m.def("sum_stored", &sum_stored, nb::arg("name").noconvert(), nb::arg("names"), nb::arg("kind").noconvert(),
        nb::arg("device").noconvert(), nb::arg("phase").noconvert().none(), nb::arg("lasting").noconvert(),
        nb::arg("own").noconvert(), nb::arg("fits").noconvert(), nb::arg("phases").noconvert());
}

}  // namespace profd
