#include "inputs_py.h"

#include <cstring>

#include "inputs.h"
#include "names_py.h"

namespace profd::recorder {

namespace {

using inputs::Tag;
using inputs::TagWriter;

constexpr int kIdsMost = 256;
constexpr Py_ssize_t kDimensionsMost = 64;
constexpr uint8_t kOtherType = 255;

struct TypeName {
  const char* name;
  uint8_t number;  // of c10::ScalarType
};

constexpr TypeName kTypes[] = {
    {"uint8", 0},  {"u1", 0},       {"int8", 1},      {"i1", 1},         {"int16", 2},      {"i2", 2},
    {"int32", 3},  {"i4", 3},       {"int64", 4},     {"i8", 4},         {"float16", 5},    {"f2", 5},
    {"float32", 6}, {"f4", 6},      {"float64", 7},   {"f8", 7},         {"complex32", 8},  {"complex64", 9},
    {"c8", 9},     {"complex128", 10}, {"c16", 10},   {"bool", 11},      {"b1", 11},        {"bfloat16", 15},
    {"float8_e5m2", 23}, {"float8_e4m3fn", 24}, {"uint16", 27}, {"u2", 27}, {"uint32", 28}, {"u4", 28},
    {"uint64", 29}, {"u8", 29},
};

uint8_t type_by_name(const char* text, size_t bytes) {
  for (const TypeName& type : kTypes) {
    if (std::strlen(type.name) == bytes && std::memcmp(type.name, text, bytes) == 0) return type.number;
  }
  return kOtherType;
}

// Attribute names, made once.
struct AttributeNames {
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* stride = PyUnicode_InternFromString("stride");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* cdata = PyUnicode_InternFromString("_cdata");
  PyObject* untyped_storage = PyUnicode_InternFromString("untyped_storage");
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* array_interface = PyUnicode_InternFromString("__array_interface__");
  PyObject* cuda_array_interface = PyUnicode_InternFromString("__cuda_array_interface__");
  PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
};

const AttributeNames& attribute_names() {
  static const AttributeNames made;
  return made;
}

// A new reference or null, never an exception.
PyObject* attribute(PyObject* of, PyObject* name) {
  PyObject* found = name ? PyObject_GetAttr(of, name) : nullptr;
  if (!found) PyErr_Clear();
  return found;
}

PyObject* call(PyObject* of, PyObject* name) {
  PyObject* result = name ? PyObject_CallMethodNoArgs(of, name) : nullptr;
  if (!result) PyErr_Clear();
  return result;
}

// What this file needs of torch, once it has been imported by somebody else.
struct Torch {
  PyTypeObject* tensor = nullptr;
  PyTypeObject* parameter = nullptr;
  PyObject* strided = nullptr;

