// The columns of a batch of chunks: those that every event has, those that begin with the first row that has a value, and
// those of some rows only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "columns.h"

namespace profd::scan {

// Values of some rows only.
template <typename T>
struct SparseColumn {
  std::vector<std::int64_t> rows;
  std::vector<T> values;

  void put(std::int64_t row, T value) { rows.push_back(row), values.push_back(value); }
  void cut(std::size_t row) {
    while (!rows.empty() && rows.back() >= static_cast<std::int64_t>(row)) rows.pop_back(), values.pop_back();
  }
};

inline constexpr std::size_t kBatchRows = 3 << 15;  // somewhat more than a caller of ChunkReader waits for

// A column that is there from the first row that has a value.
template <typename T>
struct OptionalColumn {
  T absent;
  std::vector<T> values;

  void put(std::size_t row, T value) {
    if (values.empty()) values.reserve(kBatchRows);
    if (values.size() < row) values.resize(row, absent);
    if (values.size() == row) {
      values.push_back(value);
    } else {
      values[row] = value;
    }
  }
  void cut(std::size_t rows) {
    if (values.size() > rows) values.resize(rows);
  }
  void pad(std::size_t rows) {
    if (!values.empty()) values.resize(rows, absent);
  }
};

// Makes room for values that are written before anybody reads them: no zeros first.
template <typename T>
struct Uninitialised : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = Uninitialised<U>;
  };
  template <typename U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <typename U, typename... Values>
  void construct(U* at, Values&&... values) {
    std::construct_at(at, std::forward<Values>(values)...);
  }
};

template <typename T>
using FullColumn = std::vector<T, Uninitialised<T>>;

struct ChunkColumns {
  FullColumn<std::int32_t> name, cat, process, thread;
  FullColumn<std::uint8_t> kind, phase, device_type;
  FullColumn<std::int64_t> start, end;
  OptionalColumn<std::int64_t> external{kAbsent, {}}, sequence{kAbsent, {}}, fwd_thread{kAbsent, {}},
      debug_handle{kAbsent, {}}, correlation{kAbsent, {}}, device{kAbsent, {}}, context{kAbsent, {}}, stream{kAbsent, {}}, bytes{kAbsent, {}}, ptr{kAbsent, {}},
      total_allocated{kAbsent, {}}, total_reserved{kAbsent, {}};
  OptionalColumn<std::int32_t> end_thread{-1, {}}, module{kNoCode, {}}, stack{kNoCode, {}}, inputs{kNoCode, {}};
  OptionalColumn<std::uint8_t> scope{255, {}}, is_async{0, {}};
  OptionalColumn<double> value{std::numeric_limits<double>::quiet_NaN(), {}}, flops{std::numeric_limits<double>::quiet_NaN(), {}};
  SparseColumn<std::int32_t> args;        // codes of the blobs
  SparseColumn<std::uint8_t> failed, open_at_start, allow_tf32;
  SparseColumn<std::int64_t> impls, storages;  // of each tensor of a row: as many entries of both

  std::size_t size() const { return start.size(); }
  void reserve(std::size_t rows);
  void resize(std::size_t rows);  // cuts what is always there or extends it by rows to be written, cuts the rest
  void pad();
};

}  // namespace profd::scan
