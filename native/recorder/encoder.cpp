// _recorder.Drainer: what a streamer sees of an arena. Everything it says of itself is in client/profclient/_recorder.pyi.
#include "parts.h"
// After Python.h, which it lacks.
#include <structmember.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "encoder_chunk.h"
#include "encoder_lead.h"

namespace {

using namespace profd;
using arena::State;
using encoder::kHeaderBytes;

constexpr const char* kReasons[] = {"arena_full",     "strings_full",  "too_large",      "backed_off",
                                    "foreign_thread", "cupti_dropped", "cupti_bad_time", "cupti_late",
                                    "cuda_events_full", "cuda_event_failed", "too_deep"};
constexpr std::uint8_t kCodecNone = 0, kCodecZstd = 1;
constexpr Py_ssize_t kCrcFrom = 16;

struct Drainer {
  PyObject_HEAD
  encoder::Arena arena;
  encoder::ChunkEncoder encoder;
  encoder::Lead lead;
  std::vector<bool> taken;  // open chunks that were given back: their state says nothing of it
  PyObject* compress;       // or null
  PyObject* crc32;          // zlib's
  std::uint64_t bad_chunks;
  unsigned long long incarnation, epoch;
  unsigned int pid, chunk_count;
};

Drainer* drainer(PyObject* self) { return reinterpret_cast<Drainer*>(self); }

Drainer* opened(PyObject* self) {
  if (drainer(self)->arena.is_open()) return drainer(self);
  PyErr_SetString(PyExc_ValueError, "the arena has been closed");
  return nullptr;
}

PyObject* allocate(PyTypeObject* type, PyObject*, PyObject*) {
  auto* const self = reinterpret_cast<Drainer*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  new (&self->arena) encoder::Arena();
  new (&self->encoder) encoder::ChunkEncoder();
  new (&self->lead) encoder::Lead();
  new (&self->taken) std::vector<bool>();
  self->compress = self->crc32 = nullptr;
  self->bad_chunks = 0;
  return reinterpret_cast<PyObject*>(self);
}

int traverse_drainer(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(drainer(self)->compress);
  Py_VISIT(drainer(self)->crc32);
  return 0;
}

int clear_drainer(PyObject* self) {
  Py_CLEAR(drainer(self)->compress);
  Py_CLEAR(drainer(self)->crc32);
  return 0;
}

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear_drainer(self);
  drainer(self)->taken.~vector();
  drainer(self)->encoder.~ChunkEncoder();
  drainer(self)->arena.~Arena();
  type->tp_free(self);
  Py_DECREF(type);
}

int initialise(PyObject* object, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"fd", "compress", nullptr};
  int fd;
  PyObject* compress = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|O:Drainer", const_cast<char**>(names), &fd, &compress)) return -1;
  Drainer* const self = drainer(object);
  if (self->arena.is_open()) {
    PyErr_SetString(PyExc_ValueError, "a Drainer has one arena");
    return -1;
  }
  int error = 0;
  if (const std::string problem = self->arena.open(fd, error); !problem.empty()) {
    if (error != 0) {
      errno = error;
      PyErr_SetFromErrno(PyExc_OSError);
    } else {
      PyErr_Format(PyExc_ValueError, "the descriptor is no arena: %s", problem.c_str());
    }
    return -1;
  }
  PyObject* const zlib = PyImport_ImportModule("zlib");
  PyObject* const crc32 = zlib == nullptr ? nullptr : PyObject_GetAttrString(zlib, "crc32");
  Py_XDECREF(zlib);
  if (crc32 == nullptr) return -1;
  Py_XSETREF(self->crc32, crc32);
  Py_XSETREF(self->compress, compress == Py_None ? nullptr : Py_NewRef(compress));
  self->encoder.begin(self->arena);
  self->taken.assign(self->arena.chunk_count(), false);
  self->incarnation = self->arena.header().incarnation;
  self->epoch = self->arena.header().epoch;
  self->pid = self->arena.header().pid;
  self->chunk_count = self->arena.chunk_count();
  return 0;
}

using Found = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;  // stream, sequence, index: as they are sorted

PyObject* as_list(std::vector<Found>& found) {
  std::sort(found.begin(), found.end());
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(found.size()));
  for (std::size_t at = 0; list != nullptr && at < found.size(); ++at) {
    const auto& [stream, sequence, index] = found[at];
    PyObject* const item = Py_BuildValue("IIK", index, stream, static_cast<unsigned long long>(sequence));
    if (item == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(at), item);
  }
  return list;
}

template <typename Wanted>
PyObject* chunks(PyObject* object, Wanted wanted) {
  Drainer* const self = opened(object);
  if (self == nullptr) return nullptr;
  std::vector<Found> found;
  for (std::uint32_t index = 0; index < self->chunk_count; ++index) {
    if (!wanted(self->arena.state(index), index)) continue;
    const auto [stream, sequence] = self->arena.identity(index);
    found.emplace_back(stream, sequence, index);
  }
  return as_list(found);
}

