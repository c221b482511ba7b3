// Torch's view of a trace from the tree that it is stored with (StoredView): calls around calls, wrappers merged, device
// time passed up, and all of it added up by name. daemon/profd/query/view.py has the rules, for trees nested anew.
#include "view.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <nanobind/stl/optional.h>

#include "arrays.h"
#include "climb.h"
#include "numbering.h"
#include "wrappers.h"

namespace profd {
namespace {

constexpr std::size_t kByCode = 256;  // entries of a table by kind, phase or device type
constexpr int kPassedMost = 64;       // rows between a call and the one around it, which the view does not nest

// Columns of a whole trace as they are stored, and what they are looked up in. `phase` and `thread` may be null.
struct StoredRows {
  std::size_t n, names;
  const std::uint8_t *role, *kind, *device_type;
  const std::int32_t* name;
  const std::int64_t *parent, *lasting;
  const std::uint8_t* phase;
  const std::int32_t* thread;
  // By kind: whether the stored tree nests it, whether it is a function's (none wraps another), and whether torch keeps
  // it apart from ops of its name. By phase: whether the stored tree leaves it out.
  const std::uint8_t *nests, *functions, *apart, *overlaps;

  static constexpr std::int32_t kNone = -1, kUntold = -2;

  // Of what is grouped. Names are next to each other: a table of all keys then stays in the L1 cache.
  std::uint64_t key_of(std::size_t i) const {
    require(name[i] >= -1 && name[i] < static_cast<std::int64_t>(names), "a name is out of range");
    const std::uint64_t place = (apart[kind[i]] ? kByCode : 0) + device_type[i];
    return place * (names + 1) + static_cast<std::uint64_t>(name[i] + 1);
  }

  // The nearest row above that the view nests, too. kUntold: the stored tree does not tell.
  std::int32_t above_of(std::size_t i) const {
    if (lasting[i] < 0) return kUntold;
    if (!(role[i] & kNestsInCalls)) return kNone;
    if (!nests[kind[i]] || (phase && overlaps[phase[i]])) return kUntold;
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
    return name[above] == name[i] && !functions[kind[i]] && !functions[kind[above]];
  }
};

// Of a group of calls.
struct ViewSums {
  std::int64_t count = 0, cpu = 0, self = 0, device = 0, launched = 0;
};

// Keeps the columns, which numpy owns.
struct HeldColumns {
  In<std::uint8_t> role, kind, device_type;
  In<std::int32_t> name;
  In<std::int64_t> parent, lasting;
  std::optional<In<std::uint8_t>> phase;
  std::optional<In<std::int32_t>> thread;
  In<std::uint8_t> nests, functions, apart, overlaps;

  StoredRows rows(std::size_t names) const {
    const std::size_t n = role.shape(0);
    require(n < std::size_t{1} << 31 && names < std::size_t{1} << 31, "there are more rows than can be numbered");
    require_column(kind, n, "kind"), require_column(device_type, n, "device_type"), require_column(name, n, "name");
    require_column(parent, n, "parent"), require_column(lasting, n, "lasting");
    if (phase) require_column(*phase, n, "phase");
    if (thread) require_column(*thread, n, "thread");
    require_column(nests, kByCode, "nests"), require_column(functions, kByCode, "functions");
    require_column(apart, kByCode, "apart"), require_column(overlaps, kByCode, "overlaps");
    return {n, names, role.data(), kind.data(), device_type.data(), name.data(), parent.data(), lasting.data(),
            phase ? phase->data() : nullptr, thread ? thread->data() : nullptr, nests.data(), functions.data(),
            apart.data(), overlaps.data()};
  }
};

class StoredView {
 public:
  StoredView(In<std::uint8_t> role, In<std::uint8_t> kind, In<std::uint8_t> device_type, In<std::int32_t> name,
             std::size_t names, In<std::int64_t> parent, In<std::int64_t> lasting,
             std::optional<In<std::uint8_t>> phase, std::optional<In<std::int32_t>> thread, In<std::uint8_t> nests,
             In<std::uint8_t> functions, In<std::uint8_t> apart, In<std::uint8_t> overlaps)
      : held_{role, kind, device_type, name, parent, lasting, phase, thread, nests, functions, apart, overlaps},
        rows_(held_.rows(names)), n_(rows_.n), group_(n_), above_(n_), work_(n_), own_(n_ + 1) {
    nb::gil_scoped_release release;
    namesakes_.children.assign(n_ + 1, 0);
    look();
    if (known_ && !in_order_) put_in_order();
  }

