// Which runtime or driver call caused which device row: by correlation id, over segments.
#include "links.h"

#include <vector>

#include "arrays.h"
#include "id_table.h"
#include "roles.h"

namespace profd {
namespace {

struct Launch {
  std::int64_t row = kNoRow;
  std::int32_t depth = 0;
  bool counts = false;  // must launch something and has not yet
};

struct Waiting {  // a device row before its launch; a list per correlation id
  std::int64_t row;
  std::int64_t next;
  bool counts;
};

class LinkBuilder {
 public:
  explicit LinkBuilder(std::size_t launches_max) : half_(launches_max / 2) {
    require(half_ > 0, "launches_max must be at least 2");
  }

  nb::tuple feed(In<std::int64_t> correlation, In<std::int32_t> group, In<std::uint8_t> role,
                 In<std::int32_t> depth) {
    const std::size_t n = correlation.shape(0);
    require_aligned(correlation, "correlation");
    require_column(group, n, "group");
    require_column(role, n, "role");
    require_column(depth, n, "depth");
    Buffer<std::int64_t> linked(n);
    Buffer<std::int32_t> depths(n);
    {
      nb::gil_scoped_release release;
      for (std::size_t i = 0; i < n; ++i) {
        linked[i] = kNoRow;
        depths[i] = depth.data()[i];
      }
      Segment segment{linked.data(), depths.data()};
      for (std::size_t i = 0; i < n; ++i) {
        const std::uint8_t what = role.data()[i];
        if (!(what & (kLaunch | kDevice))) continue;
        const Key key{correlation.data()[i], group.data()[i]};
        const bool known = key.id != 0 && key.id != kAbsent;
        const std::int64_t row = rows_ + static_cast<std::int64_t>(i);
        if (what & kDevice) {
          device(segment, key, known, row, (what & kMustLink) != 0);
        } else {
          launch(segment, key, known, {row, depth.data()[i], (what & kMustLaunch) != 0});
        }
      }
      rows_ += static_cast<std::int64_t>(n);
    }
    return nb::make_tuple(linked.array(), depths.array());
  }

  // The next rows, of which none is a call or ran on a device.
  void skip(std::int64_t rows) {
    require(rows >= 0, "rows cannot be taken back");
    rows_ += rows;
  }

  nb::tuple finish() {
    recent_.each([&](const Launch& launch) { launches_alone_ += launch.counts; });
    older_.each([&](const Launch& launch) { launches_alone_ += launch.counts; });
    recent_.clear();
    older_.clear();
    forget_waiting();
    return nb::make_tuple(to_array(late_row_), to_array(late_linked_), to_array(late_depth_));
  }

  std::int64_t device_without_launch() const { return devices_alone_; }
  std::int64_t launch_without_device() const { return launches_alone_; }
  std::int64_t correlation_reused() const { return reused_; }
  std::int64_t forgotten() const { return forgotten_; }

 private:
  struct Segment {
    std::int64_t* linked;
    std::int32_t* depth;
  };

  void device(Segment& segment, const Key& key, bool known, std::int64_t row, bool counts) {
    if (!known) {
      devices_alone_ += counts;
      return;
    }
    Launch* launch = recent_.find(key);
    if (!launch) launch = older_.find(key);
    if (launch) {
      launch->counts = false;
      link(segment, row, launch->row, launch->depth);
      return;
    }
    if (waiting_.size() >= half_) forget_waiting();
    std::int64_t& head = heads_.at(key);  // 0: none; a list number plus one
    waiting_.push_back({row, head, counts});
    head = static_cast<std::int64_t>(waiting_.size());
  }

  void launch(Segment& segment, const Key& key, bool known, Launch launch) {
    if (!known) {
      launches_alone_ += launch.counts;
      return;
    }
    if (heads_.size()) {
      if (std::int64_t* head = heads_.find(key); head && *head) {
        for (std::int64_t at = *head; at; at = waiting_[at - 1].next) {
          link(segment, waiting_[at - 1].row, launch.row, launch.depth);
          waiting_[at - 1].counts = false;
        }
        *head = 0;
        launch.counts = false;
      }
    }
    if (recent_.size() >= half_) {  // the older half goes: memory stays bounded
      older_.each([&](const Launch& old) { launches_alone_ += old.counts; });
      forgotten_ += static_cast<std::int64_t>(older_.size());
      older_ = std::move(recent_);
      recent_ = {};
    }
    Launch& place = recent_.at(key);
    Launch* earlier = place.row != kNoRow ? &place : older_.find(key);
    if (earlier && earlier->row != kNoRow) {
      ++reused_;
      launches_alone_ += earlier->counts;
      earlier->counts = false;
    }
    place = launch;
  }

  void link(Segment& segment, std::int64_t row, std::int64_t launch, std::int32_t depth) {
    if (row >= rows_) {
      segment.linked[row - rows_] = launch;
      segment.depth[row - rows_] = depth + 1;
      return;
    }
    late_row_.push_back(row);
    late_linked_.push_back(launch);
    late_depth_.push_back(depth + 1);
  }

  void forget_waiting() {
    for (const Waiting& device : waiting_) devices_alone_ += device.counts;
    waiting_.clear();
    heads_.clear();
  }

  std::size_t half_;
  IdTable<Launch> recent_, older_;
  IdTable<std::int64_t> heads_;
  std::vector<Waiting> waiting_;
  std::vector<std::int64_t> late_row_, late_linked_;
  std::vector<std::int32_t> late_depth_;
  std::int64_t rows_ = 0;
  std::int64_t devices_alone_ = 0;
  std::int64_t launches_alone_ = 0;
  std::int64_t reused_ = 0;
  std::int64_t forgotten_ = 0;
};

}  // namespace

void bind_links(nb::module_& m) {
  nb::class_<LinkBuilder>(m, "LinkBuilder")
      .def(nb::init<std::size_t>(), nb::kw_only(), nb::arg("launches_max") = std::size_t{1} << 20)
      .def("feed", &LinkBuilder::feed, nb::arg("correlation").noconvert(), nb::arg("group").noconvert(),
           nb::arg("role").noconvert(), nb::arg("depth").noconvert())
      .def("skip", &LinkBuilder::skip, nb::arg("rows"))
      .def("finish", &LinkBuilder::finish)
      .def_prop_ro("device_without_launch", &LinkBuilder::device_without_launch)
      .def_prop_ro("launch_without_device", &LinkBuilder::launch_without_device)
      .def_prop_ro("correlation_reused", &LinkBuilder::correlation_reused)
      .def_prop_ro("forgotten", &LinkBuilder::forgotten);
}

}  // namespace profd