  // False: torch is not there (yet).
  bool found() {
    if (tensor) return true;
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* torch = PyDict_GetItemString(modules, "torch");
    PyObject* parameters = PyDict_GetItemString(modules, "torch.nn.parameter");
    if (!torch || !parameters) return false;
    PyObject* type = PyObject_GetAttrString(torch, "Tensor");
    PyObject* parameter_type = PyObject_GetAttrString(parameters, "Parameter");
    PyObject* layout = PyObject_GetAttrString(torch, "strided");
    if (!type || !parameter_type || !layout || !PyType_Check(type) || !PyType_Check(parameter_type)) {
      PyErr_Clear();
      Py_XDECREF(type);
      Py_XDECREF(parameter_type);
      Py_XDECREF(layout);
      return false;
    }
    parameter = reinterpret_cast<PyTypeObject*>(parameter_type);
    strided = layout;
    tensor = reinterpret_cast<PyTypeObject*>(type);
    return true;
  }
};

Torch torch;

class Reference {
 public:
  explicit Reference(PyObject* object) : object_(object) {}
  ~Reference() { Py_XDECREF(object_); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

// "float32" of numpy.dtype('float32') and jax, "torch.float32", "<f4".
uint8_t type_number(PyObject* dtype) {
  if (!dtype) return kOtherType;
  const Reference text(PyUnicode_Check(dtype) ? Py_NewRef(dtype) : PyObject_Str(dtype));
  if (!text) {
    PyErr_Clear();
    return kOtherType;
  }
  Py_ssize_t bytes;
  PyObject* owner = nullptr;
  const char* name = utf8_of(text.get(), &bytes, &owner);
  if (!name) return kOtherType;
  const char* end = name + bytes;
  if (const void* dot = memrchr(name, '.', static_cast<size_t>(bytes))) name = static_cast<const char*>(dot) + 1;
  while (name < end && std::strchr("<>=|", *name)) name++;
  const uint8_t number = type_by_name(name, static_cast<size_t>(end - name));
  Py_XDECREF(owner);
  return number;
}

// The same, remembered by address for the few dtype objects that torch has; each is kept alive.
uint8_t known_type(PyObject* dtype) {
  struct Known {
    PyObject* dtype = nullptr;
    uint8_t number = 0;
  };
  static Known known[32];
  if (!dtype) return kOtherType;
  for (Known& entry : known) {
    if (entry.dtype == dtype) return entry.number;
    if (entry.dtype) continue;
    entry = {Py_NewRef(dtype), type_number(dtype)};
    return entry.number;
  }
  return type_number(dtype);
}

// Of a format as struct(5) of Python writes it, for native byte order. 255: of the rest.
uint8_t type_of_format(const char* format, Py_ssize_t bytes) {
  if (!format) return kOtherType;
  if (format[0] == 'Z' && format[1] && !format[2]) return bytes == 8 ? 9 : bytes == 16 ? 10 : kOtherType;
  if (format[0] == 0 || format[1] != 0) return kOtherType;
  if (format[0] == '?') return 11;
  if (std::strchr("efd", format[0])) return bytes == 2 ? 5 : bytes == 4 ? 6 : 7;
  if (std::strchr("bhilq", format[0])) return bytes == 1 ? 1 : bytes == 2 ? 2 : bytes == 4 ? 3 : 4;
  if (std::strchr("BHILQ", format[0])) return bytes == 1 ? 0 : bytes == 2 ? 27 : bytes == 4 ? 28 : 29;
  return kOtherType;
}

// Integers of a tuple; -1: it is none, or holds something else.
Py_ssize_t numbers_of(PyObject* tuple, int64_t* out) {
  if (!tuple || !PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > kDimensionsMost) return -1;
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (!PyLong_Check(item)) return -1;  // a symbolic size
    out[i] = PyLong_AsLongLong(item);
    if (out[i] == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return -1;
    }
  }
  return count;
}

class Inputs {
 public:
  explicit Inputs(TagWriter& writer) : out_(writer) {}

  void put(PyObject* value) {
    if (put_scalar(value) || put_array(value)) return;
    if (PyList_Check(value) || PyTuple_Check(value)) return put_list(value);
    out_.tag(Tag::Other);
  }

  const uint64_t* ids() const { return ids_; }
  int id_count() const { return id_count_; }

 private:
  bool put_scalar(PyObject* value) {
    if (value == Py_None) {
      out_.tag(Tag::Nothing);
    } else if (PyBool_Check(value)) {
      out_.tag(Tag::Bool);
      out_.byte(value == Py_True);
    } else if (PyLong_CheckExact(value)) {
      put_int(value);
    } else if (PyFloat_CheckExact(value)) {
      out_.tag(Tag::Double);
      out_.f64(PyFloat_AS_DOUBLE(value));
    } else if (PyComplex_CheckExact(value)) {
      out_.tag(Tag::Complex);
      out_.f64(PyComplex_RealAsDouble(value));
      out_.f64(PyComplex_ImagAsDouble(value));
    } else {
      return false;
    }
    return true;
  }

  void put_int(PyObject* value) {
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return out_.tag(Tag::Other);
    out_.tag(Tag::Int);
    out_.svarint(number);
  }

  // Lists of one type; what is mixed, or nested, is Other.
  void put_list(PyObject* list) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    PyObject* const* items = PySequence_Fast_ITEMS(list);
    if (all(items, count, [](PyObject* item) { return PyLong_CheckExact(item) && fits(item); })) {
      out_.tag(Tag::IntList);
      out_.varint(static_cast<uint64_t>(count));
      for (Py_ssize_t i = 0; i < count && !out_.full(); i++) out_.svarint(PyLong_AsLongLong(items[i]));
    } else if (all(items, count, [](PyObject* item) { return bool(PyFloat_CheckExact(item)); })) {
      out_.tag(Tag::DoubleList);
      out_.varint(static_cast<uint64_t>(count));
      for (Py_ssize_t i = 0; i < count && !out_.full(); i++) out_.f64(PyFloat_AS_DOUBLE(items[i]));
    } else if (all(items, count, [](PyObject* item) { return bool(PyBool_Check(item)); })) {
      out_.tag(Tag::BoolList);
      out_.varint(static_cast<uint64_t>(count));
      for (Py_ssize_t i = 0; i < count && !out_.full(); i++) out_.byte(items[i] == Py_True);
    } else {
      put_arrays(list, count);
    }
  }

