// The type record_function. `with` asks the type for __enter__ and __exit__ and calls what it gets: here descriptors
// that give the range itself, which is callable by vectorcall. No bound method is made: 54 ns instead of 82.
#include <cstddef>

#include "json_py.h"
#include "mirror.h"
#include "names_py.h"
#include "parts.h"
#include "span.h"
#include "types_py.h"

namespace profd::recorder {

namespace {

constexpr int kFreeMost = 32;
Span* free_spans[kFreeMost];
int free_count = 0;

PyObject* call_span(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords);
PyObject* call_mirrored_span(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords);

// What the ranges that are made now call: only those of while there is a mirror look for one.
vectorcallfunc call_now() { return mirrors() ? call_mirrored_span : call_span; }

// The handle of the entry that is still open goes onto a stack: one object, entered again before its exit.
bool keep_outer(Span* span) {
  const uint32_t depth = span->entered - 1;
  if (depth >= span->outer_room) {
    const uint32_t room = span->outer_room ? 2 * span->outer_room : 4;
    Handle* bigger = static_cast<Handle*>(PyMem_Realloc(span->outer, room * sizeof(Handle)));
    if (!bigger) return false;
    span->outer = bigger;
    span->outer_room = room;
  }
  span->outer[depth] = span->handle;
  return true;
}

inline void begin_span(Span* span) {
  span->handle.place.hold = kNotRecorded;
  const Session session = session_of(api, kRanges);
  if (!session) return;
  if (__builtin_expect(span->detail != nullptr, 0)) return begin_range(span->name, span->detail, &span->handle);
  Thread* thread = current_thread();
  if (__builtin_expect(!thread, 0)) return;
  if (__builtin_expect(span->id_session != session || span->id == arena::kNoName, 0)) {
    span->id = name_id(thread, session, span->name);
    span->id_session = session;
  }
  begin(api, thread, session, span->id, Kind::Range, 0, &span->handle);
}

inline PyObject* enter(Span* span) {
  if (__builtin_expect(span->entered != 0, 0) && !keep_outer(span)) return PyErr_NoMemory();
  span->entered++;
  begin_span(span);
  return Py_NewRef(reinterpret_cast<PyObject*>(span));
}

inline PyObject* leave(Span* span, PyObject* exception) {
  if (__builtin_expect(span->entered == 0, 0)) Py_RETURN_NONE;  // exit without enter: not ours to fail
  end_range(span->handle, exception == Py_None ? 0 : arena::kFailed);
  span->handle.place.hold = kNotRecorded;
  if (__builtin_expect(--span->entered != 0, 0)) span->handle = span->outer[span->entered - 1];
  Py_RETURN_NONE;
}

Span* new_span() {
  if (free_count) {
    Span* span = free_spans[--free_count];
    Py_SET_REFCNT(reinterpret_cast<PyObject*>(span), 1);
    span->call = call_now();
    return span;
  }
  Span* span = PyObject_New(Span, &SpanType);
  if (!span) return nullptr;
  span->call = call_now();
  span->exit = nullptr;
  span->outer = nullptr;
  span->outer_room = 0;
  span->entered = 0;
  span->handle.place.hold = kNotRecorded;
  return span;
}

PyObject* exit_span(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (__builtin_expect(count == 3, 1)) return leave(reinterpret_cast<Span*>(self), args[0]);
  PyErr_Format(PyExc_TypeError, "__exit__ takes type, value and traceback of an exception, not %zd arguments", count);
  return nullptr;
}

PyMethodDef exit_method = {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(exit_span)), METH_FASTCALL,
                           nullptr};

// One range for each of the names used of late. It is given out again when nobody else has it: nothing to make, nothing
// to free, and the name's id is known. From then on a function leaves it, which the interpreter calls faster than other
// objects: 5 ns. The two own each other until let_go.
Span* kept_spans[kRecentNames];

// Making a function may run the garbage collector, and with that anything.
void make_exit(Span* span) {
  PyObject* made = PyCFunction_New(&exit_method, reinterpret_cast<PyObject*>(span));
  if (!made) return PyErr_Clear();
  const bool still_kept = kept_spans[recent_slot(span->name)] == span && !span->exit;
  if (still_kept) span->exit = made;
  else Py_DECREF(made);
}

// A new reference, or null.
PyObject* kept_span(PyObject* name) {
  Span* span = kept_spans[recent_slot(name)];
  if (__builtin_expect(!span || span->name != name || span->entered, 0)) return nullptr;
  PyObject* object = reinterpret_cast<PyObject*>(span);
  if (__builtin_expect(span->exit != nullptr, 1)) {
    const bool free = Py_REFCNT(object) == 2 && Py_REFCNT(span->exit) == 1;
    return __builtin_expect(free, 1) ? Py_NewRef(object) : nullptr;
  }
  if (Py_REFCNT(object) != 1) return nullptr;
  Py_INCREF(object);
  make_exit(span);
  return object;
}

void let_go(Span* kept) {
  if (!kept) return;
  Py_CLEAR(kept->exit);
  Py_DECREF(reinterpret_cast<PyObject*>(kept));
}

// While there is a mirror none is kept: their functions do not look for one.
void keep_span(Span* span) {
  if (!PyUnicode_CHECK_INTERNED(span->name) || mirrors()) return;
  Span*& kept = kept_spans[recent_slot(span->name)];
  if (kept && kept->name == span->name && kept->entered) return;  // ranges of one name within each other
  Span* before = kept;
  kept = reinterpret_cast<Span*>(Py_NewRef(reinterpret_cast<PyObject*>(span)));
  let_go(before);
}

void free_span(PyObject* self) {
  Span* span = reinterpret_cast<Span*>(self);
  Py_DECREF(span->name);
  if (__builtin_expect(span->detail != nullptr, 0)) free_detail(span->detail);
  if (span->outer || span->entered || free_count == kFreeMost) {
    PyMem_Free(span->outer);
    PyObject_Free(self);
    return;
  }
  span->handle.place.hold = kNotRecorded;
  free_spans[free_count++] = span;
}

PyObject* make_from_call(PyObject*, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (__builtin_expect(count == 1 && !keywords, 1)) {
    if (PyObject* kept = kept_span(args[0])) return kept;
  }
  if (__builtin_expect(count != 1 || !PyUnicode_Check(args[0]), 0)) {
    PyErr_Format(PyExc_TypeError, "record_function takes a name (str) and keyword arguments, not %s",
                 count == 0 ? "nothing" : count > 1 ? "several positional ones" : Py_TYPE(args[0])->tp_name);
    return nullptr;
  }
  Detail* detail = nullptr;
  if (__builtin_expect(keywords && PyTuple_GET_SIZE(keywords), 0)) {
    detail = make_detail(args + 1, keywords);
    if (!detail) return nullptr;
  }
  PyObject* made = make_span(args[0], detail);
  if (made && !detail) keep_span(reinterpret_cast<Span*>(made));
  return made;
}

PyObject* call_span(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  Span* span = reinterpret_cast<Span*>(self);
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (__builtin_expect(keywords != nullptr && PyTuple_GET_SIZE(keywords), 0)) {
    PyErr_SetString(PyExc_TypeError, "a range is called with the function to decorate, without keyword arguments");
    return nullptr;
  }
  if (count == 0) return enter(span);
  if (count == 3) return leave(span, args[0]);
  if (count == 1) return decorate(span, args[0]);
  PyErr_Format(PyExc_TypeError, "a range is called with the function to decorate, not with %zd arguments", count);
  return nullptr;
}

PyObject* call_mirrored_span(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (count == 0 && mirrors()) mirror_begin(self, reinterpret_cast<Span*>(self)->name);
  PyObject* result = call_span(self, args, nargsf, keywords);
  if (count == 3) mirror_end(self);
  return result;
}

PyObject* span_name(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<Span*>(self)->name); }

