// Torch's view of a trace from the tree that it is stored with (StoredView): calls around calls, wrappers merged, device
// time passed up, and all of it added up by name. daemon/profd/query/view.py has the rules, for trees nested anew.
#include "view.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <nanobind/stl/optional.h>

#include "arrays.h"
#include "climb.h"
#include "numbering.h"
#include "shown.h"

namespace profd {
namespace {

constexpr std::size_t kByCode = 256;  // entries of a table by kind, phase or role
constexpr int kPassedMost = 64;       // rows between a call and the one around it, which the view does not nest
constexpr std::uint64_t kDevices = 8;  // types of devices, and room for one more

// Bits of a kind: the stored tree nests it; it is a function's, which wraps none; torch keeps it apart from ops.
enum OfKind : std::uint8_t { kNestsInTree = 1, kFunction = 2, kApart = 4 };

// What the rows of a group are to a table, as bits; the rows of one group are alike.
enum Counts : std::uint8_t { kIsShown = 1, kIsWork = 2, kIsAlone = 4, kIsApart = 8, kCountsAll = 16 };

constexpr std::uint8_t counts_of(std::uint8_t role) {
  if (!(role & kShown)) return 0;
  if (role & kWork) return kIsShown | kIsWork;
  const bool overlaps = (role & (kCall | kNestsInCalls)) == kCall;  // freely: it has no time of its own
  return overlaps ? kIsShown : kIsShown | kIsAlone;
}

constexpr auto kCounts = [] {
  std::array<std::uint8_t, kByCode> table{};
  for (std::size_t role = 0; role < kByCode; ++role) table[role] = counts_of(static_cast<std::uint8_t>(role));
  return table;
}();

// Columns of a whole trace as they are stored, and what they are looked up in. `phase` and `thread` may be null.
struct StoredRows {
  std::size_t n, names;
  const std::uint8_t *role, *kind, *device_type;
  const std::int32_t* name;
  const std::int64_t *parent, *lasting;
  const std::uint8_t* phase;
  const std::int32_t* thread;
  const std::uint8_t *of_kind, *overlaps;  // overlaps: phases that the stored tree does not nest

  static constexpr std::int32_t kNone = -1, kUntold = -2;

  std::uint8_t counts(std::size_t i) const {
    return kCounts[role[i]] | (of_kind[kind[i]] & kApart ? kIsApart : 0);
  }

  // Of what is grouped. Names are next to each other: what is used of a table of all keys is small then.
  std::uint64_t key_of(std::size_t i) const {
    require(name[i] >= -1 && name[i] < static_cast<std::int64_t>(names), "a name is out of range");
    const std::uint64_t device = std::min<std::uint64_t>(device_type[i], kDevices - 1);
    return (counts(i) * kDevices + device) * (names + 1) + static_cast<std::uint64_t>(name[i] + 1);
  }

  // The nearest row above that the view nests, too. kUntold: the stored tree does not tell.
  std::int32_t above_of(std::size_t i) const {
    if (!(role[i] & kNestsInCalls)) return kNone;
    if (!(of_kind[kind[i]] & kNestsInTree) || (phase && overlaps[phase[i]])) return kUntold;
    std::int64_t at = parent[i];
    for (int passed = 0; at >= 0; at = parent[at]) {
      if (at >= static_cast<std::int64_t>(n) || ++passed > kPassedMost) return kUntold;
      // A backward op may be below one of the forward pass, on that one's thread.
      if (thread && thread[at] != thread[i]) return kNone;
      if (role[at] & kNestsInCalls) return static_cast<std::int32_t>(at);
    }
    return kNone;
  }

  bool has_name_of(std::size_t above, std::size_t i) const {
    return name[above] == name[i] && !((of_kind[kind[i]] | of_kind[kind[above]]) & kFunction);
  }
};

// Of a group of rows; ns.
struct ViewSums {
  std::int64_t first = 0;
  std::uint8_t counts = 0;
  std::int64_t rows = 0, total = 0;
  std::int64_t within = 0;  // of calls that lie directly within one of these
  std::int64_t out = 0;     // of rows that do not count in totals: wrapped ones, and functions within themselves
  std::int64_t device = 0, launched = 0;
};

// Keeps the columns, which numpy owns.
struct HeldColumns {
  In<std::uint8_t> role, kind, device_type;
  In<std::int32_t> name;
  In<std::int64_t> parent, lasting;
  std::optional<In<std::uint8_t>> phase;
  std::optional<In<std::int32_t>> thread;
  In<std::uint8_t> of_kind, overlaps;

