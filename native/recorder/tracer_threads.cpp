// The open calls of each thread: made at its first event, resynchronised when an end fits no begin, freed at its end.
#include <pthread.h>

#include <cstdlib>
#include <new>

#include "no_collection.h"
#include "tracer.h"

namespace profd::tracer {

__thread Calls* this_calls = nullptr;

namespace {

constexpr size_t kDepthAtFirst = 256;
constexpr size_t kReplayedMax = 65'536;  // frames open at the start of a thread's recording: the innermost

Calls* all_calls = nullptr;  // under the GIL
Session counted = 0;
Counts ended;  // of threads that are gone

// Threads end without the GIL: the list and what they leave are changed under a lock of their own.
pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

// The child of a fork is not traced, and has this thread alone; the lock may have been another one's.
void forked() {
  list_lock = PTHREAD_MUTEX_INITIALIZER;
  tracer.session = 0;
  all_calls = this_calls;
  if (all_calls) all_calls->all = nullptr;
}

void thread_ends(void* value) {
  Calls* calls = static_cast<Calls*>(value);
  this_calls = nullptr;
  pthread_mutex_lock(&list_lock);
  for (Calls** at = &all_calls; *at; at = &(*at)->all) {
    if (*at != calls) continue;
    *at = calls->all;
    break;
  }
  if (calls->owner == counted) {
    ended.events += calls->events;
    ended.resynchronised += calls->resynchronised;
  }
  pthread_mutex_unlock(&list_lock);
  std::free(calls->first);
  delete calls;
}

pthread_key_t end_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    if (pthread_key_create(&made, thread_ends) != 0) made = static_cast<pthread_key_t>(-1);
    return made;
  }();
  return key;
}

Calls* make_calls() {
  Calls* calls = new (std::nothrow) Calls;
  if (!calls) return nullptr;
  calls->first = static_cast<Open*>(std::calloc(kDepthAtFirst, sizeof(Open)));
  if (!calls->first || pthread_setspecific(end_key(), calls) != 0) {
    std::free(calls->first);
    delete calls;
    return nullptr;
  }
  calls->limit = calls->first + kDepthAtFirst;
  pthread_mutex_lock(&list_lock);
  calls->all = all_calls;
  all_calls = calls;
  pthread_mutex_unlock(&list_lock);
  return this_calls = calls;
}

void begin_anew(Calls* calls, Session session) {
  calls->owner = session;
  calls->python_thread = PyThreadState_GetID(PyThreadState_Get());
  calls->first->identity = 0;
  calls->first->root = nullptr;
  calls->top = calls->first + 1;
  calls->events = calls->resynchronised = 0;
}

// Frames of this thread, the innermost first, each a new reference.
std::vector<PyFrameObject*> frames_now(bool without_newest) {
  std::vector<PyFrameObject*> frames;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  if (frame && without_newest) {
    PyFrameObject* newest = frame;
    frame = PyFrame_GetBack(newest);
    Py_DECREF(newest);
  }
  for (; frame && frames.size() < kReplayedMax; frame = PyFrame_GetBack(frames.back())) frames.push_back(frame);
  Py_XDECREF(frame);
  if (PyErr_Occurred()) PyErr_Clear();  // no memory for a frame: then those outside of it are left out
  return frames;
}

// Makes `calls` what this thread's frames are: calls among them stay, the others have ended unseen, and frames that are
// new begin at `first`, when recording began for this thread. Without the newest frame where it `is_new`.
void reconcile(Calls* calls, Session session, bool is_new, uint64_t first) {
  Thread* thread = recorder::current_thread();
  if (!thread) return;
  std::unordered_map<Identity, std::vector<Open>> before;  // the outermost last: recursive calls may be known as one
  while (calls->depth() > 0) {
    --calls->top;
    before[calls->top->identity].push_back(*calls->top);
  }
  std::vector<PyFrameObject*> frames = frames_now(is_new);
  for (size_t at = frames.size(); at-- > 0;) {
    const auto known = before.find(identity_of(frames[at], code_of(frames[at])));
    if (known == before.end() || known->second.empty()) {
      open_at_start(calls, session, thread, frames[at], first);
    } else if (calls->top != calls->limit || grow(calls)) {
      *calls->top++ = known->second.back();
      known->second.pop_back();
    }
    Py_DECREF(frames[at]);
  }
  for (const auto& [identity, opens] : before) {
    for (const Open& open : opens) recorder::end(recorder::api, thread, open.handle, 0);
  }
}

