// Where rows lead to: nearest_above (up the tree), next_on_thread, match_ids (by an id); and recode, fill_nulls (Arrow's
// codes and marks to ours).
#include "lookup.h"

#include <bit>
#include <cstring>

#include "arrays.h"
#include "climb.h"
#include "probing.h"

namespace profd {
namespace {

Out<std::int64_t> nearest_above(In<std::int64_t> parent, In<std::uint8_t> wanted, In<std::int64_t> rows) {
  const std::size_t n = parent.shape(0);
  require_aligned(parent, "parent");
  require_column(wanted, n, "wanted");
  require_aligned(rows, "rows");
  Buffer<std::int64_t> found(rows.shape(0));
  {
    nb::gil_scoped_release release;
    Climb climb(parent.data(), wanted.data(), n);
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
      const std::int64_t row = rows.data()[i];
      require(row >= 0 && static_cast<std::size_t>(row) < n, "a row is out of range");
      found[i] = climb.from(row);
    }
  }
  return found.array();
}

Out<std::int64_t> next_on_thread(In<std::int32_t> thread, In<std::uint8_t> among, In<std::int64_t> rows,
                                 std::int64_t threads_max) {
  const std::size_t n = thread.shape(0), asked = rows.shape(0);
  require_aligned(thread, "thread");
  require_column(among, n, "among");
  require_aligned(rows, "rows");
  Buffer<std::int64_t> found(asked);
  {
    nb::gil_scoped_release release;
    std::int64_t highest = kNoRow;
    for (std::size_t i = 0; i < n; ++i) highest = std::max<std::int64_t>(highest, thread.data()[i]);
    require(highest < threads_max, "a thread number is beyond the limit of tracks");
    for (std::size_t i = 0; i < asked; ++i) {
      require(rows.data()[i] >= 0 && rows.data()[i] < static_cast<std::int64_t>(n), "a row is out of range");
      require(!i || rows.data()[i - 1] <= rows.data()[i], "rows do not ascend");
    }
    // Rows without a thread (all negative numbers) are those of one more.
    std::vector<std::int64_t> next(static_cast<std::size_t>(highest) + 2, kNoRow);
    const auto next_of = [&](std::size_t row) -> std::int64_t& {
      return next[static_cast<std::size_t>(std::max<std::int64_t>(thread.data()[row], kNoRow) + 1)];
    };
    std::size_t left = asked;
    for (std::size_t row = n; row-- > 0 && left;) {
      for (; left && rows.data()[left - 1] == static_cast<std::int64_t>(row); --left) found[left - 1] = next_of(row);
      if (among.data()[row]) next_of(row) = static_cast<std::int64_t>(row);
    }
  }
  return found.array();
}

// Which row has an id; none yet in a free one.
struct Owner {
  static constexpr std::int64_t kNobody = -2;

  std::int64_t id = 0;
  std::int64_t row = kNobody;

  bool is_free() const { return row == kNobody; }
  bool same_key(const Owner& other) const { return id == other.id; }
  std::uint64_t hash() const { return spread(static_cast<std::uint64_t>(id)); }
};

// Ids that come in order need an array only; others are hashed.
Out<std::int64_t> match_ids(In<std::int64_t> ids, In<std::uint8_t> among, In<std::int64_t> wanted) {
  require_aligned(ids, "ids");
  require_aligned(wanted, "wanted");
  const std::size_t n = ids.shape(0), asked = wanted.shape(0);
  require_column(among, n, "among");
  require(n < std::size_t{1} << 31, "there are too many ids");
  Buffer<std::int64_t> found(asked);
  {
    nb::gil_scoped_release release;
    const std::int64_t* const id = ids.data();
    const auto counts = [&](std::size_t i) { return among.data()[i] && id[i] > 0; };
    std::int64_t low = kForever, high = 0;
    std::size_t owners = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (!counts(i)) continue;
      ++owners;
      low = std::min(low, id[i]);
      high = std::max(high, id[i]);
    }
    const auto beyond_low = [low](std::int64_t value) {
      return static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(low);
    };
    if (!owners) {
      std::fill_n(found.data(), asked, kNoRow);
    } else if (beyond_low(high) < 4 * static_cast<std::uint64_t>(owners) + 1024) {
      constexpr std::int32_t kFree = -1, kSeveral = -2;
      std::vector<std::int32_t> owner(beyond_low(high) + 1, kFree);
      for (std::size_t i = 0; i < n; ++i) {
        if (!counts(i)) continue;
        std::int32_t& place = owner[beyond_low(id[i])];
        place = place == kFree ? static_cast<std::int32_t>(i) : kSeveral;
      }
      for (std::size_t i = 0; i < asked; ++i) {
        const std::uint64_t at = beyond_low(wanted.data()[i]);  // below the lowest it wraps to what is beyond the highest
        found[i] = at < owner.size() ? std::max<std::int64_t>(owner[at], kNoRow) : kNoRow;
      }
    } else {
      Probing<Owner> table(std::bit_ceil(owners * 2 + 2));
      for (std::size_t i = 0; i < n; ++i) {
        if (!counts(i)) continue;
        Owner& owner = table.of({id[i]});
        owner = {id[i], owner.is_free() ? static_cast<std::int64_t>(i) : kNoRow};
      }
      for (std::size_t i = 0; i < asked; ++i) found[i] = std::max(table.of({wanted.data()[i]}).row, kNoRow);
    }
  }
  return found.array();
}