  StoredRows rows(std::size_t names) const {
    const std::size_t n = role.shape(0);
    require(n < std::size_t{1} << 31 && names < std::size_t{1} << 31, "there are more rows than can be numbered");
    require_column(kind, n, "kind"), require_column(device_type, n, "device_type"), require_column(name, n, "name");
    require_column(parent, n, "parent"), require_column(lasting, n, "lasting");
    if (phase) require_column(*phase, n, "phase");
    if (thread) require_column(*thread, n, "thread");
    require_column(of_kind, kByCode, "of_kind"), require_column(overlaps, kByCode, "overlaps");
    return {n, names, role.data(), kind.data(), device_type.data(), name.data(), parent.data(), lasting.data(),
            phase ? phase->data() : nullptr, thread ? thread->data() : nullptr, of_kind.data(), overlaps.data()};
  }
};

class StoredView {
 public:
  StoredView(In<std::uint8_t> role, In<std::uint8_t> kind, In<std::uint8_t> device_type, In<std::int32_t> name,
             std::size_t names, In<std::int64_t> parent, In<std::int64_t> lasting,
             std::optional<In<std::uint8_t>> phase, std::optional<In<std::int32_t>> thread, In<std::uint8_t> of_kind,
             In<std::uint8_t> overlaps)
      : held_{role, kind, device_type, name, parent, lasting, phase, thread, of_kind, overlaps},
        rows_(held_.rows(names)), n_(rows_.n), group_(n_), above_(n_), work_(n_), children_(n_ + 1, 0) {
    nb::gil_scoped_release release;
    known_ = look() && (in_order_ || put_in_order()) && find_wrapped();
  }

  // Whether the stored tree tells the view's.
  bool known() const { return known_; }

  // Rows that cost the op which launched them.
  Out<std::int64_t> work() const {
    require(known_, "the tree is not known");
    return copy_of(work_.data(), works_);
  }

  // The row of the call around each row, -1 where there is none.
  Out<std::int64_t> above() const {
    require(known_, "the tree is not known");
    return copy_of(above_.data(), n_);
  }

  // The innermost op around each launch; -1 where there is none, or no such row.
  Out<std::int64_t> ops_around(In<std::int64_t> launch) const {
    require(known_, "the tree is not known");
    require_aligned(launch, "launch");
    Buffer<std::int64_t> found(launch.shape(0));
    {
      nb::gil_scoped_release release;
      Climb<std::int32_t> climb(above_.data(), rows_.role, n_, kOpOfWork);
      for (std::size_t k = 0; k < found.size(); ++k) {
        const std::int64_t row = launch.data()[k];
        found[k] = row < 0 || row >= static_cast<std::int64_t>(n_) ? kNoRow : climb.from(row);
      }
    }
    return found.array();
  }

  // `op`: that each row of work() belongs to, or -1. `outermost`: rows whose totals count; none: of all.
  // (group of each row, whether it counts, first row of each group, count, cpu, self cpu, device, self device); none
  // where a sum is beyond 64 bits. Once.
  nb::object sums(In<std::int64_t> op, std::optional<In<std::uint8_t>> outermost) {
    require(known_, "the tree is not known, or its times were added up");
    require_column(op, works_, "op");
    if (outermost) require_column(*outermost, n_, "outermost");
    known_ = false;
    Buffer<std::uint8_t> counted(n_);
    {
      nb::gil_scoped_release release;
      for (std::size_t i = 0; i < n_; ++i) counted[i] = rows_.role[i] & kShown;
      for (const std::int32_t row : wrapped_) counted[static_cast<std::size_t>(row)] = 0;
      const std::vector<std::int64_t> device = device_times(op.data());
      take_out(device, outermost ? outermost->data() : nullptr, counted.data());
    }
    if (beyond_) return nb::none();
    return nb::make_tuple(
        group_.array(), counted.array(), column_of([](const ViewSums& of) { return of.first; }),
        column_of([](const ViewSums& of) { return of.counts & kIsShown ? of.rows : 0; }),
        column_of([](const ViewSums& of) { return is_call(of) ? of.total - of.out : 0; }),
        column_of([](const ViewSums& of) { return of.counts & kIsAlone ? of.total - of.within : 0; }),
        column_of([](const ViewSums& of) { return of.counts & kIsWork ? of.total : is_call(of) ? of.device : 0; }),
        column_of([](const ViewSums& of) { return of.counts & kIsWork ? of.total : is_call(of) ? of.launched : 0; }));
  }

