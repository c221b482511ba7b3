// Lanes of a timeline: on which one each event lies, how far it is from what came before it there, and cells of pixels
// for what is too short to be seen (daemon/profd/query/tiles has the rules).
#include "lanes.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "arrays.h"
#include "probing.h"

namespace profd {
namespace {

// Codes of events/schema.py.
enum Kind : std::uint8_t { kInstant = 4, kOverhead = 11, kDeviceRange = 12, kMemory = 13, kCounter = 14, kTrace = 16 };
constexpr std::uint8_t kCpu = 1;
// Strips of a thread, from the top; query/tiles/lanes.py has the same.
enum Strip : std::int64_t { kRangeStrip = 0, kCallStrip = 1, kWorkStrip = 2, kMarkStrip = 3 };

Strip strip_of(std::uint8_t kind, std::uint8_t device, bool is_async) {
  if (kind == kInstant || kind == kMemory || kind == kCounter) return kMarkStrip;
  if (kind == kDeviceRange || kind == kOverhead || kind == kTrace || is_async) return kRangeStrip;
  return device == kCpu ? kCallStrip : kWorkStrip;
}

// Sorts by thread, strip and depth; only calls have a depth of their own.
std::int64_t key_of(std::int32_t thread, Strip strip, std::int32_t depth) {
  const std::int64_t level = strip == kCallStrip ? std::max(depth, 0) : 0;
  return (std::int64_t{thread} + 1) << 34 | strip << 32 | level;
}

struct Columns {
  In<std::int64_t> start, end;
  In<std::int32_t> thread, depth;
  In<std::uint8_t> kind, device, async;

  std::size_t rows() const { return start.shape(0); }

  void check() const {
    const std::size_t n = rows();
    require_column(start, n, "start"), require_column(end, n, "end"), require_column(thread, n, "thread");
    require_column(depth, n, "depth"), require_column(kind, n, "kind"), require_column(device, n, "device_type");
    require_column(async, n, "is_async");
    const auto* threads = thread.data();
    require(std::all_of(threads, threads + n, [](std::int32_t one) { return one >= -1 && one < 1 << 28; }),
            "a thread is beyond what there may be");
    require(std::is_sorted(start.data(), start.data() + n), "rows are not in start order");
  }
};

class LaneScan {
 public:
  LaneScan(std::int64_t begin, std::int64_t end, std::size_t lanes_max) : begin_(begin), end_(end), max_(lanes_max) {}

  // What runs already on these lanes, and until when.
  void run(In<std::int64_t> key, In<std::int64_t> until) {
    require_column(key, key.shape(0), "key"), require_column(until, key.shape(0), "until");
    for (std::size_t i = 0; i < key.shape(0); ++i) {
      Lane& lane = lanes_[lane_of(key.data()[i])];
      lane.until = std::max(lane.until, until.data()[i]);
    }
  }

  nb::tuple add(In<std::int64_t> start, In<std::int64_t> end, In<std::int32_t> thread, In<std::int32_t> depth,
                In<std::uint8_t> kind, In<std::uint8_t> device, In<std::uint8_t> async, int level) {
    const Columns columns{start, end, thread, depth, kind, device, async};
    columns.check();
    require(level >= -1 && level < 63, "there is no such level");
    Found found;
    {
      nb::gil_scoped_release release;
      ++stretch_;
      if (level <= 0) found.make_room(columns.rows());
      for (std::size_t i = 0; i < columns.rows(); ++i) place(columns, i, level, found);
    }
    return nb::make_tuple(to_array(found.place), to_array(found.lane), to_array(found.lasts), to_array(found.weight),
                          to_array(found.bucket), to_array(found.cell_lane), to_array(found.count),
                          to_array(found.busy), to_array(found.kinds));
  }

  // (key, events, first start, last end) of each lane, by its number.
  nb::tuple lanes() const {
    const std::size_t n = lanes_.size();
    Buffer<std::int64_t> key(n), events(n), first(n), until(n);
    for (std::size_t i = 0; i < n; ++i) {
      key[i] = lanes_[i].key, events[i] = lanes_[i].events, first[i] = lanes_[i].first, until[i] = lanes_[i].until;
    }
    return nb::make_tuple(key.array(), events.array(), first.array(), until.array());
  }

 private:
  struct Lane {
    std::int64_t key = 0, events = 0, first = kForever;
    std::int64_t until = kAbsent;  // the latest end so far
    std::int64_t bucket = 0;       // of its newest cell
    std::size_t cell = 0;
    std::size_t stretch = 0;  // that this cell is of
  };

  struct Slot {
    std::int64_t key = -1;
    std::int32_t lane = -1;

    bool is_free() const { return lane < 0; }
    bool same_key(const Slot& other) const { return key == other.key; }
    std::uint64_t hash() const { return spread(static_cast<std::uint64_t>(key)); }
  };

  struct Found {
    std::vector<std::int32_t> place, lane;  // of events that can be seen
    std::vector<std::int64_t> lasts, weight;
    std::vector<std::int64_t> bucket;  // of cells
    std::vector<std::int32_t> cell_lane;
    std::vector<std::int64_t> count, busy;
    std::vector<std::int32_t> kinds;