PyObject* sealed(PyObject* self, PyObject*) {
  return chunks(self, [](State state, std::uint32_t) { return state == State::Sealed; });
}

PyObject* open_chunks(PyObject* self, PyObject*) {
  return chunks(self, [self](State state, std::uint32_t index) {
    return (state == State::Open || state == State::Orphan) && !drainer(self)->taken[index];
  });
}

bool in_range(const Drainer& self, unsigned int index) {
  if (index < self.chunk_count) return true;
  PyErr_Format(PyExc_IndexError, "the arena has %u chunks", self.chunk_count);
  return false;
}

// The body as it travels, and its codec; a new reference.
PyObject* packed(const Drainer& self, std::uint8_t& codec) {
  const encoder::Bytes& body = self.encoder.body();
  PyObject* const plain = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(body.data()), static_cast<Py_ssize_t>(body.size()));
  codec = kCodecNone;
  if (plain == nullptr || self.compress == nullptr) return plain;
  PyObject* const small = PyObject_CallOneArg(self.compress, plain);
  if (small == nullptr || !PyBytes_Check(small)) {
    if (small != nullptr) PyErr_Format(PyExc_TypeError, "compress returned %R, not bytes", Py_TYPE(small));
    Py_XDECREF(small);
    Py_DECREF(plain);
    return nullptr;
  }
  if (PyBytes_GET_SIZE(small) >= PyBytes_GET_SIZE(plain)) {
    Py_DECREF(small);
    return plain;
  }
  Py_DECREF(plain);
  codec = kCodecZstd;
  return small;
}

bool put_crc(const Drainer& self, PyObject* chunk) {
  char* const bytes = PyBytes_AS_STRING(chunk);
  PyObject* const view = PyMemoryView_FromMemory(bytes + kCrcFrom, PyBytes_GET_SIZE(chunk) - kCrcFrom, PyBUF_READ);
  PyObject* const number = view == nullptr ? nullptr : PyObject_CallOneArg(self.crc32, view);
  Py_XDECREF(view);
  if (number == nullptr) return false;
  const auto crc = static_cast<std::uint32_t>(PyLong_AsUnsignedLongMask(number));
  Py_DECREF(number);
  std::memcpy(bytes + 12, &crc, sizeof crc);
  return PyErr_Occurred() == nullptr;
}

PyObject* assemble(const Drainer& self) {
  std::uint8_t codec;
  PyObject* const body = packed(self, codec);
  if (body == nullptr) return nullptr;
  const Py_ssize_t length = PyBytes_GET_SIZE(body);
  PyObject* chunk = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(kHeaderBytes) + length);
  if (chunk != nullptr) {
    auto* const out = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(chunk));
    self.encoder.write_header(out, self.arena, codec, static_cast<std::size_t>(length));
    std::memcpy(out + kHeaderBytes, PyBytes_AS_STRING(body), static_cast<std::size_t>(length));
    if (!put_crc(self, chunk)) Py_CLEAR(chunk);
  }
  Py_DECREF(body);
  return chunk;
}

PyObject* encode(PyObject* object, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"index", "open", nullptr};
  unsigned int index;
  int open = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "I|p:encode", const_cast<char**>(names), &index, &open)) return nullptr;
  Drainer* const self = opened(object);
  if (self == nullptr || !in_range(*self, index)) return nullptr;
  const State state = self->arena.state(index);
  const bool unsealed = state == State::Open || state == State::Orphan;
  if (state != State::Sealed && !(open && unsealed)) Py_RETURN_NONE;
  bool usable = false, out_of_memory = false;
  Py_BEGIN_ALLOW_THREADS
  try {
    usable = self->encoder.encode(self->arena, index, unsealed);
  } catch (const std::bad_alloc&) {
    out_of_memory = true;
  }
  Py_END_ALLOW_THREADS
  if (out_of_memory) return PyErr_NoMemory();
  if (!usable) ++self->bad_chunks;
  if (!usable || (unsealed && self->encoder.empty())) Py_RETURN_NONE;
  return assemble(*self);
}

PyObject* free_chunk(PyObject* object, PyObject* number) {
  const unsigned long index = PyLong_AsUnsignedLong(number);
  if (PyErr_Occurred()) return nullptr;
  Drainer* const self = opened(object);
  if (self == nullptr) return nullptr;
  if (!in_range(*self, static_cast<unsigned int>(std::min<unsigned long>(index, std::numeric_limits<unsigned int>::max())))) return nullptr;
  const auto at = static_cast<std::uint32_t>(index);
  self->encoder.delivered(at);
  if (self->arena.state(at) != State::Sealed) self->taken[at] = true;
  self->arena.free(at);
  Py_RETURN_NONE;
}

