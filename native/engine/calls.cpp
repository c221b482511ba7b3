// Times of the calls that torch's tables show: durations, and call_times (wrappers merged, device time passed up).
#include "calls.h"

#include <algorithm>
#include <vector>

#include "arrays.h"
#include "shown.h"
#include "subtree.h"

namespace profd {
namespace {

Out<std::int64_t> durations(In<std::int64_t> start, In<std::int64_t> end) {
  const std::size_t n = start.shape(0);
  require_aligned(start, "start");
  require_column(end, n, "end");
  Buffer<std::int64_t> lasting(n);
  {
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) lasting[i] = minus(std::max(end.data()[i], start.data()[i]), start.data()[i]);
  }
  return lasting.array();
}

struct Calls {
  std::size_t n;
  const std::uint8_t* role;
  const std::int32_t* name;
  const std::int64_t* parent;
  std::int64_t* lasting;
  std::int64_t* self;
  std::int64_t* launched;
};

// What one look at the parents tells.
struct Shape {
  std::vector<std::uint8_t> children;  // of each row, at most two: more make no difference
  bool merges = false;                 // some row has its parent's name
  bool in_order = true;                // parents before their children
};

Shape shape_of(const Calls& calls) {
  Shape shape{std::vector<std::uint8_t>(calls.n, 0)};
  for (std::size_t i = 0; i < calls.n; ++i) {
    const std::int64_t above = calls.parent[i];
    if (above < 0) continue;
    require(above < static_cast<std::int64_t>(calls.n), "a parent is beyond the last row");
    shape.children[above] += shape.children[above] < 2;
    shape.merges |= calls.name[above] == calls.name[i];
    shape.in_order &= above < static_cast<std::int64_t>(i);
  }
  return shape;
}

// Marks every only child that has its parent's name. The top of a chain of these takes over what is below the
// innermost and, as in torch, the kernels that one launched: what it launched itself is not counted.
void merge_wrappers(Calls& calls, const Shape& shape, std::uint8_t* dropped) {
  if (!shape.merges) return;
  std::vector<std::uint8_t> wraps(calls.n, 0);
  for (std::size_t i = 0; i < calls.n; ++i) {
    const std::int64_t above = calls.parent[i];
    if (above < 0 || calls.name[above] != calls.name[i] || shape.children[above] != 1) continue;
    dropped[i] = wraps[above] = 1;
  }
  for (std::size_t i = 0; i < calls.n; ++i) {
    if (!dropped[i] || wraps[i]) continue;
    // An only child has no sibling to come from, so every chain is climbed once, and none goes round.
    std::int64_t top = calls.parent[i];
    while (dropped[top]) top = calls.parent[top];
    calls.self[top] = minus(calls.lasting[top], minus(calls.lasting[i], calls.self[i]));
    calls.launched[top] = calls.launched[i];
  }
  for (std::size_t i = 0; i < calls.n; ++i) {
    if (dropped[i]) calls.launched[i] = 0;
  }
}

// Leaves in a row the times that it counts with; those of a device's work are device times.
void settle(Calls& calls, std::size_t i, bool dropped, std::int64_t& device, std::uint8_t& counted) {
  const std::uint8_t role = calls.role[i];
  counted = ((role & kShown) && !dropped) || (role & kMark);
  if (!counted) {
    calls.lasting[i] = calls.self[i] = calls.launched[i] = device = 0;
  } else if (role & kWork) {
    device = calls.launched[i] = calls.lasting[i];
    calls.lasting[i] = calls.self[i] = 0;
  } else if ((role & kMark) || (role & (kCall | kNestsInCalls)) == kCall) {
    calls.self[i] = 0;  // spans that overlap freely have none
  }
}

nb::tuple call_times(In<std::uint8_t> role, In<std::int32_t> name, In<std::int64_t> parent,
                     InOut<std::int64_t> lasting, InOut<std::int64_t> self, InOut<std::int64_t> launched) {
  const std::size_t n = role.shape(0);
  require_column(name, n, "name");
  require_column(parent, n, "parent");
  for (const auto& [column, what] : {std::pair{&lasting, "lasting"}, {&self, "own"}, {&launched, "launched"}}) {
    require_column(In<std::int64_t>(*column), n, what);
  }
  Buffer<std::int64_t> device(n);
  Buffer<std::uint8_t> dropped(n), counted(n);
  {
    nb::gil_scoped_release release;
    Calls calls{n, role.data(), name.data(), parent.data(), lasting.data(), self.data(), launched.data()};
    const Shape shape = shape_of(calls);
    std::fill_n(dropped.data(), n, 0);
    merge_wrappers(calls, shape, dropped.data());
    std::copy_n(launched.data(), n, device.data());
    if (!shape.in_order) add_from_leaves(device.data(), parent.data(), n);
    for (std::size_t i = n; i-- > 0;) {
      // From the last row on, all that is below a row has been added when it is its turn.
      const std::int64_t above = parent.data()[i];
      if (shape.in_order && above >= 0 && device[i]) device[above] = plus(device[above], device[i]);
      settle(calls, i, dropped[i], device[i], counted[i]);
    }
  }
  return nb::make_tuple(device.array(), counted.array(), dropped.array());
}

}  // namespace

void bind_calls(nb::module_& m) {
  m.def("durations", &durations, nb::arg("start").noconvert(), nb::arg("end").noconvert());
  m.def("call_times", &call_times, nb::arg("role").noconvert(), nb::arg("name").noconvert(),
        nb::arg("parent").noconvert(), nb::arg("lasting").noconvert(), nb::arg("own").noconvert(),
        nb::arg("launched").noconvert());
}

}  // namespace profd