PyObject* span_recorded(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<Span*>(self)->handle.place.hold != kNotRecorded);
}

// A range like this one, to be entered beside it, and allowed to end on another thread.
PyObject* span_async_copy(PyObject* self, PyObject*) {
  const Span* span = reinterpret_cast<Span*>(self);
  Detail* detail = copy_detail(span->detail);
  if (!detail) return nullptr;
  detail->flags |= arena::kAsync;
  return make_span(span->name, detail);
}

PyObject* span_repr(PyObject* self) {
  return PyUnicode_FromFormat("record_function(%R)", reinterpret_cast<Span*>(self)->name);
}

PyMethodDef span_methods[] = {
    {"end_on", end_on, METH_O,
     "end_on(future)\n--\n\nEnd the range when `future` is done instead of at the end of the block; gives the future."},
    {"_async_copy", span_async_copy, METH_NOARGS, "A range like this one that may interleave with itself."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef span_fields[] = {
    {"name", span_name, nullptr, "The range's name.", nullptr},
    {"recorded", span_recorded, nullptr, "True while it is open and being recorded.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

// __enter__ and __exit__: on an instance, the instance; on the type, themselves, called with the instance
// (contextlib.ExitStack does that).
struct Way {
  PyObject_HEAD
  vectorcallfunc call;
};

PyObject* get_enter(PyObject* self, PyObject* instance, PyObject*) { return Py_NewRef(instance ? instance : self); }

PyObject* get_exit(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || Py_TYPE(instance) != &SpanType) return Py_NewRef(self);
  PyObject* exit = reinterpret_cast<Span*>(instance)->exit;
  return Py_NewRef(exit ? exit : instance);
}

PyObject* call_way(PyObject*, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (count < 1 || Py_TYPE(args[0]) != &SpanType) {
    PyErr_SetString(PyExc_TypeError, "this is a method of record_function");
    return nullptr;
  }
  return reinterpret_cast<Span*>(args[0])->call(args[0], args + 1, static_cast<size_t>(count - 1), keywords);
}

PyTypeObject way_type(const char* name, descrgetfunc get) {
  PyTypeObject type = blank_type(name, sizeof(Way), Py_TPFLAGS_HAVE_VECTORCALL);
  type.tp_vectorcall_offset = offsetof(Way, call);
  type.tp_call = PyVectorcall_Call;
  type.tp_descr_get = get;
  return type;
}

PyTypeObject EnterType = way_type("profclient._recorder._Enter", get_enter);
PyTypeObject ExitType = way_type("profclient._recorder._Exit", get_exit);

int add_way(PyTypeObject* type, const char* name) {
  if (PyType_Ready(type) < 0) return -1;
  Way* way = PyObject_New(Way, type);
  if (!way) return -1;
  way->call = call_way;
  const int result = PyDict_SetItemString(SpanType.tp_dict, name, reinterpret_cast<PyObject*>(way));
  Py_DECREF(way);
  return result;
}

constexpr const char* kDoc =
    "record_function(name, /, **arguments)\n--\n\n"
    "A range of the profile: `with record_function(\"step\", epoch=3): ...`, or a decorator of functions, async\n"
    "functions and generators. While nothing is recorded it costs as much as calling an empty C function twice.\n"
    "Arguments are written as JSON when the range begins; of objects that are neither numbers, strings nor\n"
    "containers only the type's name is.";

// begin_range of a range that has more than a name.
void begin_detailed(Thread* thread, Session session, uint32_t name, const Detail* detail, Handle* handle) {
  Extensions extensions;
  if (detail->keys) {
    put_json_object(extensions.open(arena::Ext::Args), detail->keys, detail->values);
    extensions.close();
  }
  if (extensions.too_large()) lose(Lost::TooLarge, 1);
  uint8_t records[arena::kExtensionsMax * sizeof(Slot)];
  size_t bytes = detail->records_bytes;
  if (bytes) std::memcpy(records, detail->records, bytes);
  if (bytes + extensions.size() <= sizeof records) {
    std::memcpy(records + bytes, extensions.data(), extensions.size());
    bytes += extensions.size();
  } else {
    lose(Lost::TooLarge, 1);
  }
  Slot head{.start = 0, .end = 0, .name = name, .kind = detail->kind, .flags = detail->flags,
            .scope = detail->scope, .extensions = 0, .payload = detail->payload};
  head.start = ticks(api);
  append(api, thread, session, head, records, bytes, handle);
}

}  // namespace

void forget_kept_spans() {
  for (Span*& kept : kept_spans) {
    Span* span = kept;
    kept = nullptr;
    let_go(span);
  }
}

void begin_range(PyObject* name, const Detail* detail, Handle* handle) {
  handle->place.hold = kNotRecorded;
  const Session session = session_of(api, kRanges);
  if (__builtin_expect(!session, 1)) return;
  Thread* thread = current_thread();
  if (__builtin_expect(!thread, 0)) return;
  const uint32_t id = name_id(thread, session, name);
  if (__builtin_expect(detail != nullptr, 0)) return begin_detailed(thread, session, id, detail, handle);
  begin(api, thread, session, id, Kind::Range, 0, handle);
}

Detail* make_detail(PyObject* const* values, PyObject* keys) {
  Detail* detail = new (std::nothrow) Detail;
  if (!detail) {
    PyErr_NoMemory();
    return nullptr;
  }
  if (!keys) return detail;
  const Py_ssize_t count = PyTuple_GET_SIZE(keys);
  detail->values = PyTuple_New(count);
  if (!detail->values) {
    delete detail;
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(detail->values, i, Py_NewRef(values[i]));
  detail->keys = Py_NewRef(keys);
  return detail;
}

Detail* copy_detail(const Detail* from) {
  Detail* detail = make_detail(nullptr, nullptr);
  if (!detail || !from) return detail;
  *detail = *from;
  Py_XINCREF(detail->keys);
  Py_XINCREF(detail->values);
  detail->records = nullptr;
  detail->records_bytes = 0;  // they belong to one call
  return detail;
}

void free_detail(Detail* detail) {
  if (!detail) return;
  Py_XDECREF(detail->keys);
  Py_XDECREF(detail->values);
  PyMem_Free(detail->records);
  delete detail;
}

PyObject* make_span(PyObject* name, Detail* detail) {
  Span* span = new_span();
  if (!span) {
    free_detail(detail);
    return nullptr;
  }
  span->name = Py_NewRef(name);
  span->id_session = 0;
  span->detail = detail;
  return reinterpret_cast<PyObject*>(span);
}

PyTypeObject SpanType = [] {
  PyTypeObject type = blank_type("profclient.record_function", sizeof(Span),
                                 Py_TPFLAGS_HAVE_VECTORCALL);
  type.tp_dealloc = free_span;
  type.tp_vectorcall_offset = offsetof(Span, call);
  type.tp_vectorcall = make_from_call;
  type.tp_call = PyVectorcall_Call;
  type.tp_repr = span_repr;
  type.tp_methods = span_methods;
  type.tp_getset = span_fields;
  type.tp_doc = kDoc;
  return type;
}();

}  // namespace profd::recorder

int add_span(PyObject* module) {
  using namespace profd::recorder;
  if (PyType_Ready(&SpanType) < 0) return -1;
  if (add_way(&EnterType, "__enter__") < 0 || add_way(&ExitType, "__exit__") < 0) return -1;
  PyType_Modified(&SpanType);
  return PyModule_AddObjectRef(module, "record_function", reinterpret_cast<PyObject*>(&SpanType));
}
