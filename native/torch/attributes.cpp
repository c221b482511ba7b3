#include "attributes.h"

#include <cstring>

#include "inputs.h"
#include "observer.h"

namespace profd::torch_observer {

using arena::Ext;
using arena::Slot;

bool Attributes::collect(const at::RecordFunction& fn, const ScriptPlace& place, uint32_t wanted) {
  bool fits = true;
  const int64_t debug_handle = fn.debugHandle();
  if (__builtin_expect(debug_handle != -1, 0)) fits &= add(Ext::DebugHandle, &debug_handle, sizeof debug_handle);
  if (place.stack) fits &= add(Ext::Stack, &place.stack, sizeof place.stack);
  if (place.module) fits &= add(Ext::Module, &place.module, sizeof place.module);
  small_ = used_;
  return fits && (!(wanted & kInputs) || add_inputs(fn, wanted & kTensorIds, kWhole));
}

uint32_t Attributes::close() {
  const auto slots = static_cast<uint32_t>((used_ + sizeof(Slot) - 1) / sizeof(Slot));
  std::memset(bytes_ + used_, 0, slots * sizeof(Slot) - used_);
  return slots;
}

bool Attributes::cut(const at::RecordFunction& fn, uint32_t wanted) {
  keep_small();
  return add_inputs(fn, wanted & kTensorIds, kCut);
}

bool Attributes::add_inputs(const at::RecordFunction& fn, bool with_ids, size_t most) {
  TensorIds ids;
  if (used_ + kRecordHeader > capacity_) return false;
  uint8_t* const start = bytes_ + used_ + kRecordHeader;
  inputs::TagWriter writer(start, bytes_ + capacity_);
  write_inputs(fn.inputs(), writer, with_ids ? &ids : nullptr, most);
  if (__builtin_expect(writer.full(), 0) || ids.full()) return false;
  const auto bytes = static_cast<size_t>(writer.at() - start);
  if (bytes == 0) return true;
  const size_t before = used_;
  head(Ext::Inputs, bytes);
  used_ += kRecordHeader + bytes;
  if (ids.count() == 0 || add(Ext::TensorIds, ids.data(), ids.bytes())) return true;
  used_ = before;  // both or neither: they are read side by side
  return false;
}

bool Attributes::add(Ext type, const void* from, size_t bytes) {
  if (used_ + kRecordHeader + bytes > capacity_) return false;
  head(type, bytes);
  std::memcpy(bytes_ + used_ + kRecordHeader, from, bytes);
  used_ += kRecordHeader + bytes;
  return true;
}

void Attributes::head(Ext type, size_t bytes) {
  const uint32_t both = static_cast<uint32_t>(type) | static_cast<uint32_t>(bytes) << 16;
  std::memcpy(bytes_ + used_, &both, sizeof both);
}

}  // namespace profd::torch_observer
