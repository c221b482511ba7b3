// The call tree: per-thread stack replay over segments, and what flows bind to.
#include "tree.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <nanobind/stl/optional.h>

#include "arrays.h"
#include "roles.h"
#include "ties.h"

namespace profd {
namespace {

// What a flow record would rather bind to, among the rows that start when it happened.
enum Want : std::uint8_t { kAnything = 0, kWantOp = 1, kWantLink = 2 };

struct Place {
  std::int64_t row = kNoRow;
  std::int32_t depth = -1;  // -1 also of rows that do not nest: theirs may come from a link
};

struct Frame {
  std::int64_t row;
  std::int64_t start;
  std::int64_t end;      // as recorded or borrowed; kForever: neither
  std::int64_t closes;   // never after the frame below: what makes popping by end exact
  std::int64_t inside;   // time of direct children
  std::int32_t depth;
  bool timed;
};

// Invariant: `closes` never grows from the bottom of the stack to its top.
struct Thread {
  std::vector<Frame> stack;
  std::int64_t last_start = kAbsent;  // of the rows below
  Place any, op, link;                // that started then
  Place flat;                         // the last row that does not nest
  std::int64_t flat_end = kAbsent;
};

struct Flow {
  std::int64_t time;
  std::int32_t thread;
  std::uint8_t want;
};

class TreeBuilder {
 public:
  TreeBuilder(std::int64_t threads, std::int64_t threads_max) {
    require(threads >= 0 && threads <= threads_max, "the number of threads is beyond the limit of tracks");
    threads_.resize(static_cast<std::size_t>(threads));
  }

  // There are so many threads from now on.
  void grow(std::int64_t threads, std::int64_t threads_max) {
    require(threads >= static_cast<std::int64_t>(threads_.size()) && threads <= threads_max,
            "the number of threads shrinks or is beyond the limit of tracks");
    threads_.resize(static_cast<std::size_t>(threads));
  }

  void add_flows(In<std::int32_t> thread, In<std::int64_t> time, In<std::uint8_t> want) {
    require(!finished_, "the tree is finished");
    const std::size_t n = time.shape(0);
    require_aligned(time, "time");
    require_column(thread, n, "thread");
    require_column(want, n, "want");
    std::int64_t before = last_flow_;
    for (std::size_t i = 0; i < n; ++i) {
      require(before <= time.data()[i], "flow records are not in time order");
      require(thread.data()[i] < static_cast<std::int64_t>(threads_.size()),
              "a flow record names a thread that is not there");
      before = time.data()[i];
    }
    last_flow_ = before;
    flows_.reserve(flows_.size() + n);
    for (std::size_t i = 0; i < n; ++i) {
      flows_.push_back({time.data()[i], thread.data()[i], want.data()[i]});
    }
  }

  // What the flow records bound to that were reached since the last call, in their order.
  nb::tuple take_flows() {
    Buffer<std::int64_t> row(bound_.size());
    Buffer<std::int32_t> depth(bound_.size());
    for (std::size_t i = 0; i < bound_.size(); ++i) {
      row[i] = bound_[i].row;
      depth[i] = bound_[i].depth;
    }
    bound_.clear();
    flows_.erase(flows_.begin(), flows_.begin() + static_cast<std::ptrdiff_t>(next_flow_));
    next_flow_ = 0;
    return nb::make_tuple(row.array(), depth.array());
  }

  nb::tuple feed(In<std::int64_t> start, In<std::int64_t> end, In<std::int32_t> thread,
                 In<std::uint8_t> role, std::optional<In<std::int32_t>> forward) {
    require(!finished_, "the tree is finished");
    const std::size_t n = start.shape(0);
    require_aligned(start, "start");
    require_column(end, n, "end");
    require_column(thread, n, "thread");
    require_column(role, n, "role");
    if (forward) require_column(*forward, n, "forward");
    Segment segment{start.data(), end.data(), thread.data(), role.data(), forward ? forward->data() : nullptr,
                    Buffer<std::int64_t>(n), Buffer<std::int32_t>(n), Buffer<std::int64_t>(n)};
    {
      nb::gil_scoped_release release;
      check(segment, n);
      const auto closes = [&](std::size_t i) { return ends(segment, i); };
      for_each_longer_first(segment.start, n, closes, [&](std::size_t i) {
        bind_flows_before(segment.start[i], &segment);
        place(segment, i);
      });
      if (n) last_start_ = segment.start[n - 1];
      rows_ += static_cast<std::int64_t>(n);
    }
    return nb::make_tuple(segment.parent.array(), segment.depth.array(), segment.self.array());
  }