PyObject* keep_ahead(PyObject* object, PyObject* args) {
  unsigned long long ahead, most;
  if (!PyArg_ParseTuple(args, "KK:keep_ahead", &ahead, &most)) return nullptr;
  Drainer* const self = opened(object);
  if (self == nullptr) return nullptr;
  bool cut;
  Py_BEGIN_ALLOW_THREADS
  cut = self->lead.keep(self->arena, ahead, most);
  Py_END_ALLOW_THREADS
  return PyBool_FromLong(cut);
}

PyObject* give_back(PyObject* object, PyObject*) {
  Drainer* const self = opened(object);
  if (self == nullptr) return nullptr;
  Py_BEGIN_ALLOW_THREADS
  self->arena.give_back();
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyObject* losses(PyObject* object, PyObject*) {
  Drainer* const self = opened(object);
  PyObject* const counts = self == nullptr ? nullptr : PyDict_New();
  if (counts == nullptr) return nullptr;
  const auto add = [counts](const std::string& reason, std::uint64_t count) {
    if (count == 0) return true;
    PyObject* const number = PyLong_FromUnsignedLongLong(count);
    const bool added = number != nullptr && PyDict_SetItemString(counts, reason.c_str(), number) == 0;
    Py_XDECREF(number);
    return added;
  };
  bool good = add("bad_chunk", self->bad_chunks);
  for (std::uint32_t reason = 0; good && reason < arena::kLostReasons; ++reason) {
    const bool named = reason < std::size(kReasons);
    good = add(named ? kReasons[reason] : "reason_" + std::to_string(reason), self->arena.lost(reason));
  }
  if (good) return counts;
  Py_DECREF(counts);
  return nullptr;
}

PyObject* close(PyObject* object, PyObject*) {
  drainer(object)->arena.close();
  Py_RETURN_NONE;
}

PyObject* get_recording(PyObject* object, void*) {
  Drainer* const self = opened(object);
  return self == nullptr ? nullptr : PyBool_FromLong(self->arena.recording());
}

PyObject* get_recorded(PyObject* object, void*) {
  Drainer* const self = opened(object);
  return self == nullptr ? nullptr : PyLong_FromUnsignedLongLong(self->arena.recorded());
}

PyMethodDef drainer_methods[] = {
    {"sealed", sealed, METH_NOARGS, "(index, stream, sequence) of sealed chunks."},
    {"open_chunks", open_chunks, METH_NOARGS, "(index, stream, sequence) of chunks that were not sealed."},
    {"encode", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(encode)), METH_VARARGS | METH_KEYWORDS,
     "A chunk as it travels, or None."},
    {"free", free_chunk, METH_O, "Give a chunk back."},
    {"keep_ahead", keep_ahead, METH_VARARGS, "Allocate memory before the target wants it."},
    {"give_back", give_back, METH_NOARGS, "Free the memory of an arena of which nothing is wanted any more."},
    {"losses", losses, METH_NOARGS, "What could not be recorded, by reason."},
    {"close", close, METH_NOARGS, "Unmap the arena."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {{"incarnation", T_ULONGLONG, offsetof(Drainer, incarnation), READONLY, nullptr},
                         {"epoch", T_ULONGLONG, offsetof(Drainer, epoch), READONLY, nullptr},
                         {"pid", T_UINT, offsetof(Drainer, pid), READONLY, nullptr},
                         {"chunk_count", T_UINT, offsetof(Drainer, chunk_count), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

PyObject* get_allocated(PyObject* object, void*) {
  return PyLong_FromUnsignedLongLong(drainer(object)->lead.bytes());
}

PyGetSetDef properties[] = {{"allocated", get_allocated, nullptr, nullptr, nullptr},
                            {"recording", get_recording, nullptr, nullptr, nullptr},
                            {"recorded", get_recorded, nullptr, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot drainer_slots[] = {{Py_tp_doc, const_cast<char*>("Drainer(fd, compress=None)\n--\n\nThe chunks of an arena, encoded.")},
                       {Py_tp_new, reinterpret_cast<void*>(allocate)},
                       {Py_tp_init, reinterpret_cast<void*>(initialise)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse_drainer)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear_drainer)},
                       {Py_tp_methods, drainer_methods},
                       {Py_tp_members, members},
                       {Py_tp_getset, properties},
                       {0, nullptr}};

PyType_Spec drainer_spec = {"profclient._recorder.Drainer", sizeof(Drainer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, drainer_slots};

}  // namespace

int add_encoder(PyObject* module) {
  PyObject* const type = PyType_FromSpec(&drainer_spec);
  if (type == nullptr) return -1;
  const int added = PyModule_AddObjectRef(module, "Drainer", type);
  Py_DECREF(type);
  return added;
}