  // The attributes of arrays may be Python code, which may change the list: it is asked for each item anew.
  void put_arrays(PyObject* list, Py_ssize_t count) {
    const TagWriter before = out_;
    const int ids_before = id_count_;
    out_.tag(Tag::TensorList);
    out_.varint(static_cast<uint64_t>(count));
    for (Py_ssize_t i = 0; i < count && !out_.full(); i++) {
      const bool there = i < PySequence_Fast_GET_SIZE(list);
      const Reference item(Py_NewRef(there ? PySequence_Fast_GET_ITEM(list, i) : Py_None));
      if (item.get() == Py_None) {
        out_.tag(Tag::Nothing);
      } else if (!put_array(item.get())) {
        out_ = before;
        id_count_ = ids_before;
        return out_.tag(Tag::Other);
      }
    }
  }

  template <typename Test>
  static bool all(PyObject* const* items, Py_ssize_t count, Test test) {
    for (Py_ssize_t i = 0; i < count; i++) {
      if (!test(items[i])) return false;
    }
    return true;
  }

  static bool fits(PyObject* number) {
    int overflow;
    PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow == 0;
  }

  bool put_array(PyObject* value) {
    return put_tensor(value) || put_buffer(value) || put_interface(value, attribute_names().array_interface) ||
           put_interface(value, attribute_names().cuda_array_interface) || put_exchangeable(value);
  }

  // torch's own tensors; of subclasses only the type is noted, since their sizes may be answered by Python code.
  bool put_tensor(PyObject* value) {
    if (!torch.found() || !PyType_IsSubtype(Py_TYPE(value), torch.tensor)) return false;
    if (Py_TYPE(value) != torch.tensor && Py_TYPE(value) != torch.parameter) {
      out_.tag(Tag::Unsized);
      out_.byte(kOtherType);
      add_ids(reinterpret_cast<uintptr_t>(value), 0);
      return true;
    }
    const Reference dtype(attribute(value, attribute_names().dtype)), layout(attribute(value, attribute_names().layout));
    const uint8_t number = known_type(dtype.get());
    if (layout.get() == torch.strided) {
      const Reference shape(attribute(value, attribute_names().shape)), strides(call(value, attribute_names().stride));
      put_strided(number, shape.get(), strides.get(), 1);
    } else {  // sparse and nested ones answer with sizes that mean something else, or not at all
      out_.tag(Tag::Unsized);
      out_.byte(number);
    }
    const Reference impl(attribute(value, attribute_names().cdata)), data(storage_of(value));
    add_ids(address(impl.get()), address(data.get()));
    return true;
  }

  static PyObject* storage_of(PyObject* tensor) {
    const Reference storage(call(tensor, attribute_names().untyped_storage));
    return storage ? call(storage.get(), attribute_names().data_ptr) : nullptr;
  }

  // numpy's by the buffer protocol, a quarter of what its dictionary costs.
  bool put_buffer(PyObject* value) {
    if (!PyObject_CheckBuffer(value) || !has_type_attribute(value, attribute_names().array_interface)) return false;
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_RECORDS_RO) < 0) {  // types that buffers cannot say
      PyErr_Clear();
      return false;
    }
    const uint8_t type = type_of_format(view.format, view.itemsize);
    const bool usual = type != kOtherType && view.itemsize > 0 && view.ndim <= kDimensionsMost && view.strides;
    if (usual) {
      out_.tag(Tag::Tensor);
      out_.byte(type);
      out_.varint(static_cast<uint64_t>(view.ndim));
      for (int i = 0; i < view.ndim; i++) out_.svarint(view.shape[i]);
      for (int i = 0; i < view.ndim; i++) out_.svarint(view.strides[i] / view.itemsize);
      add_ids(reinterpret_cast<uintptr_t>(value), reinterpret_cast<uintptr_t>(view.buf));
    }
    PyBuffer_Release(&view);
    return usual;
  }

  // numpy's and cupy's: a dictionary of shape, typestr, strides in bytes (None: contiguous) and the address.
  bool put_interface(PyObject* value, PyObject* name) {
    if (!has_type_attribute(value, name)) return false;
    const Reference interface(attribute(value, name));
    if (!interface || !PyDict_Check(interface.get())) return false;
    PyObject* type = PyDict_GetItemString(interface.get(), "typestr");
    PyObject* data = PyDict_GetItemString(interface.get(), "data");
    if (!type || !PyUnicode_Check(type)) return false;
    put_strided(type_number(type), PyDict_GetItemString(interface.get(), "shape"),
                PyDict_GetItemString(interface.get(), "strides"), item_bytes(type));
    PyObject* pointer = data && PyTuple_Check(data) && PyTuple_GET_SIZE(data) ? PyTuple_GET_ITEM(data, 0) : nullptr;
    add_ids(reinterpret_cast<uintptr_t>(value), address(pointer));
    return true;
  }

