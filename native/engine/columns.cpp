// Free functions over whole columns: argsort, nest, group_rows, sum_by, subtree_sums.
#include "columns.h"

#include <bit>
#include <algorithm>

#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "probing.h"
#include "sort.h"
#include "subtree.h"
#include "ties.h"

namespace profd {
namespace {

Out<std::int64_t> argsort(In<std::int64_t> keys) {
  require_aligned(keys, "keys");
  Buffer<std::int64_t> order(keys.shape(0));
  {
    nb::gil_scoped_release release;
    stable_order(keys.data(), keys.shape(0), order.data());
  }
  return order.array();
}

std::size_t thread_count(const std::int32_t* thread, std::size_t n, std::int64_t limit) {
  std::int64_t highest = -1;
  for (std::size_t i = 0; i < n; ++i) highest = std::max<std::int64_t>(highest, thread[i]);
  require(highest < limit, "a thread number is beyond the limit of tracks");
  return static_cast<std::size_t>(highest + 1);
}

void require_ascending(const std::int64_t* start, std::size_t n) {
  for (std::size_t i = 1; i < n; ++i) require(start[i - 1] <= start[i], "rows are not in start order");
}

// The innermost interval of a thread.
struct Top {
  std::int64_t row = kNoRow;
  std::int64_t end = 0;
};

nb::tuple nest(In<std::int64_t> start, In<std::int64_t> end, In<std::int32_t> thread,
               In<std::uint8_t> include, std::int64_t threads_max) {
  const std::size_t n = start.shape(0);
  require_aligned(start, "start");
  require_column(end, n, "end");
  require_column(thread, n, "thread");
  require_column(include, n, "include");
  Buffer<std::int64_t> parent(n);
  Buffer<std::int64_t> self(n);
  std::int64_t crossed = 0;
  {
    nb::gil_scoped_release release;
    const std::int64_t* starts = start.data();
    require_ascending(starts, n);
    std::vector<Top> tops(thread_count(thread.data(), n, threads_max));
    const auto end_of = [&](std::size_t i) { return std::max(end.data()[i], starts[i]); };
    // The stack of a thread is the chain of parents from its top: an interval that a later one
    // leaves behind can enclose nothing that this later one does not enclose more closely.
    for_each_longer_first(starts, n, end_of, [&](std::size_t i) {
      parent[i] = kNoRow;
      const std::int64_t finish = end_of(i);
      const std::int64_t duration = minus(finish, starts[i]);
      self[i] = duration;
      const std::int32_t track = thread.data()[i];
      if (!include.data()[i] || track < 0) return;
      Top open = tops[track];
      while (open.row != kNoRow && (open.end <= starts[i] || open.end < finish)) {
        crossed += open.end > starts[i];
        open.row = parent[open.row];
        if (open.row != kNoRow) open.end = end_of(open.row);
      }
      parent[i] = open.row;
      if (open.row != kNoRow) self[open.row] = minus(self[open.row], duration);
      tops[track] = {static_cast<std::int64_t>(i), finish};
    });
  }
  return nb::make_tuple(parent.array(), self.array(), crossed);
}

// Rows are compared by value in every column, so a collision of hashes costs time, not truth.
struct GroupTable {
  std::vector<std::int64_t> slots;
  std::size_t mask;

  explicit GroupTable(std::size_t n) : slots(std::bit_ceil(n * 2 + 2), kNoRow), mask(slots.size() - 1) {}
};

nb::tuple group_rows(std::vector<In<std::int64_t>> columns) {
  require(!columns.empty(), "group_rows needs at least one column");
  const std::size_t n = columns[0].shape(0);
  for (const auto& column : columns) require_column(column, n, "a column");
  Buffer<std::int64_t> group(n);
  std::vector<std::int64_t> first;
  {
    nb::gil_scoped_release release;
    std::vector<const std::int64_t*> data;
    for (const auto& column : columns) data.push_back(column.data());
    GroupTable table(1 << 10);
    const auto hash_of = [&](std::size_t row) {
      std::uint64_t hash = 0;
      for (const std::int64_t* column : data) hash = spread(hash ^ static_cast<std::uint64_t>(column[row]));
      return hash;
    };
    const auto equal = [&](std::size_t a, std::size_t b) {
      for (const std::int64_t* column : data) {
        if (column[a] != column[b]) return false;
      }
      return true;
    };
    for (std::size_t row = 0; row < n; ++row) {
      std::size_t slot = hash_of(row) & table.mask;
      while (table.slots[slot] != kNoRow && !equal(first[table.slots[slot]], row)) slot = (slot + 1) & table.mask;
      if (table.slots[slot] != kNoRow) {
        group[row] = table.slots[slot];
        continue;
      }
      group[row] = table.slots[slot] = static_cast<std::int64_t>(first.size());
      first.push_back(static_cast<std::int64_t>(row));
      if (first.size() * 2 <= table.slots.size()) continue;
      GroupTable larger(table.slots.size());
      for (std::size_t id = 0; id < first.size(); ++id) {
        std::size_t place = hash_of(first[id]) & larger.mask;
        while (larger.slots[place] != kNoRow) place = (place + 1) & larger.mask;
        larger.slots[place] = static_cast<std::int64_t>(id);
      }
      table = std::move(larger);
    }
  }
  return nb::make_tuple(group.array(), to_array(first));
}

Out<std::int64_t> sum_by(In<std::int64_t> group, std::size_t groups, In<std::int64_t> values) {
  const std::size_t n = group.shape(0);
  require_aligned(group, "group");
  require_column(values, n, "values");
  Buffer<std::int64_t> sums(groups);
  {
    nb::gil_scoped_release release;
    std::fill_n(sums.data(), groups, 0);
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t id = group.data()[i];
      require(id >= 0 && static_cast<std::size_t>(id) < groups, "a group number is out of range");
      if (values.data()[i] != kAbsent) sums[id] = plus(sums[id], values.data()[i]);
    }
  }
  return sums.array();
}

Out<std::int64_t> subtree_sums(In<std::int64_t> own, In<std::int64_t> parent) {
  const std::size_t n = own.shape(0);
  require_aligned(own, "own");
  require_column(parent, n, "parent");
  Buffer<std::int64_t> total(n);
  {
    nb::gil_scoped_release release;
    std::copy_n(own.data(), n, total.data());
    add_subtrees(total.data(), parent.data(), n);
  }
  return total.array();
}

}  // namespace

void bind_columns(nb::module_& m) {
  m.def("argsort", &argsort, nb::arg("keys").noconvert());
  m.def("nest", &nest, nb::arg("start").noconvert(), nb::arg("end").noconvert(), nb::arg("thread").noconvert(),
        nb::arg("include").noconvert(), nb::kw_only(), nb::arg("threads_max") = 1 << 22);
  m.def("group_rows", &group_rows, nb::arg("columns").noconvert());
  m.def("sum_by", &sum_by, nb::arg("group").noconvert(), nb::arg("groups"), nb::arg("values").noconvert());
  m.def("subtree_sums", &subtree_sums, nb::arg("own").noconvert(), nb::arg("parent").noconvert());
}

}  // namespace profd
