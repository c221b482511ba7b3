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

// A new reference or null, never an exception.
PyObject* attribute(PyObject* of, const char* name) {
  PyObject* found = PyObject_GetAttrString(of, name);
  if (!found) PyErr_Clear();
  return found;
}

PyObject* call(PyObject* of, const char* name) {
  PyObject* result = PyObject_CallMethod(of, name, nullptr);
  if (!result) PyErr_Clear();
  return result;
}

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
    return put_tensor(value) || put_interface(value, "__array_interface__") ||
           put_interface(value, "__cuda_array_interface__") || put_exchangeable(value);
  }

  // torch's own tensors; of subclasses only the type is noted, since their sizes may be answered by Python code.
  bool put_tensor(PyObject* value) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
    const Reference base(torch_attribute("torch", "Tensor"));
    if (!base || !PyType_Check(base.get()) ||
        !PyType_IsSubtype(Py_TYPE(value), reinterpret_cast<PyTypeObject*>(base.get()))) return false;
    const Reference parameter(torch_attribute("torch.nn.parameter", "Parameter"));
    if (type != base.get() && type != parameter.get()) {
      out_.tag(Tag::Unsized);
      out_.byte(kOtherType);
      add_ids(reinterpret_cast<uintptr_t>(value), 0);
      return true;
    }
    const Reference dtype(attribute(value, "dtype"));
    const uint8_t number = type_number(dtype.get());
    if (is_strided(value)) {
      const Reference shape(attribute(value, "shape")), strides(call(value, "stride"));
      put_strided(number, shape.get(), strides.get(), 1);
    } else {  // sparse and nested ones answer with sizes that mean something else, or not at all
      out_.tag(Tag::Unsized);
      out_.byte(number);
    }
    const Reference impl(attribute(value, "_cdata")), data(storage_of(value));
    add_ids(address(impl.get()), address(data.get()));
    return true;
  }

  static PyObject* storage_of(PyObject* tensor) {
    const Reference storage(call(tensor, "untyped_storage"));
    return storage ? call(storage.get(), "data_ptr") : nullptr;
  }

  static bool is_strided(PyObject* tensor) {
    const Reference layout(attribute(tensor, "layout")), strided(torch_attribute("torch", "strided"));
    return layout && layout.get() == strided.get();
  }

  static PyObject* torch_attribute(const char* module_name, const char* name) {
    PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), module_name);  // never imports
    return module ? attribute(module, name) : nullptr;
  }

  // numpy's and cupy's: a dictionary of shape, typestr, strides in bytes (None: contiguous) and the address.
  bool put_interface(PyObject* value, const char* name) {
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
    if (!has_type_attribute(value, "__dlpack__")) return false;
    const Reference dtype(attribute(value, "dtype")), shape(attribute(value, "shape"));
    put_strided(type_number(dtype.get()), shape.get(), nullptr, 0);
    add_ids(reinterpret_cast<uintptr_t>(value), 0);
    return true;
  }

  static bool has_type_attribute(PyObject* value, const char* name) {
    PyTypeObject* type = Py_TYPE(value);
    const Reference found(attribute(reinterpret_cast<PyObject*>(type), name));
    return bool(found);
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
