#include "inputs.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

namespace profd::torch_observer {
namespace {

using c10::DispatchKey;
using c10::IValue;
using inputs::Tag;
using inputs::TagWriter;

// Wrappers whose sizes may be answered by Python code of the job.
const c10::DispatchKeySet kAsksPython({DispatchKey::Python, DispatchKey::Functionalize});

// 0 where there is none, as for meta tensors. Never the checked readers: they throw for fake tensors.
uint64_t storage_of(const c10::TensorImpl& tensor) {
  if (!tensor.has_storage()) return 0;
  return reinterpret_cast<uint64_t>(tensor.unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
}

// The order of the questions matters: each is safe only where those before it were answered.
bool has_sizes(const c10::TensorImpl& tensor) {
  return !tensor.key_set().has_any(kAsksPython) && !tensor.is_nested() && tensor.layout() == c10::kStrided &&
         !tensor.has_symbolic_sizes_strides();
}

// A matrix of integers on the host, a row per tensor; null where it is none. Jagged ones are Python subclasses.
const at::Tensor* nested_sizes(const c10::TensorImpl& tensor) {
  if (!tensor.is_nested() || tensor.key_set().has_any(kAsksPython)) return nullptr;
  const auto* nested = dynamic_cast<const at::native::NestedTensorImpl*>(&tensor);
  if (!nested) return nullptr;
  const at::Tensor& sizes = nested->get_nested_sizes();
  const bool plain = sizes.dim() == 2 && sizes.scalar_type() == at::kLong && sizes.is_cpu() && sizes.is_contiguous();
  return plain ? &sizes : nullptr;
}

void write_unsized(const c10::TensorImpl& tensor, uint8_t dtype, TagWriter& writer) {
  const at::Tensor* sizes = nested_sizes(tensor);
  writer.tag(sizes ? Tag::Nested : Tag::Unsized);
  writer.byte(dtype);
  if (!sizes) return;
  writer.varint(static_cast<uint64_t>(sizes->size(0)));
  writer.varint(static_cast<uint64_t>(sizes->size(1)));
  writer.all(c10::ArrayRef<int64_t>(sizes->const_data_ptr<int64_t>(), static_cast<size_t>(sizes->numel())));
}

void write_tensor(const c10::TensorImpl& tensor, TagWriter& writer, TensorIds* ids) {
  const auto dtype = static_cast<uint8_t>(c10::typeMetaToScalarType(tensor.dtype()));
  if (!has_sizes(tensor)) {
    write_unsized(tensor, dtype, writer);
  } else {
    const auto sizes = tensor.sizes();
    writer.tag(Tag::Tensor);
    writer.byte(dtype);
    writer.varint(sizes.size());
    writer.all(sizes);
    writer.all(tensor.strides());
  }
  if (ids) ids->add(reinterpret_cast<uint64_t>(&tensor), storage_of(tensor));
}

void write_tensor_value(const IValue& value, TagWriter& writer, TensorIds* ids) {
  const auto* tensor = value.unsafeToTensorImpl();
  if (tensor == c10::UndefinedTensorImpl::singleton()) return writer.tag(Tag::Nothing);
  write_tensor(*tensor, writer, ids);
}

void write_tensors(c10::ArrayRef<IValue> tensors, TagWriter& writer, TensorIds* ids, size_t most) {
  const bool cut = tensors.size() > most;
  writer.tag(cut ? Tag::CutTensorList : Tag::TensorList);
  writer.varint(tensors.size());
  if (cut) writer.varint(most);
  for (const IValue& value : cut ? tensors.slice(0, most) : tensors) {
    if (writer.full()) return;
    value.isTensor() ? write_tensor_value(value, writer, ids) : writer.tag(Tag::Nothing);
  }
}

void write_list(const IValue& value, TagWriter& writer, TensorIds* ids, size_t most) {
  const auto elements = value.toListRef();
  if (value.isTensorList()) return write_tensors(elements, writer, ids, most);
  if (elements.empty() || elements[0].isInt()) {
    writer.tag(Tag::IntList);
    writer.varint(elements.size());
    for (const IValue& element : elements) writer.svarint(element.toInt());
  } else if (elements[0].isDouble()) {
    writer.tag(Tag::DoubleList);
    writer.varint(elements.size());
    for (const IValue& element : elements) writer.f64(element.toDouble());
  } else if (elements[0].isBool()) {
    writer.tag(Tag::BoolList);
    writer.varint(elements.size());
    for (const IValue& element : elements) writer.byte(element.toBool());
  } else {
    writer.tag(Tag::Other);
  }
}

void write_scalar(const IValue& value, TagWriter& writer) {
  if (value.isInt()) {
    writer.tag(Tag::Int);
    writer.svarint(value.toInt());
  } else if (value.isBool()) {
    writer.tag(Tag::Bool);
    writer.byte(value.toBool());
  } else if (value.isDouble()) {
    writer.tag(Tag::Double);
    writer.f64(value.toDouble());
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    writer.tag(Tag::Complex);
    writer.f64(number.real());
    writer.f64(number.imag());
  } else {
    writer.tag(Tag::Other);
  }
}

void write_value(const IValue& value, TagWriter& writer, TensorIds* ids, size_t most) {
  if (value.isTensor()) {
    write_tensor_value(value, writer, ids);
  } else if (value.isNone()) {
    writer.tag(Tag::Nothing);
  } else if (value.isList()) {
    write_list(value, writer, ids, most);
  } else {
    write_scalar(value, writer);
  }
}

}  // namespace

void write_inputs(c10::ArrayRef<const IValue> values, TagWriter& writer, TensorIds* ids, size_t most) {
  for (const IValue& value : values) {
    if (writer.full()) return;
    const TagWriter before = writer;
    try {
      write_value(value, writer, ids, most);
    } catch (...) {  // a list of mixed types, a tensor of a kind that nobody has met yet
      writer = before;
      writer.tag(Tag::Other);
    }
  }
}

}  // namespace profd::torch_observer
