#include "columns.h"

#include <cmath>

namespace profd::scan {
namespace {

template <typename T>
void put(std::vector<T>& column, std::size_t row, T value, T absent) {
  if (column.size() < row) column.resize(row, absent);
  column.push_back(value);
}

template <typename T>
void fill(std::vector<T>& column, std::size_t rows, T absent) {
  if (!column.empty()) column.resize(rows, absent);
}

}  // namespace

void Columns::append(const Row& row) {
  const std::size_t at = size();
  for (unsigned set = row.ints_set; set; set &= set - 1) {
    const auto column = static_cast<unsigned>(__builtin_ctz(set));
    put(ints[column], at, row.ints[column], kAbsent);
  }
  for (std::size_t i = 0; i < kCodeColumns; ++i) {
    if (row.codes[i] >= 0) put(codes[i], at, row.codes[i], kNoCode);
  }
  if (!std::isnan(row.value)) put(value, at, row.value, std::numeric_limits<double>::quiet_NaN());
  name.push_back(row.name);
  cat.push_back(row.cat);
  process.push_back(row.process);
  thread.push_back(row.thread);
  kind.push_back(static_cast<std::uint8_t>(row.kind));
  phase.push_back(static_cast<std::uint8_t>(row.phase));
  device_type.push_back(static_cast<std::uint8_t>(row.device_type));
  start.push_back(row.start);
  end.push_back(row.end);
}

void Columns::pad() {
  const std::size_t rows = size();
  for (auto& column : ints) fill(column, rows, kAbsent);
  for (auto& column : codes) fill(column, rows, kNoCode);
  fill(value, rows, std::numeric_limits<double>::quiet_NaN());
}

void Columns::reserve_like(const Columns& other) {
  // Batches of a trace are alike: growing by doubling would touch twice the memory.
  const auto reserve = [](auto& column, const auto& like) { column.reserve(like.size() + like.size() / 8); };
  reserve(name, other.name), reserve(cat, other.cat), reserve(process, other.process), reserve(thread, other.thread);
  reserve(kind, other.kind), reserve(phase, other.phase), reserve(device_type, other.device_type);
  reserve(start, other.start), reserve(end, other.end), reserve(value, other.value);
  for (std::size_t i = 0; i < kIntColumns; ++i) reserve(ints[i], other.ints[i]);
  for (std::size_t i = 0; i < kCodeColumns; ++i) reserve(codes[i], other.codes[i]);
}

}  // namespace profd::scan
