// The Python tracer: every Python function's begin and end, on all threads, while a session records kPython.
//
// CPython 3.11 calls a profile function (tracer_profile.cpp), later ones have sys.monitoring (tracer_monitoring.cpp);
// both end in open_call and close_call below. Everything here runs under the GIL. Free-threaded builds are refused.
// What CPython does: docs/facts/python-tracing.md.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "parts.h"
#include "recorder.h"
#include "tracer_calls.h"
#include "tracer_modules.h"
#include "tracer_names.h"

namespace profd::tracer {

using recorder::Handle;
using recorder::Kind;
using recorder::Session;
using recorder::Thread;

// What a call is known by until it returns: its frame on 3.11, its code object later (callbacks get no frame there).
// C functions called from it: the same + 1.
using Identity = uintptr_t;

// An open call. The root is that of the nn.Module calls around it; null outside of them.
struct Open {
  Handle handle;
  Identity identity;
  Root* root;
};

// The open calls of a thread, the outermost first. entry 0 is no call: it matches no identity.
struct Calls {
  Session session = 0;  // that adds to them; 0: at the next event they are set right, or begun anew; kMuted
  Session owner = 0;    // whose calls these are; another one's are forgotten at the next event
  uint64_t python_thread = 0;  // PyThreadState id
  Open* first = nullptr;
  Open* top = nullptr;  // one beyond the innermost
  Open* limit = nullptr;
  uint64_t events = 0;  // begun or ended, of this session
  uint64_t resynchronised = 0;
  Calls* all = nullptr;

  size_t depth() const { return static_cast<size_t>(top - first) - 1; }
};

// Calls::session of a thread that shall not be traced.
inline constexpr Session kMuted = ~Session{0};

struct Tracer {
  Session session = 0;  // that is traced; 0: none
  bool c_calls = false;
  CodeNames names;
  CallNames calls;
  Modules modules;
  uint64_t since = 0;   // when that began
  uint64_t newest = 0;  // the newest thread then, by PyThreadState id: ids grow
  // Threads that began to be traced at another time, by PyThreadState id: since when they are.
  std::unordered_map<uint64_t, uint64_t> started;
};

extern Tracer tracer;
extern __thread Calls* this_calls;

// The session to begin calls in, or 0.
inline Session session_now() {
  const Session live = recorder::session_of(recorder::api, recorder::kPython);
  return __builtin_expect(live == tracer.session, 1) ? live : 0;
}

// This thread's calls at an event of the session, or null: not traced. At a thread's first event the frames that are
// open already are replayed, but for the newest where it `is_new`, that is: the event itself will begin it.
Calls* first_event(Session session, bool is_new);
inline Calls* calls_at(Session session, bool is_new) {
  Calls* calls = this_calls;
  if (__builtin_expect(calls && calls->session == session, 1)) return calls;
  return first_event(session, is_new);
}

Identity identity_of(PyFrameObject* frame, PyCodeObject* code);
PyCodeObject* code_of(PyFrameObject* frame);  // borrowed
PyObject* module_of(PyFrameObject* frame);    // of a frame of nn.Module's call: a new reference, or null

bool grow(Calls* calls);
void open_module_call(Calls* calls, Session session, Thread* thread, Identity identity, uint32_t code_name,
                      PyObject* module);
// A call that a frame tells of which was open at `start` already, when recording began.
void open_at_start(Calls* calls, Session session, Thread* thread, PyFrameObject* frame, uint64_t start);
void resynchronise(Calls* calls, Thread* thread, Identity identity, uint8_t flags);

inline void open_named(Calls* calls, Session session, Thread* thread, Identity identity, uint32_t name, Kind kind) {
  Open* open = calls->top;
  if (__builtin_expect(open == calls->limit, 0)) {
    if (!grow(calls)) return;
    open = calls->top;
  }
  ++calls->events;
  open->identity = identity;
  open->root = open[-1].root;
  calls->top = open + 1;
  recorder::begin(recorder::api, thread, session, name, kind, 0, &open->handle);
}

// A Python function is entered, or a generator or coroutine goes on. `module()`: argument 0 of the call, a new
// reference or null; asked for nn.Module calls alone.
template <typename Module>
inline void open_call(Calls* calls, Session session, Identity identity, PyCodeObject* code, Module module) {
  Thread* thread = recorder::current_thread();
  if (__builtin_expect(!thread, 0)) return;
  const CodeName name = tracer.names.find(code, thread);
  if (__builtin_expect(name.module_call, 0)) {
    PyObject* self = module();
    open_module_call(calls, session, thread, identity, name.name, self);
    Py_XDECREF(self);
    return;
  }
  open_named(calls, session, thread, identity, name.name, Kind::PyCall);
}

inline void close_call(Calls* calls, Identity identity, uint8_t flags) {
  Thread* thread = recorder::current_thread();
  if (__builtin_expect(!thread, 0)) return;
  Open* open = calls->top - 1;
  if (__builtin_expect(open->identity != identity, 0)) {
    resynchronise(calls, thread, identity, flags);
    return;
  }
  ++calls->events;
  calls->top = open;
  recorder::end(recorder::api, thread, open->handle, flags);
}

// A C function is called from `caller`, and comes back.
void open_c_call(Calls* calls, Session session, Identity caller, PyObject* callable);
inline void close_c_call(Calls* calls, Identity caller, uint8_t flags) { close_call(calls, caller + 1, flags); }

// This thread was not traced for a while: at its next event its calls are set right.
void interrupted(uint64_t python_thread);

// The roots of open calls are about to go away; the calls may go on, in the same session.
void forget_roots();

// A thread that does our own work is not traced.
void mute_this_thread();
void unmute_this_thread();

// The same for a moment, beginning with the Python function that asks for it: what it does is not the program's.
void pause_this_thread();
void resume_this_thread();

// Events of a session so far, of threads that are gone too.
struct Counts {
  uint64_t events = 0;
  uint64_t resynchronised = 0;
};
void count_from(Session session);
Counts counts();

// Parts of the module: the functions of the interpreter's own way of tracing.
int add_way(PyObject* module);

}  // namespace profd::tracer
