// What a step of a run typically takes: typical_of_steps.
#include "typical.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "arrays.h"

namespace profd {
namespace {

// The median of values and so many copies of another value, which are never made. Reorders the values.
double median(std::vector<double>& values, double other, std::size_t copies) {
  const std::size_t whole = values.size() + copies;
  if (whole == 0) return 0;
  const auto less = static_cast<std::size_t>(
      std::count_if(values.begin(), values.end(), [other](double value) { return value < other; }));
  const auto at = [&](std::size_t place) {
    if (place >= less && place < less + copies) return other;
    const auto own = values.begin() + static_cast<std::ptrdiff_t>(place < less ? place : place - copies);
    std::nth_element(values.begin(), own, values.end());
    return *own;
  };
  const double low = at((whole - 1) / 2);
  return whole % 2 ? low : (low + at(whole / 2)) / 2;
}

// Rows by group, those of one next to each other in their order: row i of group g is at begins[g] …
struct ByGroup {
  std::vector<std::size_t> begins;
  std::vector<std::size_t> rows;

  ByGroup(const In<std::int64_t>& group, std::size_t groups) : begins(groups + 1), rows(group.shape(0)) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t id = group.data()[i];
      require(id >= 0 && static_cast<std::size_t>(id) < groups, "a group number is out of range");
      ++begins[static_cast<std::size_t>(id) + 1];
    }
    for (std::size_t id = 0; id < groups; ++id) begins[id + 1] += begins[id];
    std::vector<std::size_t> next(begins.begin(), begins.end() - 1);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[next[static_cast<std::size_t>(group.data()[i])]++] = i;
  }
};

// The sums of one group by step, of the steps that it is seen in. Times of all steps are held for one group at a time.
class Sums {
 public:
  explicit Sums(std::size_t steps) : place_(steps, kNoRow) {}

  void add(std::int64_t step, std::int64_t value) {
    require(step >= 0 && static_cast<std::size_t>(step) < place_.size(), "a step is out of range");
    std::int64_t& place = place_[static_cast<std::size_t>(step)];
    if (place == kNoRow) {
      place = static_cast<std::int64_t>(sums_.size());
      sums_.push_back(0);
      seen_.push_back(step);
    }
    std::int64_t& sum = sums_[static_cast<std::size_t>(place)];
    if (value != kAbsent) sum = plus(sum, value);
  }

  const std::vector<std::int64_t>& values() const { return sums_; }

  void clear() {
    for (const std::int64_t step : seen_) place_[static_cast<std::size_t>(step)] = kNoRow;
    sums_.clear();
    seen_.clear();
  }

 private:
  std::vector<std::int64_t> place_, sums_, seen_;
};

nb::tuple typical_of_steps(In<std::int64_t> group, std::size_t groups, In<std::int64_t> step, std::size_t steps,
                           In<std::int64_t> values) {
  require_aligned(group, "group");
  require_column(step, group.shape(0), "step");
  require_column(values, group.shape(0), "values");
  Buffer<double> middle(groups), deviation(groups);
  {
    nb::gil_scoped_release release;
    const ByGroup by(group, groups);
    Sums sums(steps);
    std::vector<double> seen;
    for (std::size_t id = 0; id < groups; ++id) {
      for (std::size_t at = by.begins[id]; at < by.begins[id + 1]; ++at) {
        const std::size_t row = by.rows[at];
        sums.add(step.data()[row], values.data()[row]);
      }
      seen.assign(sums.values().begin(), sums.values().end());
      const std::size_t absent = steps - seen.size();
      sums.clear();
      middle[id] = median(seen, 0, absent);
      for (double& value : seen) value = std::abs(value - middle[id]);
      deviation[id] = median(seen, std::abs(middle[id]), absent);
    }
  }
  return nb::make_tuple(middle.array(), deviation.array());
}

}  // namespace

void bind_typical(nb::module_& m) {
  m.def("typical_of_steps", &typical_of_steps, nb::arg("group").noconvert(), nb::arg("groups"),
        nb::arg("step").noconvert(), nb::arg("steps"), nb::arg("values").noconvert());
}

}  // namespace profd
