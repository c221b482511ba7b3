#include "chunk_columns.h"

namespace profd::scan {

void ChunkColumns::reserve(std::size_t rows) {
  for (auto* column : {&name, &cat, &process, &thread}) column->reserve(rows);
  for (auto* column : {&kind, &phase, &device_type}) column->reserve(rows);
  start.reserve(rows);
  end.reserve(rows);
}

void ChunkColumns::resize(std::size_t rows) {
  for (auto* column : {&name, &cat, &process, &thread}) column->resize(rows);
  for (auto* column : {&kind, &phase, &device_type}) column->resize(rows);
  start.resize(rows);
  end.resize(rows);
  for (auto* column : {&external, &sequence, &fwd_thread, &debug_handle, &correlation, &device, &context, &stream, &bytes, &ptr, &total_allocated, &total_reserved}) {
    column->cut(rows);
  }
  for (auto* column : {&end_thread, &module, &stack, &inputs}) column->cut(rows);
  for (auto* column : {&scope, &is_async}) column->cut(rows);
  for (auto* column : {&value, &flops}) column->cut(rows);
  args.cut(rows);
  for (auto* column : {&impls, &storages}) column->cut(rows);
  for (auto* column : {&failed, &open_at_start, &allow_tf32}) column->cut(rows);
}

void ChunkColumns::pad() {
  const std::size_t rows = size();
  for (auto* column : {&external, &sequence, &fwd_thread, &debug_handle, &correlation, &device, &context, &stream, &bytes, &ptr, &total_allocated, &total_reserved}) {
    column->pad(rows);
  }
  for (auto* column : {&end_thread, &module, &stack, &inputs}) column->pad(rows);
  for (auto* column : {&scope, &is_async}) column->pad(rows);
  for (auto* column : {&value, &flops}) column->pad(rows);
}

}  // namespace profd::scan
