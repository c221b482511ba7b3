#include "attributes.h"

#include <cstring>

#include "inputs.h"
#include "observer.h"
#include "script.h"

namespace profd::torch_observer {

using arena::Ext;

void Attributes::collect(const recorder::Api& api, recorder::Thread* thread, recorder::Session session,
                         const at::RecordFunction& fn, uint32_t wanted) {
  bool fits = true;
  const int64_t debug_handle = fn.debugHandle();
  if (debug_handle != -1) fits &= add(Ext::DebugHandle, &debug_handle, sizeof debug_handle);
  // As torch.profiler does: what a backward op came from is known by its forward op.
  if (fn.scope() != at::RecordScope::BACKWARD_FUNCTION) {
    if (wanted & kStacks) {
      if (const uint32_t stack = script_stack(api, thread, session)) fits &= add(Ext::Stack, &stack, sizeof stack);
    }
    if (wanted & kModules) {
      if (const uint32_t module = script_module(api, thread, session)) fits &= add(Ext::Module, &module, sizeof module);
    }
  }
  if (wanted & kInputs) fits &= add_inputs(fn, wanted & kTensorIds);
  if (__builtin_expect(!fits, 0)) api.lose(recorder::Lost::TooLarge, 1);
}

bool Attributes::add_inputs(const at::RecordFunction& fn, bool with_ids) {
  TensorIds ids;
  const size_t start = used_ + kRecordHeader;
  if (start > kBytes) return false;
  inputs::TagWriter writer(bytes_ + start, bytes_ + kBytes);
  write_inputs(fn.inputs(), writer, with_ids ? &ids : nullptr);
  if (__builtin_expect(writer.full(), 0)) return false;
  const size_t bytes = static_cast<size_t>(writer.at() - (bytes_ + start));
  if (bytes == 0) return true;
  head(used_, Ext::Inputs, bytes);
  used_ = start + bytes;
  return !ids.full() && (ids.count() == 0 || add(Ext::TensorIds, ids.data(), ids.bytes()));
}

bool Attributes::add(Ext type, const void* from, size_t bytes) {
  if (used_ + kRecordHeader + bytes > kBytes) return false;
  head(used_, type, bytes);
  std::memcpy(bytes_ + used_ + kRecordHeader, from, bytes);
  used_ += kRecordHeader + bytes;
  return true;
}

void Attributes::head(size_t at, Ext type, size_t bytes) {
  const uint16_t length = static_cast<uint16_t>(bytes);
  bytes_[at] = static_cast<uint8_t>(type);
  bytes_[at + 1] = 0;
  std::memcpy(bytes_ + at + 2, &length, sizeof length);
}

}  // namespace profd::torch_observer