  // Whatever else can be exchanged by DLPack. It is not asked for its capsule: making one may wait for the device.
  bool put_exchangeable(PyObject* value) {
    if (!has_type_attribute(value, attribute_names().dlpack)) return false;
    const Reference dtype(attribute(value, attribute_names().dtype)), shape(attribute(value, attribute_names().shape));
    put_strided(type_number(dtype.get()), shape.get(), nullptr, 0);
    add_ids(reinterpret_cast<uintptr_t>(value), 0);
    return true;
  }

  // Looked up along the type's bases only: no __getattr__ of the object or its metaclass runs.
  static bool has_type_attribute(PyObject* value, PyObject* name) {
    return name && _PyType_Lookup(Py_TYPE(value), name);
  }

  // "<f4": 4. 0: unknown.
  static int64_t item_bytes(PyObject* typestr) {
    Py_ssize_t bytes;
    PyObject* owner = nullptr;
    const char* text = utf8_of(typestr, &bytes, &owner);
    int64_t size = 0;
    for (Py_ssize_t i = 2; text && i < bytes && text[i] >= '0' && text[i] <= '9' && size < 1 << 20; i++) {
      size = size * 10 + (text[i] - '0');
    }
    Py_XDECREF(owner);
    return size;
  }

  // `unit`: bytes of what strides count; 0: they are unknown. Strides None: row-major.
  void put_strided(uint8_t type, PyObject* shape, PyObject* strides, int64_t unit) {
    int64_t sizes[kDimensionsMost], steps[kDimensionsMost];
    const Py_ssize_t dimensions = numbers_of(shape, sizes);
    if (dimensions < 0) {
      out_.tag(Tag::Unsized);
      return out_.byte(type);
    }
    bool strided = unit > 0;
    if (strided && (!strides || strides == Py_None)) {
      int64_t step = 1;
      for (Py_ssize_t i = dimensions - 1; i >= 0; i--) {
        steps[i] = step;
        if (__builtin_mul_overflow(step, sizes[i] ? sizes[i] : 1, &step)) strided = false;
      }
    } else if (strided) {
      strided = numbers_of(strides, steps) == dimensions;
      for (Py_ssize_t i = 0; strided && i < dimensions; i++) steps[i] /= unit;
    }
    out_.tag(strided ? Tag::Tensor : Tag::Unstrided);
    out_.byte(type);
    out_.varint(static_cast<uint64_t>(dimensions));
    for (Py_ssize_t i = 0; i < dimensions; i++) out_.svarint(sizes[i]);
    for (Py_ssize_t i = 0; strided && i < dimensions; i++) out_.svarint(steps[i]);
  }

  static uint64_t address(PyObject* number) {
    if (!number || !PyLong_Check(number)) return 0;
    const unsigned long long value = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return 0;
    }
    return value;
  }

  void add_ids(uint64_t impl, uint64_t storage) {
    if (id_count_ == kIdsMost) return;
    ids_[2 * id_count_] = impl;
    ids_[2 * id_count_ + 1] = storage;
    id_count_++;
  }

  TagWriter& out_;
  uint64_t ids_[2 * kIdsMost];
  int id_count_ = 0;
};

}  // namespace

void put_inputs(Extensions& out, PyObject* inputs) {
  uint8_t raw[4096];
  TagWriter writer(raw, raw + sizeof raw);
  Inputs found(writer);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(inputs);
  for (Py_ssize_t i = 0; i < count && i < PySequence_Fast_GET_SIZE(inputs) && !writer.full(); i++) {
    const Reference item(Py_NewRef(PySequence_Fast_GET_ITEM(inputs, i)));
    found.put(item.get());
  }
  if (writer.full()) {
    out.leave_out();
    return;
  }
  out.put(arena::Ext::Inputs, raw, static_cast<size_t>(writer.at() - raw));
  if (found.id_count()) {
    out.put(arena::Ext::TensorIds, found.ids(), static_cast<size_t>(found.id_count()) * 2 * sizeof(uint64_t));
  }
}

}  // namespace profd::recorder
