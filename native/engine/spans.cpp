// Lines made of merged spans: neighbours that mean the same become one event. Of a line with levels (scopes within
// scopes) at most one event is open on each level, and those of deeper levels lie within it. Times in ps.
#include "spans.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "arrays.h"

namespace profd {
namespace {

constexpr std::int64_t kNoGroup = -1;
constexpr std::int64_t kNs = 1000;
constexpr std::int64_t kGap = 2;  // durations of an event that may lie between it and what continues it

// Lists of values one after the other: list i is values[offsets[i], offsets[i + 1]).
template <typename T>
struct Lists {
  In<std::int64_t> offsets;
  In<T> values;

  void check(const char* what) const {
    require_aligned(offsets, what);
    require_aligned(values, what);
    require(offsets.shape(0) > 0 && offsets.data()[0] == 0, "lists have no offsets");
    for (std::size_t i = 1; i < offsets.shape(0); ++i) {
      require(offsets.data()[i] >= offsets.data()[i - 1], "offsets of lists decrease");
    }
    require(static_cast<std::size_t>(offsets.data()[offsets.shape(0) - 1]) == values.shape(0),
            "offsets of lists do not end where their values do");
  }
  std::int64_t count() const { return static_cast<std::int64_t>(offsets.shape(0)) - 1; }
  const T* begin(std::int64_t i) const { return values.data() + offsets.data()[i]; }
  std::int64_t size(std::int64_t i) const { return offsets.data()[i + 1] - offsets.data()[i]; }
};

struct Span {
  std::int64_t start, end, group;
};

struct Open {
  std::int64_t event;
  std::int32_t key;
  std::int64_t scope;  // kAbsent: none
};

class Line {
 public:
  explicit Line(bool close_gaps) : close_gaps_(close_gaps) {}

  void depends(Line* on) { on->dependents_.push_back(this); }

  // A span on each level, outermost first; deeper levels end. `scopes` may be null. Without levels nothing happens.
  void put(const std::int32_t* keys, std::int64_t levels, const Span& span, const std::int64_t* scopes) {
    if (levels == 0) return;
    for (std::int64_t level = 0; level < levels; ++level) {
      const std::int64_t scope = scopes == nullptr ? kAbsent : scopes[level];
      const bool open = level < static_cast<std::int64_t>(open_.size());
      if (open && continues(open_[level], keys[level], span, scope)) {
        std::int64_t& end = ends[open_[level].event];
        end = std::max(end, span.end);
        continue;
      }
      if (level == 0 || open) close(level);
      open_.push_back({static_cast<std::int64_t>(this->keys.size()), keys[level], scope});
      this->keys.push_back(keys[level]);
      starts.push_back(span.start), ends.push_back(span.end), groups.push_back(span.group);
    }
    if (levels < static_cast<std::int64_t>(open_.size())) close(levels);
  }

  // End the open events from a level on; what depends on this line ends with the outermost level.
  void close(std::int64_t level) {
    if (static_cast<std::int64_t>(open_.size()) - level > 1) shrink(level);
    open_.resize(static_cast<std::size_t>(std::min(level, static_cast<std::int64_t>(open_.size()))));
    if (level != 0) return;
    for (Line* line : dependents_) line->close(0);
  }

  std::int64_t innermost() const { return open_.empty() ? kNoRow : open_.back().event; }

  std::vector<std::int32_t> keys;
  std::vector<std::int64_t> starts, ends, groups;

 private:
  bool continues(const Open& open, std::int32_t key, const Span& span, std::int64_t scope) const {
    if (open.key != key || groups[open.event] != span.group) return false;
    if (scope != kAbsent && open.scope != kAbsent && scope != open.scope) return false;
    if (close_gaps_ || span.group != kNoGroup) return true;
    const std::int64_t end = ends[open.event], took = minus(end, starts[open.event]);
    return span.start <= plus(end, plus(took, took));
  }

  // Spans that are equal get shorter by 1 ns a level, lest a viewer stacks them in any order.
  void shrink(std::int64_t level) {
    const std::int64_t top = open_.back().event;
    const std::int64_t most = minus(ends[top], starts[top]) / kNs - 1;  // the innermost keeps 1 ns
    std::int64_t by = 0;
    std::pair<std::int64_t, std::int64_t> outer{1, 0};  // like none
    for (std::size_t at = static_cast<std::size_t>(level); at < open_.size(); ++at) {
      const std::int64_t event = open_[at].event;
      const std::pair here{starts[event], ends[event]};
      if (by < most && here == outer) ++by;
      outer = here;
      ends[event] -= by * kNs;
    }
  }

