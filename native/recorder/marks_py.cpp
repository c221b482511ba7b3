// Functions that record without an object: range_push and range_pop, instants, counters, memory, backend events.
#include <bit>
#include <cstdlib>

#include "agent.h"
#include "json_py.h"
#include "mirror.h"
#include "names_py.h"
#include "parts.h"
#include "span.h"
#include "step_window.h"
#include "steps.h"
#include "steps_py.h"

namespace profd::recorder {

namespace {

constexpr uint32_t kPushedMost = 16 * 1024;  // pushed and not popped, per thread

// Room to remember one more; there is none beyond the bound. Those are counted in open_count, so that their pops are theirs.
bool make_room(Thread* thread) {
  if (thread->open_count < thread->open_room) return true;
  const uint32_t room = thread->open_room ? 2 * thread->open_room : 8;
  if (room > kPushedMost) return false;
  void* bigger = std::realloc(static_cast<void*>(thread->open), room * sizeof(Handle));
  if (!bigger) return false;
  thread->open = static_cast<Handle*>(bigger);
  thread->open_room = room;
  return true;
}

PyObject* need_name(const char* function, PyObject* given) {
  if (given && PyUnicode_Check(given)) return given;
  PyErr_Format(PyExc_TypeError, "%s takes a name (str), not %s", function, given ? Py_TYPE(given)->tp_name : "nothing");
  return nullptr;
}

// While idle a push is remembered only inside pushes that are: pops must find their own.
void push_idle() {
  Thread* thread = this_thread;
  if (!thread || !thread->open_count) return;
  if (make_room(thread)) thread->open[thread->open_count].place.hold = kNotRecorded;
  ++thread->open_count;
}

PyObject* range_push(PyObject*, PyObject* name) {
  const Session session = session_of(api, kRanges);
  uint32_t id = session ? recent_id(session, name) : arena::kNoName;
  if (id == arena::kNoName && !PyUnicode_Check(name)) return need_name("range_push", name);
  if (mirrors()) mirror_begin(&mirror, name);
  if (!session) {
    push_idle();
    Py_RETURN_NONE;
  }
  Thread* thread = current_thread();
  if (__builtin_expect(!thread, 0)) Py_RETURN_NONE;
  if (__builtin_expect(!make_room(thread), 0)) {
    ++thread->open_count;
    lose(Lost::TooDeep, 1);
    Py_RETURN_NONE;
  }
  if (__builtin_expect(id == arena::kNoName, 0)) id = name_id(thread, session, name);
  begin(api, thread, session, id, Kind::Range, 0, &thread->open[thread->open_count++]);
  Py_RETURN_NONE;
}

PyObject* range_pop(PyObject*, PyObject*) {
  if (mirrored()) mirror_end(&mirror);
  Thread* thread = this_thread;
  if (!thread || !thread->open_count) Py_RETURN_NONE;
  if (__builtin_expect(--thread->open_count >= thread->open_room, 0)) Py_RETURN_NONE;  // its push found no room
  end(api, thread, thread->open[thread->open_count], 0);
  Py_RETURN_NONE;
}

// Appends `head` with keyword arguments as JSON. `values` follow the positional arguments of a vectorcall.
void append_with_arguments(Thread* thread, Session session, const Slot& head, PyObject* const* values, PyObject* keys) {
  if (!keys || PyTuple_GET_SIZE(keys) == 0) {
    append(api, thread, session, head);
    return;
  }
  Detail* detail = make_detail(values, keys);
  if (!detail) {
    PyErr_Clear();
    lose(Lost::TooLarge, 1);
    append(api, thread, session, head);
    return;
  }
  Extensions extensions;
  put_json_object(extensions.open(arena::Ext::Args), detail->keys, detail->values);
  extensions.close();
  free_detail(detail);
  if (extensions.too_large()) lose(Lost::TooLarge, 1);
  append(api, thread, session, head, extensions.data(), extensions.size());
}

PyObject* instant(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (count != 1 || !need_name("instant", args[0])) {
    if (!PyErr_Occurred()) need_name("instant", nullptr);
    return nullptr;
  }
  const Session session = session_of(api, kRanges);
  Thread* thread = session ? current_thread() : nullptr;
  if (!thread) Py_RETURN_NONE;
  const uint64_t now = ticks(api);
  const Slot head{.start = now, .end = now, .name = name_id(thread, session, args[0]), .kind = Kind::Instant,
                  .flags = 0, .scope = 0, .extensions = 0, .payload = 0};
  append_with_arguments(thread, session, head, args + 1, keywords);
  Py_RETURN_NONE;
}

PyObject* counter(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "counter takes a name (str) and a number");
    return nullptr;
  }
  if (!need_name("counter", args[0])) return nullptr;
  const Session session = session_of(api, kRanges);
  if (!session) Py_RETURN_NONE;
  const double value = PyFloat_AsDouble(args[1]);
  if (value == -1.0 && PyErr_Occurred()) return nullptr;
  Thread* thread = current_thread();
  if (!thread) Py_RETURN_NONE;
  const Slot head{.start = ticks(api), .end = std::bit_cast<uint64_t>(value),
                  .name = name_id(thread, session, args[0]), .kind = Kind::Counter, .flags = 0, .scope = 0,
                  .extensions = 0, .payload = 0};
  append(api, thread, session, head);
  Py_RETURN_NONE;
}

