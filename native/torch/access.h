// Members of at::RecordFunction that have no cheap public reader. An explicit instantiation may name private members
// (C++20 [temp.spec.general]/6), and the observer is compiled for one torch version at a time: a member that was renamed
// fails the build instead of misreading memory.
#pragma once

#include <ATen/record_function.h>

namespace profd::torch_observer {

template <auto Member, typename Tag>
struct Expose {
  friend const auto& member_of(const at::RecordFunction& fn, Tag) { return fn.*Member; }
};

struct DescriptorTag {};
struct AsyncTag {};
const auto& member_of(const at::RecordFunction& fn, DescriptorTag);
const auto& member_of(const at::RecordFunction& fn, AsyncTag);
template struct Expose<&at::RecordFunction::fn_, DescriptorTag>;
template struct Expose<&at::RecordFunction::is_async_, AsyncTag>;

// The name of a RecordFunction: text of its own, or the schema of a registered operator.
inline const auto& descriptor_of(const at::RecordFunction& fn) { return member_of(fn, DescriptorTag{}); }

// isAsync() without the call into the library: it is asked twice per op.
inline bool is_async(const at::RecordFunction& fn) { return member_of(fn, AsyncTag{}); }

}  // namespace profd::torch_observer