 private:
  static constexpr std::uint8_t kWraps = 3;

  static Out<std::int64_t> copy_of(const std::int32_t* rows, std::size_t count) {
    Buffer<std::int64_t> copy(count);
    std::copy_n(rows, count, copy.data());
    return copy.array();
  }

  template <typename Value>
  Out<std::int64_t> column_of(Value value) const {
    Buffer<std::int64_t> column(sums_.size());
    for (std::size_t id = 0; id < sums_.size(); ++id) column[id] = value(sums_[id]);
    return column.array();
  }

  static bool is_call(const ViewSums& of) { return (of.counts & (kIsShown | kIsWork)) == kIsShown; }

  ViewSums& sums_of(std::size_t row) { return sums_[static_cast<std::size_t>(group_[row])]; }

  // What has no row above it has the last place, which nobody reads: one branch less for each row.
  static std::size_t place_of(std::int32_t above, std::size_t n) { return above < 0 ? n : static_cast<std::size_t>(above); }

  // A pass over the rows: their groups, what is around them, and sums that need no more. False: the stored tree does
  // not tell. What is used in the loop stands in locals, since bytes may be anything's to the compiler.
  bool look() {
    const StoredRows rows = rows_;
    std::uint8_t* const children = children_.data();
    std::int32_t *const group = group_.data(), *const above = above_.data(), *const work = work_.data();
    std::size_t works = 0;
    std::int64_t signs = 0;
    bool beyond = false;
    std::vector<ViewSums> sums;
    std::size_t groups = 0;
    std::vector<std::size_t> before;  // rows that stand before the one around them
    Numbering numbers(key_space({kCountsAll, kDevices, rows.names + 1}));
    for (std::size_t i = 0; i < rows.n; ++i) {
      const auto number = static_cast<std::size_t>(numbers.of(rows.key_of(i), static_cast<std::int32_t>(groups)));
      if (number == groups) {
        ++groups;
        if (rows.device_type[i] >= kDevices - 1) return false;
        sums.push_back({.first = static_cast<std::int64_t>(i), .counts = rows.counts(i)});
      }
      const std::int64_t lasting = rows.lasting[i];
      signs |= lasting;
      sums[number].rows += 1;
      beyond |= __builtin_add_overflow(sums[number].total, lasting, &sums[number].total);
      const std::int32_t around = rows.above_of(i);
      if (around == StoredRows::kUntold) return false;
      group[i] = static_cast<std::int32_t>(number), above[i] = around;
      const std::size_t place = place_of(around, rows.n);
      children[place] += children[place] < 2;
      if (around >= 0) {
        if (place < i) [[likely]] {
          std::int64_t& within = sums[static_cast<std::size_t>(group[place])].within;
          beyond |= __builtin_add_overflow(within, lasting, &within);
        } else {
          before.push_back(i);
        }
        if (rows.has_name_of(place, i)) namesakes_.push_back(static_cast<std::int32_t>(i));
      }
      work[works] = static_cast<std::int32_t>(i);
      works += (rows.role[i] & kCosts) != 0;
    }
    for (const std::size_t i : before) {
      std::int64_t& within = sums[static_cast<std::size_t>(group[above[i]])].within;
      beyond |= __builtin_add_overflow(within, rows.lasting[i], &within);
    }
    works_ = works, in_order_ = before.empty(), sums_ = std::move(sums);
    return signs >= 0 && !beyond;
  }

  // Equal starts put a row before the one around it: rows from those on that have none below them. On a circle nothing
  // is known.
  bool put_in_order() {
    std::vector<std::int32_t> waiting_for(n_ + 1, 0);
    for (std::size_t i = 0; i < n_; ++i) ++waiting_for[place_of(above_[i], n_)];
    order_.reserve(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      if (!waiting_for[i]) order_.push_back(static_cast<std::int32_t>(i));
    }
    for (std::size_t next = 0; next < order_.size(); ++next) {
      const std::size_t above = place_of(above_[static_cast<std::size_t>(order_[next])], n_);
      if (--waiting_for[above] == 0 && above < n_) order_.push_back(static_cast<std::int32_t>(above));
    }
    return order_.size() == n_;
  }

  // Only children of calls of their name. False: they count in other groups, and look() added up what is not theirs.
  bool find_wrapped() {
    for (const std::int32_t row : namesakes_) {
      const auto i = static_cast<std::size_t>(row), above = static_cast<std::size_t>(above_[i]);
      if (children_[above] != 1) continue;
      if (group_[above] != group_[i]) return false;
      wrapped_.push_back(row);
      children_[above] = kWraps;
    }
    return true;
  }