// Ext::Memory, as it lies in the arena.
struct __attribute__((packed)) Memory {
  uint8_t device_type;
  uint8_t reserved0;
  int16_t index;
  uint32_t reserved1;
  int64_t allocated;
  int64_t reserved;
};
static_assert(sizeof(Memory) == 24);

bool read_total(PyObject* given, int64_t* total) {
  *total = INT64_MIN;  // unknown
  if (!given || given == Py_None) return true;
  *total = PyLong_AsLongLong(given);
  return !PyErr_Occurred();
}

bool append_memory(Kind kind, uint64_t pointer, long long bytes, const Memory& memory) {
  const Session session = session_of(api, kMemory);
  Thread* thread = session ? current_thread() : nullptr;
  if (!thread) return false;
  Extensions extensions;
  extensions.put_value(arena::Ext::Memory, memory);
  const Slot head{.start = ticks(api), .end = pointer, .name = arena::kNoName, .kind = kind, .flags = 0, .scope = 0,
                  .extensions = 0, .payload = static_cast<uint64_t>(bytes)};
  return append(api, thread, session, head, extensions.data(), extensions.size());
}

PyObject* record_memory(Kind kind, unsigned long long pointer, long long bytes, unsigned char device_type, short index,
                        PyObject* allocated, PyObject* reserved) {
  Memory memory{.device_type = device_type, .reserved0 = 0, .index = index, .reserved1 = 0, .allocated = 0, .reserved = 0};
  int64_t total;
  if (!read_total(allocated, &total)) return nullptr;
  memory.allocated = total;
  if (!read_total(reserved, &total)) return nullptr;
  memory.reserved = total;
  append_memory(kind, pointer, bytes, memory);
  Py_RETURN_NONE;
}

PyObject* record_alloc(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"ptr", "bytes", "device_type", "device_index", "allocated", "reserved", nullptr};
  unsigned long long pointer;
  long long bytes;
  unsigned char device_type = 0;
  short index = -1;
  PyObject *allocated = nullptr, *reserved = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KL|bhOO:record_alloc", const_cast<char**>(names), &pointer, &bytes,
                                   &device_type, &index, &allocated, &reserved)) {
    return nullptr;
  }
  return record_memory(Kind::Alloc, pointer, bytes, device_type, index, allocated, reserved);
}

