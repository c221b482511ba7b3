#include "tracer_hooked.h"

#if PY_VERSION_HEX < 0x030c0000

#undef HAVE_STD_ATOMIC  // C's, which C++20 has not; the compiler's are the same
#undef _PyGC_FINALIZED  // defined twice by CPython itself
#define Py_BUILD_CORE   // the lock of the list of threads, and the newest one's id
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#undef Py_BUILD_CORE

#include <time.h>

#include "tracer.h"

namespace profd::tracer {

PyObject* hook_object = nullptr;
uint64_t threads_seen = 0;

namespace {

constexpr size_t kStartedMax = size_t{1} << 16;  // programs may make a thread state for every callback from C
constexpr int kTries = 1'000;
constexpr timespec kBetweenTries{0, 1'000'000};

// While there is one that `is_held` threads come and go no more. It never waits with the GIL: who holds the lock may
// need that, and may be this very thread (sys._current_frames() makes objects under it, and so may collect garbage).
class ThreadList {
 public:
  ThreadList() : lock_(_PyRuntime.interpreters.mutex), held_(PyThread_acquire_lock(lock_, NOWAIT_LOCK)) {}
  ~ThreadList() {
    if (held_) PyThread_release_lock(lock_);
  }
  ThreadList(const ThreadList&) = delete;
  ThreadList& operator=(const ThreadList&) = delete;

  bool is_held() const { return held_; }

  template <typename Visit>  // the newest first; returns false to end
  void each(Visit visit) const {
    for (PyThreadState* at = _PyRuntime.interpreters.main->threads.head; at && visit(at);) at = at->next;
  }

 private:
  const PyThread_type_lock lock_;
  const bool held_;
};

template <typename Walk>
bool patiently(Walk walk) {
  for (int tries = 0; tries < kTries; ++tries) {
    if (walk()) return true;
    Py_BEGIN_ALLOW_THREADS
    nanosleep(&kBetweenTries, nullptr);
    Py_END_ALLOW_THREADS
  }
  return false;
}

// As _PyThreadState_UpdateTracingState().
void update(PyThreadState* thread) {
  const bool wanted = thread->tracing == 0 && (thread->c_tracefunc || thread->c_profilefunc);
  thread->cframe->use_tracing = wanted ? 255 : 0;
}

void begins_now(uint64_t thread) {
  const auto found = tracer.started.find(thread);
  const uint64_t now = recorder::ticks(recorder::api);
  if (found != tracer.started.end()) {
    found->second = now;
    interrupted(thread);  // the program had set a profile function of its own, and unset it
  } else if (tracer.started.size() < kStartedMax) {
    tracer.started.emplace(thread, now);
  }
}

}  // namespace

void set_in(PyThreadState* thread) {
  if (!thread->c_profileobj) thread->c_profileobj = Py_NewRef(hook_object);
  thread->c_profilefunc = on_event;
  update(thread);
}

void take_out_of(PyThreadState* thread) {
  thread->c_profilefunc = nullptr;
  thread->c_profileobj = nullptr;
  update(thread);
  Py_DECREF(hook_object);  // never the last one: add_way() has it
}

uint64_t newest_thread() {
  return __atomic_load_n(&_PyRuntime.interpreters.main->threads.next_unique_id, __ATOMIC_RELAXED);
}

bool set_where_free(Which which, const PyThreadState* except) {
  const ThreadList threads;
  if (!threads.is_held()) return false;
  const uint64_t seen = threads_seen;
  threads.each([&](PyThreadState* thread) {
    const uint64_t id = thread->id;
    if (which == Which::New && id <= seen) return false;
    if (thread == except || thread->c_profilefunc || thread->c_profileobj) return true;
    begins_now(id);
    set_in(thread);
    return true;
  });
  threads_seen = newest_thread();
  return true;
}

bool set_everywhere(const PyThreadState* except) {
  const Session session = tracer.session;
  return patiently([&] { return tracer.session != session || set_where_free(Which::All, except); });
}

bool take_out_everywhere(size_t* taken_over) {
  return patiently([=] {
    const ThreadList threads;
    if (!threads.is_held()) return false;
    threads.each([=](PyThreadState* thread) {
      if (is_ours(thread)) {
        take_out_of(thread);
      } else if (thread->c_profilefunc) {
        ++*taken_over;
      }
      return true;
    });
    return true;
  });
}

bool profilers_of_others(std::vector<PyObject*>* found) {
  return patiently([=] {
    const ThreadList threads;
    if (!threads.is_held()) return false;
    threads.each([=](PyThreadState* thread) {
      if (!thread->c_profilefunc || is_ours(thread)) return true;
      found->push_back(nullptr);
      found->back() = Py_XNewRef(thread->c_profileobj);
      return true;
    });
    return true;
  });
}

}  // namespace profd::tracer

#endif