    // Where nearly all events can be seen.
    void make_room(std::size_t rows) {
      place.reserve(rows), lane.reserve(rows), lasts.reserve(rows), weight.reserve(rows);
    }
  };

  // Lanes take turns: what was looked up lately is found without the table.
  std::int32_t recent_lane_of(std::int64_t key) {
    Slot& slot = recent_[static_cast<std::size_t>(key ^ key >> 29) % kRecent];
    if (slot.key != key) slot = {key, lane_of(key)};
    return slot.lane;
  }

  std::int32_t lane_of(std::int64_t key) {
    slots_.make_room(lanes_.size() + 1);
    Slot& slot = slots_.of({key, 0});
    if (slot.is_free()) {
      require(lanes_.size() < max_, "the timeline has too many lanes");
      slot = {key, static_cast<std::int32_t>(lanes_.size())};
      lanes_.emplace_back().key = key;
    }
    return slot.lane;
  }

  void place(const Columns& columns, std::size_t i, int level, Found& found) {
    const std::int64_t start = columns.start.data()[i];
    const std::uint8_t kind = columns.kind.data()[i];
    const Strip strip = strip_of(kind, columns.device.data()[i], columns.async.data()[i] != 0);
    const std::int32_t number = recent_lane_of(key_of(columns.thread.data()[i], strip, columns.depth.data()[i]));
    Lane& lane = lanes_[static_cast<std::size_t>(number)];
    const std::int64_t lasts = lasts_of(start, columns.end.data()[i], strip);
    const std::int64_t gap = lane.until == kAbsent ? kForever : std::max<std::int64_t>(minus(start, lane.until), 0);
    const std::int64_t weight = std::max(lasts, gap);
    lane.until = std::max(lane.until, plus(start, lasts));
    lane.first = std::min(lane.first, start);
    ++lane.events;
    if (level < 0 || weight >= std::int64_t{1} << level) {
      found.place.push_back(static_cast<std::int32_t>(i)), found.lane.push_back(number);
      found.lasts.push_back(lasts), found.weight.push_back(weight);
    } else {
      blur(lane, number, minus(start, begin_) >> level, lasts, kind, found);
    }
  }

  std::int64_t lasts_of(std::int64_t start, std::int64_t end, Strip strip) const {
    if (end == kAbsent && strip == kMarkStrip) return 0;
    return std::max<std::int64_t>(minus(end == kAbsent ? end_ : end, start), 0);
  }

  void blur(Lane& lane, std::int32_t number, std::int64_t bucket, std::int64_t lasts, std::uint8_t kind, Found& found) {
    if (lane.stretch != stretch_ || lane.bucket != bucket) {
      lane.stretch = stretch_, lane.bucket = bucket, lane.cell = found.bucket.size();
      found.bucket.push_back(bucket), found.cell_lane.push_back(number);
      found.count.push_back(0), found.busy.push_back(0), found.kinds.push_back(0);
    }
    found.count[lane.cell] += 1;
    found.busy[lane.cell] = plus(found.busy[lane.cell], lasts);
    found.kinds[lane.cell] |= 1 << (kind & 31);
  }

  std::int64_t begin_, end_;
  std::size_t max_;
  std::size_t stretch_ = 0;
  std::vector<Lane> lanes_;
  Probing<Slot> slots_{1024};
  static constexpr std::size_t kRecent = 1024;
  std::vector<Slot> recent_ = std::vector<Slot>(kRecent);
};

// Cells in order of their pixels, and boxes in order of their start that are too short from now on: one sequence of cells
// for each pixel and lane, in order of both. A pass; only lanes within a pixel are sorted.
class Folding {
 public:
  struct Cells {
    In<std::int32_t> lane;
    In<std::int64_t> bucket, count, busy;
    In<std::int32_t> kinds;

    std::size_t rows() const { return bucket.shape(0); }
  };

  struct Boxes {
    In<std::int32_t> lane;
    In<std::int64_t> start, lasts;
    In<std::uint8_t> kind;

    std::size_t rows() const { return start.shape(0); }
  };

  Folding(const Cells& cells, int levels, const Boxes& boxes, std::int64_t begin, int level)
      : cells_(cells), levels_(levels), boxes_(boxes), begin_(begin), level_(level) {
    const std::size_t n = cells.rows(), m = boxes.rows();
    require_column(cells.lane, n, "lane"), require_column(cells.bucket, n, "bucket");
    require_column(cells.count, n, "count"), require_column(cells.busy, n, "busy");
    require_column(cells.kinds, n, "kinds"), require_column(boxes.lane, m, "lane");
    require_column(boxes.start, m, "start"), require_column(boxes.lasts, m, "lasts");
    require_column(boxes.kind, m, "kind");
    require(levels >= 0 && levels < 63 && level >= 0 && level < 63, "there is no such level");
    require(std::is_sorted(cells.bucket.data(), cells.bucket.data() + n), "cells are not in order of their pixels");
    require(std::is_sorted(boxes.start.data(), boxes.start.data() + m), "boxes are not in start order");
  }

