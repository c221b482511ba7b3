#include "names_py.h"

#include <memory>
#include <new>

namespace profd::recorder {

RecentNames recent_names;

namespace {

// Interned str objects by address, each with a reference: a freed address could become another name's. `recent_names`
// speaks of these.
class Names {
 public:
  uint32_t* find(Session session, PyObject* name) {
    if (session != session_ || !entries_) return nullptr;
    for (uint32_t i = slot_of(name);; i = (i + 1) & mask_) {
      if (entries_[i].name == name) return &entries_[i].id;
      if (!entries_[i].name) return nullptr;
    }
  }

  bool add(Session session, PyObject* name, uint32_t id) {
    if (session != session_) clear(session);
    if (used_ >= kMost || (2 * (used_ + 1) > capacity() && !grow())) return false;
    place(Py_NewRef(name), id);
    used_++;
    return true;
  }

 private:
  struct Entry {
    PyObject* name = nullptr;
    uint32_t id = 0;
  };
  static constexpr uint32_t kFirst = 256;
  static constexpr uint32_t kMost = 64 * 1024;

  uint32_t capacity() const { return entries_ ? mask_ + 1 : 0; }

  uint32_t slot_of(PyObject* name) const {
    const uint64_t address = reinterpret_cast<uintptr_t>(name);
    return static_cast<uint32_t>(address * 0x9e3779b97f4a7c15 >> 40) & mask_;
  }

  void place(PyObject* name, uint32_t id) {
    uint32_t i = slot_of(name);
    while (entries_[i].name) i = (i + 1) & mask_;
    entries_[i] = {name, id};
  }

  bool grow() {
    const uint32_t bigger = capacity() ? capacity() * 2 : kFirst;
    std::unique_ptr<Entry[]> old(new (std::nothrow) Entry[bigger]);
    if (!old) return false;
    const uint32_t before = capacity();
    entries_.swap(old);
    mask_ = bigger - 1;
    for (uint32_t i = 0; i < before; i++) {
      if (old[i].name) place(old[i].name, old[i].id);
    }
    return true;
  }

  void clear(Session session) {
    recent_names.session = 0;
    for (uint32_t i = 0; i < capacity(); i++) Py_CLEAR(entries_[i].name);
    entries_.reset();
    mask_ = used_ = 0;
    session_ = session;
  }

  std::unique_ptr<Entry[]> entries_;
  uint32_t mask_ = 0;
  uint32_t used_ = 0;
  Session session_ = 0;
};

Names known_names;

// Of names in `known_names`, which keeps them alive as long as the session lasts.
void note_recent(Session session, PyObject* name, uint32_t id) {
  if (recent_names.session != session) {
    for (RecentName& entry : recent_names.entries) entry = {};
    recent_names.session = session;
  }
  recent_names.entries[recent_slot(name)] = {name, id};
}

uint32_t id_by_bytes(Thread* thread, Session session, PyObject* name) {
  Py_ssize_t bytes;
  PyObject* owner = nullptr;
  const char* text = utf8_of(name, &bytes, &owner);
  const uint32_t id = text ? intern(api, thread, session, text, static_cast<size_t>(bytes)) : arena::kNoName;
  Py_XDECREF(owner);
  return id;
}

}  // namespace

const char* utf8_of(PyObject* text, Py_ssize_t* bytes, PyObject** owner) {
  *owner = nullptr;
  if (PyUnicode_IS_COMPACT_ASCII(text)) {
    *bytes = PyUnicode_GET_LENGTH(text);
    return reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(text));
  }
  *owner = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");  // AsUTF8 would keep a copy inside the str
  if (!*owner) {
    PyErr_Clear();
    return nullptr;
  }
  *bytes = PyBytes_GET_SIZE(*owner);
  return PyBytes_AS_STRING(*owner);
}

uint32_t name_id(Thread* thread, Session session, PyObject* name) {
  if (const uint32_t id = recent_id(session, name)) return id;
  if (const uint32_t* id = known_names.find(session, name)) {
    note_recent(session, name, *id);
    return *id;
  }
  const uint32_t id = id_by_bytes(thread, session, name);
  if (id == arena::kNoName || !PyUnicode_CHECK_INTERNED(name)) return id;
  if (known_names.add(session, name, id)) note_recent(session, name, id);
  return id;
}

}  // namespace profd::recorder