  // No row will start before `time`: records before it are bound now.
  void advance(std::int64_t time) {
    require(!finished_, "the tree is finished");
    require(time >= last_start_, "rows that start later have been placed");
    nb::gil_scoped_release release;
    bind_flows_before(time, nullptr);
    last_start_ = time;
  }

  nb::tuple finish() {
    require(!finished_, "the tree is finished");
    finished_ = true;
    {
      nb::gil_scoped_release release;
      bind_flows_before(kForever, nullptr);
      while (next_flow_ < flows_.size()) bind(nullptr);
      for (Thread& thread : threads_) {
        while (!thread.stack.empty()) pop(thread, nullptr);
      }
    }
    return nb::make_tuple(to_array(late_row_), to_array(late_self_));
  }

  std::int64_t partial_overlap() const { return partial_overlap_; }
  std::int64_t no_end() const { return no_end_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t threads() const { return static_cast<std::int64_t>(threads_.size()); }

 private:
  struct Segment {
    const std::int64_t* start;
    const std::int64_t* end;
    const std::int32_t* thread;
    const std::uint8_t* role;
    const std::int32_t* forward;  // of a backward op the thread of its forward op; null: of none
    Buffer<std::int64_t> parent;
    Buffer<std::int32_t> depth;
    Buffer<std::int64_t> self;
  };

  // Everything is checked before anything changes, so a refused segment leaves the state whole.
  void check(const Segment& segment, std::size_t n) const {
    std::int64_t before = last_start_;
    for (std::size_t i = 0; i < n; ++i) {
      require(before <= segment.start[i], "rows are not in start order");
      require(segment.thread[i] < static_cast<std::int64_t>(threads_.size()),
              "a row names a thread that is not there");
      require(!segment.forward || segment.forward[i] < static_cast<std::int64_t>(threads_.size()),
              "a row names a forward thread that is not there");
      before = segment.start[i];
    }
  }

  // An end before the start counts as the start; a frame without one lasts as long as it can.
  static std::int64_t ends(const Segment& segment, std::size_t i) {
    if (segment.end[i] == kAbsent && (segment.role[i] & kFrame)) return kForever;
    return std::max(segment.end[i], segment.start[i]);
  }

  void place(Segment& segment, std::size_t i) {
    const std::uint8_t role = segment.role[i];
    const std::int64_t row = rows_ + static_cast<std::int64_t>(i);
    const std::int64_t start = segment.start[i];
    std::int64_t end = ends(segment, i);
    segment.parent[i] = kNoRow;
    segment.depth[i] = 0;
    segment.self[i] = (role & kTimed) && segment.end[i] != kAbsent ? minus(end, start) : kAbsent;
    if (segment.thread[i] < 0) return;
    Thread& thread = threads_[segment.thread[i]];
    if (role & kNests) {
      while (!thread.stack.empty() && thread.stack.back().closes <= start) pop(thread, &segment);
      const bool open_end = end == kForever;
      std::int64_t closes = end;
      if (!thread.stack.empty()) {
        Frame& parent = thread.stack.back();
        segment.parent[i] = parent.row;
        segment.depth[i] = parent.depth + 1;
        if (open_end) {
          end = parent.end;
        } else if (end > parent.closes) {
          ++partial_overlap_;
        }
        closes = std::min(end, parent.closes);
        parent.inside = plus(parent.inside, minus(closes, start));
      } else if (const Frame* parent = forward_frame(segment, i)) {
        // It runs beside that frame, which neither waits for it nor ends it.
        segment.parent[i] = parent->row;
        segment.depth[i] = parent->depth + 1;
        if (open_end) closes = end = parent->end;
      }
      no_end_ += open_end;
      if ((role & kFrame) && closes > start) {
        thread.stack.push_back({row, start, end, closes, 0, segment.depth[i], (role & kTimed) != 0});
        segment.self[i] = kAbsent;  // until it closes
      }
    } else {
      thread.flat = {row, -1};
      thread.flat_end = end;
    }
    if (role) mark(thread, start, role, {row, role & kNests ? segment.depth[i] : -1});
  }

  // What a row on an empty stack inherits: what is open on the thread of its forward op.
  const Frame* forward_frame(const Segment& segment, std::size_t i) const {
    if (!segment.forward || segment.forward[i] < 0 || segment.forward[i] == segment.thread[i]) return nullptr;
    const std::vector<Frame>& stack = threads_[segment.forward[i]].stack;
    // Nothing is closed here: flow records of that thread may still bind to what ends now.
    const auto closed = std::partition_point(stack.begin(), stack.end(),
                                             [&](const Frame& frame) { return frame.closes > segment.start[i]; });
    return closed == stack.begin() ? nullptr : &*(closed - 1);
  }

  void mark(Thread& thread, std::int64_t start, std::uint8_t role, Place place) {
    if (thread.last_start != start || thread.any.row == kNoRow) {
      thread.last_start = start;
      thread.op = thread.link = {};
    }
    thread.any = place;  // longer ones came first: the innermost stays
    if (role & kOp) thread.op = place;
    // Zero-length calls share a microsecond with the launch they prepare, which is longer.
    if ((role & (kLaunch | kDevice)) && thread.link.row == kNoRow) thread.link = place;
  }

  void pop(Thread& thread, Segment* segment) {
    const Frame frame = thread.stack.back();
    thread.stack.pop_back();
    if (!frame.timed || frame.end == kForever) return;
    const std::int64_t self = minus(minus(frame.end, frame.start), frame.inside);
    if (segment && frame.row >= rows_) {
      segment->self[static_cast<std::size_t>(frame.row - rows_)] = self;
      return;
    }
    late_row_.push_back(frame.row);
    late_self_.push_back(self);
  }

  void bind_flows_before(std::int64_t start, Segment* segment) {
    while (next_flow_ < flows_.size() && flows_[next_flow_].time < start) bind(segment);
  }

  void bind(Segment* segment) {
    const Flow flow = flows_[next_flow_++];
    Place& bound = bound_.emplace_back();
    if (flow.thread < 0) return;
    Thread& thread = threads_[flow.thread];
    if (thread.last_start == flow.time && thread.any.row != kNoRow) {
      const Place& wanted = flow.want == kWantOp ? thread.op : thread.link;
      bound = flow.want != kAnything && wanted.row != kNoRow ? wanted : thread.any;
      return;
    }
    // Later rows start after this record, so what closed before it is closed for them too.
    while (!thread.stack.empty() && thread.stack.back().closes < flow.time) pop(thread, segment);
    if (!thread.stack.empty()) {
      bound = {thread.stack.back().row, thread.stack.back().depth};
    } else if (thread.flat.row != kNoRow && thread.flat_end >= flow.time) {
      bound = thread.flat;
    }
  }

  std::vector<Thread> threads_;
  std::vector<Flow> flows_;    // not yet reached from next_flow_ on
  std::vector<Place> bound_;   // not yet taken
  std::vector<std::int64_t> late_row_, late_self_;
  std::size_t next_flow_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t last_start_ = kAbsent;
  std::int64_t last_flow_ = kAbsent;
  std::int64_t partial_overlap_ = 0;
  std::int64_t no_end_ = 0;
  bool finished_ = false;
};

}  // namespace

void bind_tree(nb::module_& m) {
  nb::class_<TreeBuilder>(m, "TreeBuilder")
      .def(nb::init<std::int64_t, std::int64_t>(), nb::arg("threads"), nb::kw_only(),
           nb::arg("threads_max") = 1 << 22)
      .def("grow", &TreeBuilder::grow, nb::arg("threads"), nb::kw_only(), nb::arg("threads_max") = 1 << 22)
      .def("add_flows", &TreeBuilder::add_flows, nb::arg("thread").noconvert(), nb::arg("time").noconvert(),
           nb::arg("want").noconvert())
      .def("take_flows", &TreeBuilder::take_flows)
      .def("feed", &TreeBuilder::feed, nb::arg("start").noconvert(), nb::arg("end").noconvert(),
           nb::arg("thread").noconvert(), nb::arg("role").noconvert(), nb::arg("forward").noconvert() = nb::none())
      .def("advance", &TreeBuilder::advance, nb::arg("time"))
      .def("finish", &TreeBuilder::finish)
      .def_prop_ro("rows", &TreeBuilder::rows)
      .def_prop_ro("threads", &TreeBuilder::threads)
      .def_prop_ro("partial_overlap", &TreeBuilder::partial_overlap)
      .def_prop_ro("no_end", &TreeBuilder::no_end);
}

}  // namespace profd
