// What recording a range from Python takes without a recorder around it, in three programs:
//   begin, end        two C functions that read the TSC and store 24 bytes between them, in one array: the least
//   record, finish    the same, recording: while armed, into the thread's queue of chunks, a name's id found by its
//                     address, the event published by the chunk's count
//   nothing           a context manager in C that does nothing: what `with` itself costs
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <x86intrin.h>

namespace {

struct Event {
  uint64_t start, end;
  const void* name;
};

constexpr size_t kRoom = 1 << 16;
Event* events = nullptr;
size_t used = 0;

PyObject* begin(PyObject*, PyObject* name) {
  Event& event = events[used++ % kRoom];
  event.end = 0;
  event.name = name;
  event.start = __rdtsc();
  Py_RETURN_NONE;
}

PyObject* end(PyObject*, PyObject*) {
  events[(used - 1) % kRoom].end = __rdtsc();
  Py_RETURN_NONE;
}

struct Slot {
  uint64_t start, end;
  uint32_t name, kind;
};
static_assert(sizeof(Slot) == 24);

constexpr size_t kChunkBytes = 64 << 10, kChunks = 64;
struct Chunk {
  std::atomic<uint32_t> count;
  Slot slots[(kChunkBytes - sizeof(uint64_t)) / sizeof(Slot)];
};
constexpr uint32_t kSlots = sizeof(Chunk::slots) / sizeof(Slot);
static_assert(sizeof(Chunk) <= kChunkBytes);

constexpr uint32_t kDepth = 1024;
struct Queue {
  Chunk* chunk;
  uint32_t used, taken, depth;
  Slot* open[kDepth];
};

struct Name {
  PyObject* name;  // owned: its address is not used again
  uint32_t id;
};

uint8_t* chunks = nullptr;
std::atomic<uint32_t> armed{0};
__thread Queue* this_queue = nullptr;
constexpr size_t kNames = 256;
Name names[kNames];
uint32_t last_id = 0;

[[gnu::noinline]] Queue* make_queue() {
  return this_queue = static_cast<Queue*>(std::calloc(1, sizeof(Queue)));
}

[[gnu::noinline]] void take_chunk(Queue* queue) {
  queue->chunk = reinterpret_cast<Chunk*>(chunks + queue->taken++ % kChunks * kChunkBytes);
  queue->used = 0;
}

[[gnu::noinline]] uint32_t add_name(Name* entry, PyObject* name) {
  Py_XDECREF(entry->name);
  entry->name = Py_NewRef(name);
  return entry->id = ++last_id;
}

PyObject* record(PyObject*, PyObject* name) {
  if (!armed.load(std::memory_order_relaxed)) Py_RETURN_NONE;
  Queue* queue = this_queue;
  if (__builtin_expect(!queue, 0) && !(queue = make_queue())) return PyErr_NoMemory();
  if (__builtin_expect(!queue->chunk || queue->used == kSlots, 0)) take_chunk(queue);
  Name* entry = &names[reinterpret_cast<uintptr_t>(name) / 16 % kNames];
  const uint32_t id = __builtin_expect(entry->name == name, 1) ? entry->id : add_name(entry, name);
  Slot* slot = &queue->chunk->slots[queue->used++];
  if (queue->depth < kDepth) queue->open[queue->depth] = slot;
  queue->depth++;
  slot->end = 0;
  slot->name = id;
  slot->kind = 1;
  slot->start = __rdtsc();
  queue->chunk->count.store(queue->used, std::memory_order_release);
  Py_RETURN_NONE;
}

PyObject* finish(PyObject*, PyObject*) {
  Queue* queue = this_queue;
  if (!queue || !queue->depth || --queue->depth >= kDepth) Py_RETURN_NONE;
  reinterpret_cast<std::atomic<uint64_t>&>(queue->open[queue->depth]->end).store(__rdtsc(), std::memory_order_release);
  Py_RETURN_NONE;
}

PyObject* arm(PyObject*, PyObject* on) {
  armed = on == Py_True;
  Py_RETURN_NONE;
}

// A context manager that does nothing: what `with` itself costs when its methods are C.
struct Nothing {
  PyObject_HEAD
  vectorcallfunc call;
};

PyObject* call_nothing(PyObject*, PyObject* const*, size_t, PyObject*) { Py_RETURN_NONE; }

PyObject* get_itself(PyObject* self, PyObject* instance, PyObject*) { return Py_NewRef(instance ? instance : self); }

PyTypeObject blank(const char* name) {
  const PyVarObject head = {PyObject_HEAD_INIT(nullptr) 0};
  PyTypeObject type{};
  type.ob_base = head;
  type.tp_name = name;
  type.tp_basicsize = sizeof(Nothing);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = offsetof(Nothing, call);
  type.tp_call = PyVectorcall_Call;
  return type;
}

PyTypeObject nothing_type = blank("floor_recorder.Nothing");
PyTypeObject way_type = blank("floor_recorder.Way");

PyObject* make(PyTypeObject* type) {
  Nothing* made = PyObject_New(Nothing, type);
  if (made) made->call = call_nothing;
  return reinterpret_cast<PyObject*>(made);
}

PyMethodDef functions[] = {
    {"begin", begin, METH_O, nullptr},        {"end", end, METH_NOARGS, nullptr}, {"record", record, METH_O, nullptr},
    {"finish", finish, METH_NOARGS, nullptr}, {"arm", arm, METH_O, nullptr},      {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "floor_recorder", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_floor_recorder() {
  events = static_cast<Event*>(std::malloc(kRoom * sizeof(Event)));
  chunks = static_cast<uint8_t*>(std::aligned_alloc(4096, kChunks * kChunkBytes));
  if (!events || !chunks) return PyErr_NoMemory();
  std::memset(static_cast<void*>(events), 1, kRoom * sizeof(Event));  // resident, as the arena is
  std::memset(chunks, 1, kChunks * kChunkBytes);
  way_type.tp_descr_get = get_itself;
  if (PyType_Ready(&way_type) < 0 || PyType_Ready(&nothing_type) < 0) return nullptr;
  for (const char* name : {"__enter__", "__exit__"}) {
    PyObject* way = make(&way_type);
    if (!way || PyDict_SetItemString(nothing_type.tp_dict, name, way) < 0) return nullptr;
    Py_DECREF(way);
  }
  PyType_Modified(&nothing_type);
  PyObject* module = PyModule_Create(&definition);
  if (!module || PyModule_AddObject(module, "nothing", make(&nothing_type)) < 0) return nullptr;
  return module;
}