  bool close_gaps_;
  std::vector<Line*> dependents_;
  std::vector<Open> open_;
};

// What is put on one line: for each row a list of keys, -1 for none, and of scopes.
struct Puts {
  In<std::int32_t> what, scope;
  Lists<std::int32_t> keys;
  Lists<std::int64_t> scopes;
  std::int64_t depends_on;  // an earlier line, or -1

  void check(std::size_t rows, std::int64_t lines) const {
    require_column(what, rows, "what");
    require_column(scope, rows, "scope");
    keys.check("keys"), scopes.check("scopes");
    require(depends_on >= -1 && depends_on < lines, "a line depends on a later one");
    for (std::size_t row = 0; row < rows; ++row) {
      require(what.data()[row] >= -1 && what.data()[row] < keys.count(), "what is beyond its lists");
      require(scope.data()[row] >= -1 && scope.data()[row] < scopes.count(), "scope is beyond its lists");
    }
  }

  // As many scopes as levels, or none.
  const std::int64_t* scopes_of(std::size_t row, std::int64_t levels) const {
    const std::int32_t list = scope.data()[row];
    return list < 0 || scopes.size(list) != levels ? nullptr : scopes.begin(list);
  }
};

Puts puts(nb::handle given) {
  const auto one = nb::cast<nb::tuple>(given);
  require(nb::len(one) == 7, "what is put on a line has seven parts");
  return {nb::cast<In<std::int32_t>>(one[0]), nb::cast<In<std::int32_t>>(one[1]),
          {nb::cast<In<std::int64_t>>(one[2]), nb::cast<In<std::int32_t>>(one[3])},
          {nb::cast<In<std::int64_t>>(one[4]), nb::cast<In<std::int64_t>>(one[5])},
          nb::cast<std::int64_t>(one[6])};
}

nb::list merge_spans(In<std::int64_t> start, In<std::int64_t> end, In<std::int64_t> group, nb::list given,
                     bool close_gaps, bool close_last) {
  const std::size_t rows = start.shape(0);
  require_column(start, rows, "start"), require_column(end, rows, "end"), require_column(group, rows, "group");
  std::vector<Puts> all;
  for (nb::handle one : given) {
    all.push_back(puts(one));
    all.back().check(rows, static_cast<std::int64_t>(all.size()) - 1);
  }
  std::vector<Line> lines(all.size(), Line(close_gaps));
  std::vector<Buffer<std::int64_t>> innermost;
  for (std::size_t i = 0; i < all.size(); ++i) {
    innermost.emplace_back(rows);
    if (all[i].depends_on >= 0) lines[i].depends(&lines[static_cast<std::size_t>(all[i].depends_on)]);
  }
  {
    nb::gil_scoped_release release;
    for (std::size_t row = 0; row < rows; ++row) {
      const Span span{start.data()[row], end.data()[row], group.data()[row]};
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::int32_t list = all[i].what.data()[row];
        innermost[i][row] = kNoRow;
        if (list < 0) continue;
        const std::int64_t levels = all[i].keys.size(list);
        lines[i].put(all[i].keys.begin(list), levels, span, all[i].scopes_of(row, levels));
        innermost[i][row] = levels == 0 ? kNoRow : lines[i].innermost();
      }
    }
    if (close_last) {
      for (Line& line : lines) line.close(0);
    }
  }
  nb::list found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    found.append(nb::make_tuple(to_array(lines[i].keys), to_array(lines[i].starts), to_array(lines[i].ends),
                                to_array(lines[i].groups), innermost[i].array()));
  }
  return found;
}

// The innermost of the rows before that encloses each, -1 for none; rows by line and start, the longest first.
Out<std::int64_t> enclosing(In<std::int64_t> line, In<std::int64_t> end) {
  const std::size_t rows = line.shape(0);
  require_column(line, rows, "line"), require_column(end, rows, "end");
  Buffer<std::int64_t> parent(rows);
  std::vector<std::size_t> open;
  for (std::size_t row = 0; row < rows; ++row) {
    if (row > 0 && line.data()[row] != line.data()[row - 1]) open.clear();
    while (!open.empty() && end.data()[open.back()] < end.data()[row]) open.pop_back();
    parent[row] = open.empty() ? kNoRow : static_cast<std::int64_t>(open.back());
    open.push_back(row);
  }
  return parent.array();
}

// Parents and children of events. One event may have several parents, and links may form circles.
class Family {
 public:
  Family(In<std::int64_t> above, In<std::int64_t> below, std::int64_t size) : size_(size) {
    require_column(above, above.shape(0), "above"), require_column(below, above.shape(0), "below");
    require(size >= 0, "the size is negative");
    for (std::size_t i = 0; i < above.shape(0); ++i) {
      const bool known = above.data()[i] >= 0 && above.data()[i] < size && below.data()[i] >= 0 && below.data()[i] < size;
      require(known, "a link leads to no event");
    }
    children_ = links(above, below);
    parents_ = links(below, above);
    seen_.resize(static_cast<std::size_t>(size));
  }