PyObject* record_out_of_memory(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"bytes", "device_type", "device_index", "allocated", "reserved", nullptr};
  long long bytes;
  unsigned char device_type = 0;
  short index = -1;
  PyObject *allocated = nullptr, *reserved = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L|bhOO:record_out_of_memory", const_cast<char**>(names), &bytes,
                                   &device_type, &index, &allocated, &reserved)) {
    return nullptr;
  }
  return record_memory(Kind::OutOfMemory, 0, bytes, device_type, index, allocated, reserved);
}

PyObject* record_backend_event(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (count != 3) {
    PyErr_SetString(PyExc_TypeError, "record_backend_event takes a name (str), start and end (Unix microseconds)");
    return nullptr;
  }
  if (!need_name("record_backend_event", args[0])) return nullptr;
  const double start_us = PyFloat_AsDouble(args[1]);
  if (PyErr_Occurred()) return nullptr;
  const double end_us = PyFloat_AsDouble(args[2]);
  if (PyErr_Occurred()) return nullptr;
  if (!(start_us >= 0 && end_us >= start_us && end_us < 9.2e15)) {
    PyErr_SetString(PyExc_ValueError, "a backend event starts at or after 1970 and ends at or after its start");
    return nullptr;
  }
  const Session session = session_of(api, kRanges);
  Thread* thread = session ? current_thread() : nullptr;
  if (!thread) Py_RETURN_NONE;
  Extensions extensions;
  // A double counts microseconds of today exactly to 0.25: whole ones and the rest apart.
  const auto to_ns = [](PyObject* given, double us) -> int64_t {
    return PyLong_Check(given) ? PyLong_AsLongLong(given) * 1000 : static_cast<int64_t>(us * 1000.0);
  };
  const int64_t times[2] = {to_ns(args[1], start_us), to_ns(args[2], end_us)};
  extensions.put(arena::Ext::ExternalTime, times, sizeof times);
  if (keywords && PyTuple_GET_SIZE(keywords)) {
    Detail* detail = make_detail(args + 3, keywords);
    if (!detail) return nullptr;
    put_json_object(extensions.open(arena::Ext::Args), detail->keys, detail->values);
    extensions.close();
    free_detail(detail);
    if (extensions.too_large()) lose(Lost::TooLarge, 1);
  }
  const Slot head{.start = 0, .end = 1, .name = name_id(thread, session, args[0]), .kind = Kind::Range,
                  .flags = arena::kBackend, .scope = 0, .extensions = 0, .payload = 0};
  append(api, thread, session, head, extensions.data(), extensions.size());
  Py_RETURN_NONE;
}

// The range between two calls of step(). Under the GIL.
Handle open_step{};

PyObject* step(PyObject*, PyObject*) {
  const bool cut = number_by_program();
  const bool last = note_step(monotonic_ns()) || cut;
  end_range(open_step, 0);
  open_step.place.hold = kNotRecorded;
  const Begun begun = begin_step();
  const unsigned long long number = begun.number;
  if (last || begun.over) agent::finish("iterations");
  if (begun.watched) agent::step_watched();
  const Session session = session_of(api, kRanges);
  Thread* thread = session ? current_thread() : nullptr;
  if (thread) {
    char name[40];
    const int bytes = snprintf(name, sizeof name, "ProfilerStep#%llu", number);
    const uint32_t id = intern(api, thread, session, name, static_cast<size_t>(bytes));
    begin(api, thread, session, id, Kind::Range, 0, &open_step);
  }
  return PyLong_FromUnsignedLongLong(number);
}

PyObject* py_note_step(PyObject*, PyObject*) { return PyBool_FromLong(step_noticed()); }

PyObject* py_pause_steps(PyObject*, PyObject*) {
  number_by_optimizers(false);
  if (!steps_begun()) pause_steps();
  Py_RETURN_NONE;
}