  // Whether the stored tree tells the view's.
  bool known() const { return known_; }
  bool has_functions() const { return has_functions_; }

  // Rows that cost the op which launched them.
  Out<std::int64_t> work() const { return copy_of(work_.data(), works_); }

  // The row of the call around each row, -1 where there is none.
  Out<std::int64_t> above() const { return copy_of(above_.data(), n_); }

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
  // (group of each row, whether it counts, first row of each group, count, cpu, self cpu, device, self device). Once.
  nb::tuple sums(In<std::int64_t> op, std::optional<In<std::uint8_t>> outermost) {
    require(known_ && !summed_, "the tree is not known, or its times were added up");
    require_column(op, works_, "op");
    if (outermost) require_column(*outermost, n_, "outermost");
    summed_ = true;
    std::vector<ViewSums> sums(first_.size());
    Buffer<std::uint8_t> counted(n_);
    {
      nb::gil_scoped_release release;
      Buffer<std::int64_t> launched(n_ + 1), device(n_ + 1);
      attribute(op.data(), launched.data());
      std::vector<std::uint8_t> dropped(n_, 0);
      merge_wrappers(namesakes_, above_.data(), {rows_.lasting, own_.data(), launched.data()}, dropped.data());
      std::copy_n(launched.data(), n_ + 1, device.data());
      if (outermost) {
        add<true>(launched.data(), device.data(), dropped.data(), outermost->data(), counted.data(), sums.data());
      } else {
        add<false>(launched.data(), device.data(), dropped.data(), nullptr, counted.data(), sums.data());
      }
    }
    return nb::make_tuple(group_.array(), counted.array(), to_array(first_), column_of(sums, &ViewSums::count),
                          column_of(sums, &ViewSums::cpu), column_of(sums, &ViewSums::self),
                          column_of(sums, &ViewSums::device), column_of(sums, &ViewSums::launched));
  }

 private:
  static Out<std::int64_t> copy_of(const std::int32_t* rows, std::size_t count) {
    Buffer<std::int64_t> copy(count);
    std::copy_n(rows, count, copy.data());
    return copy.array();
  }

  static Out<std::int64_t> column_of(const std::vector<ViewSums>& sums, std::int64_t ViewSums::* member) {
    Buffer<std::int64_t> column(sums.size());
    for (std::size_t id = 0; id < sums.size(); ++id) column[id] = sums[id].*member;
    return column.array();
  }

  // What has no row above it has the last place, which nobody reads: one branch less for each row.
  static std::size_t place_of(std::int32_t above, std::size_t n) { return above < 0 ? n : static_cast<std::size_t>(above); }

  // A pass over the rows: their groups, what is around them, and times of their own. What is written in the loop stands
  // in locals, since bytes may be anything's to the compiler.
  void look() {
    const StoredRows rows = rows_;
    std::int64_t* const own = own_.data();
    std::uint8_t* const children = namesakes_.children.data();
    std::int32_t *const group = group_.data(), *const above = above_.data(), *const work = work_.data();
    std::copy_n(rows.lasting, n_, own);
    own[n_] = 0;
    std::size_t works = 0;
    bool functions = false, in_order = true;
    Numbering numbers(key_space({2, kByCode, rows.names + 1}));
    for (std::size_t i = 0; i < rows.n; ++i) {
      const std::int32_t number = numbers.of(rows.key_of(i), static_cast<std::int32_t>(first_.size()));
      if (static_cast<std::size_t>(number) == first_.size()) first_.push_back(static_cast<std::int64_t>(i));
      const std::int32_t around = rows.above_of(i);
      if (around == StoredRows::kUntold) return;
      const std::size_t place = place_of(around, rows.n);
      group[i] = number, above[i] = around;
      own[place] = minus(own[place], rows.lasting[i]);
      children[place] += children[place] < 2;
      if (around >= 0 && rows.has_name_of(place, i)) namesakes_.rows.push_back(static_cast<std::int32_t>(i));
      in_order &= around < static_cast<std::int32_t>(i);
      functions |= rows.functions[rows.kind[i]] != 0;
      work[works] = static_cast<std::int32_t>(i);
      works += (rows.role[i] & kCosts) != 0;
    }
    works_ = works, has_functions_ = functions, in_order_ = in_order, known_ = true;
  }

  // Equal starts put a row before the one around it: rows from those on that have none below them. On a circle nothing
  // is known.
  void put_in_order() {
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
    known_ = order_.size() == n_;
  }

