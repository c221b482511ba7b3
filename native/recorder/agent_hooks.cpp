#include "agent_hooks.h"

#include <algorithm>
#include <csignal>
#include <condition_variable>
#include <chrono>
#include <deque>
#include <mutex>
#include <string>

#include <pthread.h>
#include <unistd.h>

namespace profd::agent {
namespace {

struct Call {
  Hook hook;
  std::string text;
};

struct Hooks {
  std::mutex mutex;
  std::condition_variable ended;
  std::deque<Call> calls;
  bool running = false;  // the thread that takes the GIL
  bool stopping = false;  // it runs a `Stopping`
  bool closed = true;
  bool paused = false;  // what was posted waits until a fork is over
  pid_t tid = 0;  // of the last thread; 0 until that has said it
  PyObject* call = nullptr;  // call(name, text)
};

// Never destroyed: the thread may outlive the destructors of static objects.
Hooks& hooks() {
  static Hooks* const one = new Hooks;
  return *one;
}

const char* name_of(Hook hook) {
  switch (hook) {
    case Hook::Armed: return "armed";
    case Hook::Limited: return "limited";
    case Hook::Stopping: return "stopping";
    case Hook::Released: return "released";
    case Hook::Rested: return "rested";
  }
  return "";
}

// Whether there is a call; if not the thread is taken to have ended.
bool more() {
  Hooks& one = hooks();
  std::lock_guard lock(one.mutex);
  one.stopping = false;
  if (one.closed) one.calls.clear();
  one.running = !one.calls.empty() && !one.paused;
  if (!one.running) one.ended.notify_all();
  return one.running;
}

bool next(Call* call) {
  Hooks& one = hooks();
  std::lock_guard lock(one.mutex);
  if (one.calls.empty() || one.paused) return false;
  *call = std::move(one.calls.front());
  one.calls.pop_front();
  one.stopping = call->hook == Hook::Stopping;
  return true;
}

// With the GIL: until it is had a call may be taken back.
void call_next() {
  Call call;
  if (!next(&call)) return;
  const auto bytes = static_cast<Py_ssize_t>(call.text.size());
  PyObject* result = PyObject_CallFunction(hooks().call, "ss#", name_of(call.hook), call.text.data(), bytes);
  if (!result) PyErr_WriteUnraisable(hooks().call);
  Py_XDECREF(result);
  hook_done(call.hook);
}

// Should the interpreter end this thread where it waits for the GIL, there is nothing to be unwound.
void* run(void*) {
  {
    std::lock_guard lock(hooks().mutex);
    hooks().tid = gettid();
  }
  while (more()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    call_next();
    PyGILState_Release(state);
  }
  return nullptr;
}

// The `Armed` that waits, and what came after it: nothing of its recording has begun. Locked.
bool take_back_armed(Hooks& one) {
  while (!one.calls.empty() && one.calls.back().hook == Hook::Limited) one.calls.pop_back();
  if (one.calls.empty() || one.calls.back().hook != Hook::Armed) return false;
  one.calls.pop_back();
  return true;
}

// Of recordings before: stops are told of in their order. Locked.
bool stops_before(const Hooks& one) {
  const auto stops = [](const Call& call) { return call.hook == Hook::Stopping; };
  return one.stopping || std::any_of(one.calls.begin(), one.calls.end(), stops);
}

bool create_thread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // what Python starts from here inherits it, as it should
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, run, nullptr);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error == 0;
}

void before_fork() { hooks().mutex.lock(); }
void in_parent() { hooks().mutex.unlock(); }
void in_child() {
  hooks().running = hooks().stopping = hooks().paused = false;
  hooks().tid = 0;  // another thread's, in this process
  hooks().calls.clear();
  hooks().mutex.unlock();
}

}  // namespace

void open_hooks(PyObject* call) {
  static const int registered = pthread_atfork(before_fork, in_parent, in_child);
  (void)registered;  // out of memory: a fork at the wrong moment would lose the hooks of the child
  Hooks& one = hooks();
  std::lock_guard lock(one.mutex);
  Py_XSETREF(one.call, Py_NewRef(call));
  one.closed = false;
}

void post_hook(Hook hook, std::string_view text) {
  Hooks& one = hooks();
  {
    std::lock_guard lock(one.mutex);
    if (one.closed) return;
    const bool begun = hook != Hook::Stopping || !take_back_armed(one);
    if (begun || stops_before(one)) return one.calls.push_back({hook, std::string(text)});
  }
  hook_done(Hook::Stopping);  // nothing is to be stopped
}

bool run_hooks() {
  Hooks& one = hooks();
  std::lock_guard lock(one.mutex);
  if (!one.calls.empty() && !one.closed && !one.running && !one.paused) {
    one.running = create_thread();
    if (one.running) one.tid = 0;  // it waits for the mutex; a fork until then is not to take the last one's for it
  }
  return one.calls.empty() || one.closed || one.running;
}

pid_t hooks_thread(bool* running) {
  Hooks& one = hooks();
  std::lock_guard lock(one.mutex);
  *running = one.running;
  return one.tid;
}

bool pause_hooks(int milliseconds) {
  Hooks& one = hooks();
  std::unique_lock lock(one.mutex);
  if (one.running && one.tid == gettid()) return false;  // a hook forks
  one.paused = true;
  one.paused = one.ended.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return !one.running; });
  return one.paused;
}

void resume_hooks() {
  {
    std::lock_guard lock(hooks().mutex);
    if (!hooks().paused) return;
    hooks().paused = false;
  }
  run_hooks();  // where that fails the control thread tries again
}

void close_hooks(int seconds) {
  Hooks& one = hooks();
  std::unique_lock lock(one.mutex);
  one.closed = true;
  one.ended.wait_for(lock, std::chrono::seconds(seconds), [&] { return !one.running; });
}

}  // namespace profd::agent