  nb::tuple run() {
    {
      nb::gil_scoped_release release;
      std::size_t cell = 0, box = 0;
      while (cell < cells_.rows() || box < boxes_.rows()) take_pixel(cell, box);
    }
    return nb::make_tuple(to_array(lane_), to_array(bucket_), to_array(count_), to_array(busy_), to_array(kinds_));
  }

 private:
  struct Entry {
    std::int32_t lane, kinds;
    std::int64_t count, busy;
  };

  void take_pixel(std::size_t& cell, std::size_t& box) {
    const std::int64_t a = cell < cells_.rows() ? bucket_of_cell(cell) : kForever;
    const std::int64_t b = box < boxes_.rows() ? bucket_of_box(box) : kForever;
    const std::int64_t bucket = std::min(a, b);
    found_.clear();
    for (; cell < cells_.rows() && bucket_of_cell(cell) == bucket; ++cell) {
      found_.push_back({cells_.lane.data()[cell], cells_.kinds.data()[cell], cells_.count.data()[cell],
                        cells_.busy.data()[cell]});
    }
    for (; box < boxes_.rows() && bucket_of_box(box) == bucket; ++box) {
      found_.push_back({boxes_.lane.data()[box], 1 << (boxes_.kind.data()[box] & 31), 1, boxes_.lasts.data()[box]});
    }
    const auto by_lane = [](const Entry& one, const Entry& other) { return one.lane < other.lane; };
    if (found_.size() > 1 && !std::is_sorted(found_.begin(), found_.end(), by_lane)) std::sort(found_.begin(), found_.end(), by_lane);
    const std::size_t first = lane_.size();
    for (const Entry& one : found_) add(bucket, one, first);
  }

  void add(std::int64_t bucket, const Entry& one, std::size_t first) {
    if (lane_.size() > first && lane_.back() == one.lane) {
      count_.back() += one.count, busy_.back() = plus(busy_.back(), one.busy), kinds_.back() |= one.kinds;
      return;
    }
    lane_.push_back(one.lane), bucket_.push_back(bucket), count_.push_back(one.count);
    busy_.push_back(one.busy), kinds_.push_back(one.kinds);
  }

  std::int64_t bucket_of_cell(std::size_t i) const { return cells_.bucket.data()[i] >> levels_; }
  std::int64_t bucket_of_box(std::size_t i) const { return minus(boxes_.start.data()[i], begin_) >> level_; }

  Cells cells_;
  int levels_;
  Boxes boxes_;
  std::int64_t begin_;
  int level_;
  std::vector<Entry> found_;
  std::vector<std::int32_t> lane_;
  std::vector<std::int64_t> bucket_, count_, busy_;
  std::vector<std::int32_t> kinds_;
};

// The coarsest level at which each weight can be seen; -1: at none.
Out<std::int32_t> coarsest_levels(In<std::int64_t> weight) {
  require_aligned(weight, "weight");
  Buffer<std::int32_t> levels(weight.shape(0));
  for (std::size_t i = 0; i < weight.shape(0); ++i) {
    levels[i] = static_cast<std::int32_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(weight.data()[i], 0)))) - 1;
  }
  return levels.array();
}

nb::tuple fold_cells(In<std::int32_t> lane, In<std::int64_t> bucket, In<std::int64_t> count, In<std::int64_t> busy,
                     In<std::int32_t> kinds, int levels, In<std::int32_t> box_lane, In<std::int64_t> box_start,
                     In<std::int64_t> box_lasts, In<std::uint8_t> box_kind, std::int64_t begin, int level) {
  return Folding({lane, bucket, count, busy, kinds}, levels, {box_lane, box_start, box_lasts, box_kind}, begin, level)
      .run();
}

}  // namespace

void bind_lanes(nb::module_& m) {
  nb::class_<LaneScan>(m, "LaneScan")
      .def(nb::init<std::int64_t, std::int64_t, std::size_t>(), nb::arg("begin"), nb::arg("end"), nb::kw_only(),
           nb::arg("lanes_max") = 1 << 20)
      .def("run", &LaneScan::run, nb::arg("key").noconvert(), nb::arg("until").noconvert())
      .def("add", &LaneScan::add, nb::arg("start").noconvert(), nb::arg("end").noconvert(),
           nb::arg("thread").noconvert(), nb::arg("depth").noconvert(), nb::arg("kind").noconvert(),
           nb::arg("device_type").noconvert(), nb::arg("is_async").noconvert(), nb::arg("level"))
      .def("lanes", &LaneScan::lanes);
  m.def("coarsest_levels", &coarsest_levels, nb::arg("weight").noconvert());
  m.def("fold_cells", &fold_cells, nb::arg("lane").noconvert(), nb::arg("bucket").noconvert(),
        nb::arg("count").noconvert(), nb::arg("busy").noconvert(), nb::arg("kinds").noconvert(), nb::arg("levels"),
        nb::arg("box_lane").noconvert(), nb::arg("box_start").noconvert(), nb::arg("box_lasts").noconvert(),
        nb::arg("box_kind").noconvert(), nb::arg("begin"), nb::arg("level"));
}

}  // namespace profd
