// Where rows lead to: nearest_above (up the tree), match_ids (by an id), fill_nulls (Arrow's marks to sentinels).
#include "lookup.h"

#include <bit>
#include <cstring>

#include "arrays.h"

namespace profd {
namespace {

template <typename T>
using InOut = nb::ndarray<T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A row that was visited knows the answer for all that pass through it later, so every row is passed once.
Out<std::int64_t> nearest_above(In<std::int64_t> parent, In<std::uint8_t> wanted, In<std::int64_t> rows) {
  const std::size_t n = parent.shape(0);
  require_aligned(parent, "parent");
  require_column(wanted, n, "wanted");
  require_aligned(rows, "rows");
  Buffer<std::int64_t> found(rows.shape(0));
  {
    nb::gil_scoped_release release;
    constexpr std::int64_t kUnknown = -2, kOnTheWay = -3;
    std::vector<std::int64_t> known(n, kUnknown);
    std::vector<std::int64_t> path;
    for (std::size_t i = 0; i < n; ++i) {
      require(parent.data()[i] < static_cast<std::int64_t>(n), "a parent is beyond the last row");
    }
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
      std::int64_t row = rows.data()[i];
      require(row >= 0 && static_cast<std::size_t>(row) < n, "a row is out of range");
      path.clear();
      std::int64_t answer = kNoRow;
      for (;;) {
        if (known[row] == kOnTheWay) break;  // a circle: nothing is above
        if (known[row] != kUnknown) {
          answer = known[row];
          break;
        }
        path.push_back(row);
        known[row] = kOnTheWay;
        const std::int64_t above = parent.data()[row];
        if (above < 0) break;
        if (wanted.data()[above]) {
          answer = above;
          break;
        }
        row = above;
      }
      for (const std::int64_t passed : path) known[passed] = answer;
      found[i] = answer;
    }
  }
  return found.array();
}

// Open addressing over the distinct ids.
class Owners {
 public:
  explicit Owners(std::size_t n) : slots_(std::bit_ceil(n * 2 + 2)), mask_(slots_.size() - 1) {}

  // The entry of an id; `owner` is kFree in one that is new.
  struct Slot {
    std::int64_t id = 0;
    std::int64_t owner = kFree;
  };
  static constexpr std::int64_t kFree = -2;

  Slot& at(std::int64_t id) {
    std::uint64_t hash = static_cast<std::uint64_t>(id);
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
    std::size_t place = (hash ^ (hash >> 31)) & mask_;
    while (slots_[place].owner != kFree && slots_[place].id != id) place = (place + 1) & mask_;
    return slots_[place];
  }

 private:
  std::vector<Slot> slots_;
  std::size_t mask_;
};

// Ids that come in order need an array only; others are hashed.
Out<std::int64_t> match_ids(In<std::int64_t> ids, In<std::int64_t> wanted) {
  require_aligned(ids, "ids");
  require_aligned(wanted, "wanted");
  const std::size_t n = ids.shape(0), asked = wanted.shape(0);
  Buffer<std::int64_t> found(asked);
  {
    nb::gil_scoped_release release;
    std::int64_t low = kForever, high = kAbsent;
    for (std::size_t i = 0; i < n; ++i) {
      low = std::min(low, ids.data()[i]);
      high = std::max(high, ids.data()[i]);
    }
    const auto beyond_low = [low](std::int64_t id) { return static_cast<std::uint64_t>(id) - static_cast<std::uint64_t>(low); };
    const std::uint64_t span = n ? beyond_low(high) : 0;
    if (span < 4 * static_cast<std::uint64_t>(n) + 1024) {
      std::vector<std::int64_t> owner(n ? span + 1 : 0, Owners::kFree);
      for (std::size_t i = 0; i < n; ++i) {
        std::int64_t& place = owner[beyond_low(ids.data()[i])];
        place = place == Owners::kFree ? static_cast<std::int64_t>(i) : kNoRow;
      }
      for (std::size_t i = 0; i < asked; ++i) {
        const std::uint64_t at = beyond_low(wanted.data()[i]);  // below the lowest it wraps to what is beyond the highest
        found[i] = at < owner.size() ? std::max(owner[at], kNoRow) : kNoRow;
      }
    } else {
      Owners owners(n);
      for (std::size_t i = 0; i < n; ++i) {
        Owners::Slot& slot = owners.at(ids.data()[i]);
        slot = {ids.data()[i], slot.owner == Owners::kFree ? static_cast<std::int64_t>(i) : kNoRow};
      }
      for (std::size_t i = 0; i < asked; ++i) found[i] = std::max(owners.at(wanted.data()[i]).owner, kNoRow);
    }
  }
  return found.array();
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
  m.def("match_ids", &match_ids, nb::arg("ids").noconvert(), nb::arg("wanted").noconvert());
  m.def("fill_nulls", &fill_nulls<std::int64_t>, nb::arg("values").noconvert(), nb::arg("valid").noconvert(),
        nb::arg("offset"), nb::arg("absent"));
  m.def("fill_nulls", &fill_nulls<std::int32_t>, nb::arg("values").noconvert(), nb::arg("valid").noconvert(),
        nb::arg("offset"), nb::arg("absent"));
}

}  // namespace profd