uint64_t recording_since() {
  const uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
  const auto found = tracer.started.find(thread);
  if (found != tracer.started.end()) return found->second;
  return thread <= tracer.newest ? tracer.since : recorder::ticks(recorder::api);
}

}  // namespace

Calls* first_event(Session session, bool is_new) {
  Calls* calls = this_calls ? this_calls : make_calls();
  if (!calls || calls->session == kMuted) return nullptr;
  if (calls->owner != session) begin_anew(calls, session);
  calls->session = session;
  const NoCollection none;
  try {
    reconcile(calls, session, is_new, recording_since());
  } catch (const std::bad_alloc&) {  // then without what was open
  }
  return calls;
}

bool grow(Calls* calls) {
  const size_t used = static_cast<size_t>(calls->top - calls->first);
  const size_t room = static_cast<size_t>(calls->limit - calls->first) * 2;
  auto* grown = static_cast<Open*>(std::realloc(calls->first, room * sizeof(Open)));
  if (!grown) {
    recorder::api.lose(recorder::Lost::ForeignThread, 1);
    return false;
  }
  calls->first = grown;
  calls->top = grown + used;
  calls->limit = grown + room;
  return true;
}

// An end that is not of the innermost call: greenlets take turns on a thread, or somebody turned us off and on again.
// The call itself is ended, wherever it stands, with C functions that it called; calls of others above it stay open.
void resynchronise(Calls* calls, Thread* thread, Identity identity, uint8_t flags) {
  ++calls->resynchronised;
  Open* found = calls->top - 1;
  while (found > calls->first && found->identity != identity) --found;
  if (found == calls->first) return;  // its begin was not seen
  recorder::end(recorder::api, thread, found->handle, flags);
  Open* kept = found;
  for (Open* above = found + 1; above < calls->top; ++above) {
    if (above->identity == identity + 1) {
      recorder::end(recorder::api, thread, above->handle, flags);
    } else {
      *kept++ = *above;
    }
  }
  calls->top = kept;
}

void interrupted(uint64_t python_thread) {
  pthread_mutex_lock(&list_lock);
  for (Calls* calls = all_calls; calls; calls = calls->all) {
    if (calls->python_thread == python_thread && calls->session == tracer.session) calls->session = 0;
  }
  pthread_mutex_unlock(&list_lock);
}

void forget_roots() {
  pthread_mutex_lock(&list_lock);
  for (Calls* calls = all_calls; calls; calls = calls->all) {
    for (Open* open = calls->first; open < calls->top; ++open) open->root = nullptr;
  }
  pthread_mutex_unlock(&list_lock);
}

void mute_this_thread() {
  Calls* calls = this_calls ? this_calls : make_calls();
  if (!calls) return;
  calls->session = kMuted;
  calls->owner = 0;
}

void unmute_this_thread() {
  if (this_calls && this_calls->session == kMuted) this_calls->session = 0;
}

void pause_this_thread() {
  Calls* calls = this_calls ? this_calls : make_calls();
  if (!calls || calls->session == kMuted) return;
  const bool traced = tracer.session && calls->session == tracer.session;
  PyFrameObject* frame = traced ? PyThreadState_GetFrame(PyThreadState_Get()) : nullptr;
  if (frame) {
    const Identity asking = identity_of(frame, code_of(frame));
    if (calls->top[-1].identity == asking + 1) close_c_call(calls, asking, 0);
    if (calls->top[-1].identity == asking) close_call(calls, asking, 0);
    Py_DECREF(frame);
  }
  calls->session = kMuted;
}

// Frames that are new begin now: they were not seen before because nobody looked, not because nothing was recorded.
void resume_this_thread() {
  if (!this_calls || this_calls->session != kMuted) return;
  this_calls->session = 0;
  if (tracer.session) tracer.started[PyThreadState_GetID(PyThreadState_Get())] = recorder::ticks(recorder::api);
}

Counts counts() {
  pthread_mutex_lock(&list_lock);
  Counts found = ended;
  for (const Calls* calls = all_calls; calls; calls = calls->all) {
    if (calls->owner != counted) continue;
    found.events += calls->events;
    found.resynchronised += calls->resynchronised;
  }
  pthread_mutex_unlock(&list_lock);
  return found;
}

void count_from(Session session) {
  static const int registered = pthread_atfork(nullptr, nullptr, forked);
  static_cast<void>(registered);
  pthread_mutex_lock(&list_lock);
  counted = session;
  ended = {};
  pthread_mutex_unlock(&list_lock);
}

}  // namespace profd::tracer
