// Calls as a tree: which of them are outermost of their kind (outermost), and all calls of one path together (call_paths).
#include "paths.h"

#include <array>
#include <vector>

#include "arrays.h"
#include "probing.h"

namespace profd {
namespace {

// The tree of a column of parents, as lists of children. A walk needs no stack, however deep calls lie.
class CallTree {
 public:
  explicit CallTree(const In<std::int64_t>& parent)
      : parent_(parent.data()), n_(parent.shape(0)), child_(n_, kNone), sibling_(n_, kNone) {
    std::int32_t next_root = kNone;
    for (std::size_t i = n_; i-- > 0;) {
      const std::int64_t above = parent_[i];
      require(above < static_cast<std::int64_t>(n_), "a parent is beyond the last row");
      std::int32_t& first = above < 0 ? next_root : child_[static_cast<std::size_t>(above)];
      sibling_[i] = first;
      first = static_cast<std::int32_t>(i);
    }
    root_ = next_root;
  }

  // Calls enter(row) on the way down and leave(row) on the way up, siblings in row order. Rows on a circle of parents,
  // and those below one, are never reached.
  template <typename Enter, typename Leave>
  void walk(Enter enter, Leave leave) const {
    for (std::int32_t at = root_; at != kNone;) {
      enter(static_cast<std::size_t>(at));
      if (child_[at] != kNone) {
        at = child_[at];
        continue;
      }
      for (;;) {
        leave(static_cast<std::size_t>(at));
        if (sibling_[at] != kNone) {
          at = sibling_[at];
          break;
        }
        const std::int64_t above = parent_[at];
        if (above < 0) return;
        at = static_cast<std::int32_t>(above);
      }
    }
  }

 private:
  static constexpr std::int32_t kNone = -1;

  const std::int64_t* parent_;
  std::size_t n_;
  std::vector<std::int32_t> child_, sibling_;  // the first child; the next row with the same parent
  std::int32_t root_ = kNone;
};

void require_few(std::size_t rows) { require(rows < std::size_t{1} << 31, "there are more rows than can be numbered"); }

Out<std::uint8_t> outermost(In<std::int64_t> group, std::int64_t groups, In<std::uint8_t> among,
                            In<std::int64_t> parent) {
  const std::size_t n = parent.shape(0);
  require_aligned(parent, "parent");
  require_column(group, n, "group");
  require_column(among, n, "among");
  require_few(n);
  require(groups >= 0 && groups <= std::int64_t{1} << 31, "there are too many groups");
  Buffer<std::uint8_t> is(n);
  {
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
      is[i] = 1;
      require(!among.data()[i] || (group.data()[i] >= 0 && group.data()[i] < groups), "a group is out of range");
    }
    std::vector<std::int32_t> open(static_cast<std::size_t>(groups), 0);
    CallTree(parent).walk(
        [&](std::size_t row) {
          if (among.data()[row]) is[row] = open[static_cast<std::size_t>(group.data()[row])]++ == 0;
        },
        [&](std::size_t row) {
          if (among.data()[row]) --open[static_cast<std::size_t>(group.data()[row])];
        });
  }
  return is.array();
}

// Paths as nodes, numbered in order of first call. A path that repeats its end (f > f, or f > g > f > g) is the one
// without the repetition: recursion makes no path per level.
class Paths {
 public:
  explicit Paths(const std::uint8_t* folds) : folds_(folds), slots_(1 << 10) {}

  // The path of a call of `key` from the path `above`, kNoRow: from none. `row` is the first of a new path.
  std::int32_t of(std::int32_t above, std::int32_t key, std::size_t row) {
    const std::uint64_t edge = static_cast<std::uint64_t>(above + 1) << 32 | static_cast<std::uint32_t>(key);
    Slot& slot = slots_.of({edge, kNone});
    if (!slot.is_free()) return slot.path;
    std::int32_t path = repeated(above, key);
    if (path == kNone) {
      path = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({above, key});
      first.push_back(static_cast<std::int64_t>(row));
      this->above.push_back(above);
    }
    slot = {edge, path};
    slots_.make_room(++edges_);
    return path;
  }

  std::vector<std::int64_t> above, first;  // of each path

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr int kPeriodMax = 8;  // calls in a circle of recursion; what goes round in more keeps its levels

  struct Node {
    std::int32_t above, key;
  };

  struct Slot {
    std::uint64_t edge = 0;
    std::int32_t path = kNone;

    bool is_free() const { return path == kNone; }
    bool same_key(const Slot& other) const { return edge == other.edge; }
    std::uint64_t hash() const { return spread(edge); }
  };

  // Where the last n calls are those of the n before: the path that ended with these.
  std::int32_t repeated(std::int32_t above, std::int32_t key) const {
    if (!folds_[key]) return kNone;
    std::array<std::int32_t, 2 * kPeriodMax> keys{key}, paths{kNone};
    int known = 1;
    for (std::int32_t at = above; at >= 0 && known < 2 * kPeriodMax && folds_[nodes_[at].key]; at = nodes_[at].above) {
      keys[known] = nodes_[at].key;
      paths[known++] = at;
    }
    // f > f is one call within another; of longer circles one round is shown, and where it begins again.
    for (int period = 1; 2 * period <= known; ++period) {
      int same = 0;
      while (same < period && keys[same] == keys[same + period]) ++same;
      if (same == period) return paths[period];
    }
    return kNone;
  }

  const std::uint8_t* folds_;
  Probing<Slot> slots_;
  std::vector<Node> nodes_;
  std::size_t edges_ = 0;
};

nb::tuple call_paths(In<std::int32_t> key, In<std::uint8_t> folds, In<std::int64_t> parent) {
  const std::size_t n = parent.shape(0);
  require_aligned(parent, "parent");
  require_column(key, n, "key");
  require_aligned(folds, "folds");
  require_few(n);
  Buffer<std::int64_t> path(n);
  Buffer<std::uint8_t> outer(n);
  Paths paths(folds.data());
  {
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
      path[i] = kNoRow;
      require(key.data()[i] >= 0 && static_cast<std::size_t>(key.data()[i]) < folds.shape(0), "a key is out of range");
    }
    std::vector<std::int32_t> open;
    const auto place = [&](std::size_t row, std::int64_t above) {
      const auto found = static_cast<std::size_t>(paths.of(static_cast<std::int32_t>(above), key.data()[row], row));
      path[row] = static_cast<std::int64_t>(found);
      if (found == open.size()) open.push_back(0);
      outer[row] = open[found] == 0;
      return found;
    };
    CallTree(parent).walk(
        [&](std::size_t row) {
          const std::int64_t above = parent.data()[row];
          ++open[place(row, above < 0 ? kNoRow : path[static_cast<std::size_t>(above)])];
        },
        [&](std::size_t row) { --open[static_cast<std::size_t>(path[row])]; });
    // On a circle of parents, or below one, nothing is known of what is above.
    for (std::size_t i = 0; i < n; ++i) {
      if (path[i] == kNoRow) place(i, kNoRow);
    }
  }
  return nb::make_tuple(path.array(), to_array(paths.above), to_array(paths.first), outer.array());
}

}  // namespace

void bind_paths(nb::module_& m) {
  m.def("outermost", &outermost, nb::arg("group").noconvert(), nb::arg("groups"), nb::arg("among").noconvert(),
        nb::arg("parent").noconvert());
  m.def("call_paths", &call_paths, nb::arg("key").noconvert(), nb::arg("folds").noconvert(),
        nb::arg("parent").noconvert());
}

}  // namespace profd