  // A row's parents.
  std::vector<std::int64_t> above(std::int64_t event) const {
    require(event >= 0 && event < size_, "there is no such event");
    return {parents_.values.begin() + parents_.offsets[event], parents_.values.begin() + parents_.offsets[event + 1]};
  }

  // (group of each event or -1, the root each began with). Roots in order; `level`: one for each event, and a root
  // below another of its level is none; empty: all are. ValueError after looking at `steps_max` events above roots.
  nb::tuple groups(In<std::int64_t> roots, In<std::int64_t> level, std::int64_t steps_max) {
    require_aligned(roots, "roots"), require_aligned(level, "level");
    require(level.shape(0) == 0 || static_cast<std::int64_t>(level.shape(0)) <= size_, "more levels than events");
    Buffer<std::int64_t> of(static_cast<std::size_t>(size_));
    std::fill(of.data(), of.data() + size_, kNoGroup);
    std::vector<std::int64_t> begun;
    for (std::size_t i = 0; i < roots.shape(0); ++i) {
      const std::int64_t root = roots.data()[i];
      require(root >= 0 && root < size_, "there is no such root");
      if (level.shape(0) > 0 && below_another(root, level, steps_max)) continue;
      spread(root, static_cast<std::int64_t>(begun.size()), of.data());
      begun.push_back(root);
    }
    return nb::make_tuple(of.array(), to_array(begun));
  }

 private:
  struct Links {
    std::vector<std::int64_t> offsets, values;
  };

  Links links(const In<std::int64_t>& from, const In<std::int64_t>& to) const {
    Links found{std::vector<std::int64_t>(static_cast<std::size_t>(size_) + 2), std::vector<std::int64_t>(from.shape(0))};
    for (std::size_t i = 0; i < from.shape(0); ++i) ++found.offsets[from.data()[i] + 2];
    for (std::size_t i = 2; i < found.offsets.size(); ++i) found.offsets[i] += found.offsets[i - 1];
    for (std::size_t i = 0; i < from.shape(0); ++i) found.values[found.offsets[from.data()[i] + 1]++] = to.data()[i];
    return found;
  }

  bool below_another(std::int64_t root, const In<std::int64_t>& level, std::int64_t& steps_left) {
    const std::int64_t own = level.data()[root];
    seen_[root] = ++walk_;
    wait_.assign(1, root);
    while (!wait_.empty()) {
      const std::int64_t at = wait_.back();
      wait_.pop_back();
      for (std::int64_t i = parents_.offsets[at]; i < parents_.offsets[at + 1]; ++i) {
        const std::int64_t above = parents_.values[i];
        require(--steps_left >= 0, "too many roots lie within others");
        if (seen_[above] == walk_) continue;
        if (above < static_cast<std::int64_t>(level.shape(0)) && level.data()[above] == own) return true;
        seen_[above] = walk_;
        wait_.push_back(above);
      }
    }
    return false;
  }

  // Not to what has a group already, nor to what is below that.
  void spread(std::int64_t root, std::int64_t group, std::int64_t* of) {
    if (of[root] != kNoGroup) return;
    of[root] = group;
    wait_.assign(1, root);
    while (!wait_.empty()) {
      const std::int64_t at = wait_.back();
      wait_.pop_back();
      for (std::int64_t i = children_.offsets[at]; i < children_.offsets[at + 1]; ++i) {
        const std::int64_t below = children_.values[i];
        if (of[below] != kNoGroup) continue;
        of[below] = group;
        wait_.push_back(below);
      }
    }
  }

  std::int64_t size_;
  Links children_, parents_;
  std::vector<std::uint64_t> seen_;  // the last walk that came by
  std::uint64_t walk_ = 0;
  std::vector<std::int64_t> wait_;
};

}  // namespace

void bind_spans(nb::module_& m) {
  m.def("merge_spans", &merge_spans, nb::arg("start").noconvert(), nb::arg("end").noconvert(),
        nb::arg("group").noconvert(), nb::arg("lines"), nb::kw_only(), nb::arg("close_gaps"), nb::arg("close_last"));
  m.def("enclosing", &enclosing, nb::arg("line").noconvert(), nb::arg("end").noconvert());
  nb::class_<Family>(m, "Family")
      .def(nb::init<In<std::int64_t>, In<std::int64_t>, std::int64_t>(), nb::arg("above").noconvert(),
           nb::arg("below").noconvert(), nb::arg("size"))
      .def("above", &Family::above, nb::arg("event"))
      .def("groups", &Family::groups, nb::arg("roots").noconvert(), nb::arg("level").noconvert(), nb::arg("steps_max"));
}

}  // namespace profd