// The recording that runs ends after so many whole steps, and not before `least_ns` from now; 0 steps: it does not.
PyObject* py_await_steps(PyObject*, PyObject* args) {
  unsigned long long count, least_ns = 0;
  if (!PyArg_ParseTuple(args, "K|K:await_steps", &count, &least_ns)) return nullptr;
  await_steps(count, api.state.live.load(std::memory_order_relaxed), least_ns);
  Py_RETURN_NONE;
}

PyObject* py_number_steps(PyObject*, PyObject*) {
  number_by_optimizers(true);
  Py_RETURN_NONE;
}

PyObject* py_step_awaited(PyObject*, PyObject*) { return PyBool_FromLong(step_awaited()); }

PyObject* py_steps_begun(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(steps_begun()); }

template <typename F>
PyCFunction method(F* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef mark_methods[] = {
    {"range_push", range_push, METH_O, "range_push(name)\n--\n\nBegin a range that the next range_pop() of this thread ends."},
    {"range_pop", range_pop, METH_NOARGS, "range_pop()\n--\n\nEnd the innermost range that range_push() began on this thread."},
    {"instant", method(instant), METH_FASTCALL | METH_KEYWORDS,
     "instant(name, /, **arguments)\n\nRecord a moment."},
    {"counter", method(counter), METH_FASTCALL, "counter(name, value, /)\n--\n\nRecord the value of something that changes."},
    {"note_step", py_note_step, METH_NOARGS,
     "note_step()\n--\n\nAn optimizer has made a step. False: not counted, because the program calls step() itself."},
    {"pause_steps", py_pause_steps, METH_NOARGS,
     "pause_steps()\n--\n\nOptimizers are watched no longer: the next note_step() begins a step and ends none."},
    {"await_steps", py_await_steps, METH_VARARGS,
     "await_steps(whole, least_ns=0, /)\n--\n\nEnd the recording that runs after so many whole steps from now on, and not "
     "before so much time has passed; 0 steps: do not."},
    {"number_steps", py_number_steps, METH_NOARGS,
     "number_steps()\n--\n\nOptimizers that are watched number the program's steps, until it calls step() or pause_steps()."},
    {"step_awaited", py_step_awaited, METH_NOARGS,
     "step_awaited()\n--\n\nA capture of this process waits for one of its steps (PROFD_CAPTURE)."},
    {"steps_begun", py_steps_begun, METH_NOARGS,
     "steps_begun()\n--\n\nSteps that have a number: how often the program has called step(), or its optimizers' count."},
    {"record_alloc", method(record_alloc), METH_VARARGS | METH_KEYWORDS,
     "record_alloc(ptr, bytes, device_type=0, device_index=-1, allocated=None, reserved=None)\n--\n\n"
     "Record an allocation, or a free (negative bytes). Device types are torch's: 0 CPU, 1 CUDA."},
    {"record_out_of_memory", method(record_out_of_memory), METH_VARARGS | METH_KEYWORDS,
     "record_out_of_memory(bytes, device_type=0, device_index=-1, allocated=None, reserved=None)\n--\n\n"
     "Record that so many bytes could not be had."},
    {"record_backend_event", method(record_backend_event), METH_FASTCALL | METH_KEYWORDS,
     "record_backend_event(name, start_us, end_us, /, **arguments)\n\n"
     "Record a range whose times (Unix microseconds) were taken elsewhere."},
    {"step", step, METH_NOARGS,
     "step()\n--\n\nOne training step ends and the next begins: ranges ProfilerStep#n. Gives n of the one that begins."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool step_noticed() {
  const bool number = optimizers_number();
  if (!number && steps_begun()) return false;
  const bool last = note_step(monotonic_ns());
  const Begun begun = number ? end_optimizer_step() : Begun{};
  if (last || begun.over) agent::finish("iterations");
  if (begun.watched) agent::step_watched();
  return true;
}

}  // namespace profd::recorder

int add_marks(PyObject* module) { return PyModule_AddFunctions(module, profd::recorder::mark_methods); }