  void attribute(const std::int64_t* op, std::int64_t* launched) const {
    std::fill_n(launched, n_ + 1, 0);
    for (std::size_t k = 0; k < works_; ++k) {
      require(op[k] < static_cast<std::int64_t>(n_), "an op is out of range");
      const std::size_t place = op[k] < 0 ? n_ : static_cast<std::size_t>(op[k]);
      launched[place] = plus(launched[place], rows_.lasting[work_[k]]);
    }
    launched[n_] = 0;
  }

  // Calls visit(row) from the last row on; from the leaves on where that is another order.
  template <typename Visit>
  void each_from_leaves(Visit visit) const {
    if (order_.empty()) {
      for (std::size_t i = n_; i-- > 0;) visit(i);
    }
    for (const std::int32_t row : order_) visit(static_cast<std::size_t>(row));
  }

  // Adds every row to the sums of its group. Masks, because branches are guessed wrongly.
  template <bool kTotals>
  void add(const std::int64_t* launched, std::int64_t* device, const std::uint8_t* dropped, const std::uint8_t* totals,
           std::uint8_t* counted, ViewSums* sums) const {
    const auto all_if = [](bool holds) { return -static_cast<std::int64_t>(holds); };
    const std::uint8_t* const role = rows_.role;
    const std::int64_t *const lasting = rows_.lasting, *const own = own_.data();
    const std::int32_t *const above = above_.data(), *const group = group_.data();
    const std::size_t n = n_;
    each_from_leaves([=](std::size_t i) {
      // All that is below the row has been added to its device time.
      std::int64_t& around = device[place_of(above[i], n)];
      around = plus(around, device[i]);
      const std::uint8_t counts = (role[i] & kShown) & static_cast<std::uint8_t>(!dropped[i]);
      const std::int64_t shown = all_if(counts), work = shown & all_if(role[i] & kWork), call = shown & ~work;
      const std::int64_t alone = call & all_if((role[i] & (kCall | kNestsInCalls)) != kCall);  // others overlap freely
      const std::int64_t total = kTotals ? all_if(totals[i]) : -1;
      ViewSums& of = sums[group[i]];
      counted[i] = counts;
      of.count += counts;
      of.cpu = plus(of.cpu, lasting[i] & call & total);
      of.self = plus(of.self, own[i] & alone);
      of.device = plus(of.device, ((lasting[i] & work) | (device[i] & call)) & total);
      of.launched = plus(of.launched, (lasting[i] & work) | (launched[i] & call));
    });
  }

  HeldColumns held_;
  StoredRows rows_;
  std::size_t n_;
  Buffer<std::int32_t> group_, above_, work_;  // of each row; of works_ rows
  Buffer<std::int64_t> own_;                   // times without what is directly below
  Namesakes namesakes_;
  std::vector<std::int64_t> first_;            // row of each group
  std::vector<std::int32_t> order_;            // where row order is not that of the tree
  std::size_t works_ = 0;
  bool known_ = false, has_functions_ = false, in_order_ = true, summed_ = false;
};

}  // namespace

void bind_view(nb::module_& m) {
  nb::class_<StoredView>(m, "StoredView")
      .def(nb::init<In<std::uint8_t>, In<std::uint8_t>, In<std::uint8_t>, In<std::int32_t>, std::size_t,
                    In<std::int64_t>, In<std::int64_t>, std::optional<In<std::uint8_t>>,
                    std::optional<In<std::int32_t>>, In<std::uint8_t>, In<std::uint8_t>, In<std::uint8_t>,
                    In<std::uint8_t>>(),
           nb::kw_only(), nb::arg("role").noconvert(), nb::arg("kind").noconvert(), nb::arg("device_type").noconvert(),
           nb::arg("name").noconvert(), nb::arg("names"), nb::arg("parent").noconvert(),
           nb::arg("lasting").noconvert(), nb::arg("phase").noconvert().none(), nb::arg("thread").noconvert().none(),
           nb::arg("nests").noconvert(), nb::arg("functions").noconvert(), nb::arg("apart").noconvert(),
           nb::arg("overlaps").noconvert())
      .def_prop_ro("known", &StoredView::known)
      .def_prop_ro("has_functions", &StoredView::has_functions)
      .def("work", &StoredView::work)
      .def("above", &StoredView::above)
      .def("ops_around", &StoredView::ops_around, nb::arg("launch").noconvert())
      .def("sums", &StoredView::sums, nb::arg("op").noconvert(), nb::arg("outermost").noconvert().none());
}

}  // namespace profd