  // Of each row what it and all below it launched; empty where there is no work.
  std::vector<std::int64_t> device_times(const std::int64_t* op) {
    std::int64_t most = 0;  // no row has more
    for (std::size_t k = 0; k < works_; ++k) {
      beyond_ |= __builtin_add_overflow(most, rows_.lasting[work_[k]], &most);
    }
    if (!works_ || beyond_) return {};
    std::vector<std::int64_t> device(n_ + 1, 0);
    for (std::size_t k = 0; k < works_; ++k) {
      require(op[k] < static_cast<std::int64_t>(n_), "an op is out of range");
      if (op[k] < 0) continue;
      const auto row = static_cast<std::size_t>(op[k]);
      // As in torch, what a wrapper launched itself is lost: it has what the call that it wraps launched.
      if (children_[row] == kWraps) continue;
      device[row] += rows_.lasting[work_[k]];
      sums_of(row).launched += rows_.lasting[work_[k]];
    }
    bool beyond = false;
    each_from_leaves([&beyond, own = device.data(), above = above_.data(), group = group_.data(), n = n_,
                      sums = sums_.data()](std::size_t i) {
      own[place_of(above[i], n)] += own[i];
      std::int64_t& sum = sums[group[i]].device;
      beyond |= __builtin_add_overflow(sum, own[i], &sum);
    });
    beyond_ |= beyond;
    return device;
  }

  // Rows that do not count, or are within others of their group. Of self times nothing is taken out: what is within a
  // wrapped call was taken from it, and it from its wrapper.
  void take_out(const std::vector<std::int64_t>& device, const std::uint8_t* totals, const std::uint8_t* counted) {
    const auto out = [&](std::size_t i) {
      ViewSums& of = sums_of(i);
      of.out += rows_.lasting[i];
      if (!device.empty()) of.device -= device[i];
    };
    for (const std::int32_t row : wrapped_) {
      out(static_cast<std::size_t>(row));
      sums_of(static_cast<std::size_t>(row)).rows -= 1;
    }
    for (std::size_t i = 0; totals && i < n_; ++i) {
      if (counted[i] && !totals[i]) out(i);
    }
  }

  // Calls visit(row) from the last row on; from the leaves on where that is another order.
  template <typename Visit>
  void each_from_leaves(Visit visit) const {
    if (order_.empty()) {
      for (std::size_t i = n_; i-- > 0;) visit(i);
    }
    for (const std::int32_t row : order_) visit(static_cast<std::size_t>(row));
  }

  HeldColumns held_;
  StoredRows rows_;
  std::size_t n_;
  Buffer<std::int32_t> group_, above_, work_;  // of each row; of works_ rows
  std::vector<std::uint8_t> children_;         // of each row, at most two, or kWraps: more make no difference
  std::vector<std::int32_t> namesakes_;        // rows that have the name of the call around them
  std::vector<std::int32_t> wrapped_;          // and of these, only children
  std::vector<ViewSums> sums_;
  std::vector<std::int32_t> order_;            // where row order is not that of the tree
  std::size_t works_ = 0;
  bool known_ = false, in_order_ = true, beyond_ = false;
};

}  // namespace

void bind_view(nb::module_& m) {
  nb::class_<StoredView>(m, "StoredView")
      .def(nb::init<In<std::uint8_t>, In<std::uint8_t>, In<std::uint8_t>, In<std::int32_t>, std::size_t,
                    In<std::int64_t>, In<std::int64_t>, std::optional<In<std::uint8_t>>,
                    std::optional<In<std::int32_t>>, In<std::uint8_t>, In<std::uint8_t>>(),
           nb::kw_only(), nb::arg("role").noconvert(), nb::arg("kind").noconvert(), nb::arg("device_type").noconvert(),
           nb::arg("name").noconvert(), nb::arg("names"), nb::arg("parent").noconvert(),
           nb::arg("lasting").noconvert(), nb::arg("phase").noconvert().none(), nb::arg("thread").noconvert().none(),
           nb::arg("of_kind").noconvert(), nb::arg("overlaps").noconvert())
      .def_prop_ro("known", &StoredView::known)
      .def("work", &StoredView::work)
      .def("above", &StoredView::above)
      .def("ops_around", &StoredView::ops_around, nb::arg("launch").noconvert())
      .def("sums", &StoredView::sums, nb::arg("op").noconvert(), nb::arg("outermost").noconvert().none());
}

}  // namespace profd