// Branches would cost more than the comparison: codes beyond the table stand behind nulls, or in damaged files.
void recode(In<std::int32_t> codes, In<std::int32_t> table, InOut<std::int32_t> out) {
  const std::size_t n = codes.shape(0), entries = table.shape(0);
  require_aligned(codes, "codes");
  require_aligned(table, "table");
  require_column(In<std::int32_t>(out), n, "out");
  require(entries > 0, "table has no entries");
  nb::gil_scoped_release release;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t code = static_cast<std::uint32_t>(codes.data()[i]);
    out.data()[i] = table.data()[code < entries ? code : entries - 1];
  }
}

template <typename T>
void fill_nulls(InOut<T> values, In<std::uint8_t> valid, std::size_t offset, T absent) {
  const std::size_t n = values.shape(0);
  require(reinterpret_cast<std::uintptr_t>(values.data()) % alignof(T) == 0, "values is not aligned in memory: copy it first");
  require(offset <= (std::size_t{1} << 48) && valid.shape(0) >= (offset + n + 7) / 8, "there are fewer marks than values");
  nb::gil_scoped_release release;
  T* const out = values.data();
  const std::uint8_t* const marks = valid.data();
  std::size_t i = 0;
  while (i < n) {
    const std::size_t bit = offset + i;
    if (bit % 8 == 0 && i + 64 <= n) {
      std::uint64_t word;
      std::memcpy(&word, marks + bit / 8, sizeof word);
      for (std::uint64_t missing = ~word; missing; missing &= missing - 1) {
        out[i + static_cast<std::size_t>(std::countr_zero(missing))] = absent;
      }
      i += 64;
      continue;
    }
    if (!(marks[bit / 8] >> (bit % 8) & 1)) out[i] = absent;
    ++i;
  }
}

}  // namespace

void bind_lookup(nb::module_& m) {
  m.def("nearest_above", &nearest_above, nb::arg("parent").noconvert(), nb::arg("wanted").noconvert(),
        nb::arg("rows").noconvert());
  m.def("next_on_thread", &next_on_thread, nb::arg("thread").noconvert(), nb::arg("among").noconvert(),
        nb::arg("rows").noconvert(), nb::kw_only(), nb::arg("threads_max") = 1 << 22);
  m.def("match_ids", &match_ids, nb::arg("ids").noconvert(), nb::arg("among").noconvert(),
        nb::arg("wanted").noconvert());
  m.def("recode", &recode, nb::arg("codes").noconvert(), nb::arg("table").noconvert(), nb::arg("out").noconvert());
  m.def("fill_nulls", &fill_nulls<std::int64_t>, nb::arg("values").noconvert(), nb::arg("valid").noconvert(),
        nb::arg("offset"), nb::arg("absent"));
  m.def("fill_nulls", &fill_nulls<std::int32_t>, nb::arg("values").noconvert(), nb::arg("valid").noconvert(),
        nb::arg("offset"), nb::arg("absent"));
}

}  // namespace profd
