#include "agent_hooks.h"

#include <csignal>
#include <condition_variable>
#include <chrono>
#include <deque>
#include <mutex>
#include <string>

#include <pthread.h>

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
  bool closed = true;
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
  }
  return "";
}

// Plain pointers only: should the interpreter end this thread inside, nothing is to be unwound.
void call_python(PyObject* function, const char* name, const char* text, Py_ssize_t bytes) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* result = PyObject_CallFunction(function, "ss#", name, text, bytes);
  if (!result) PyErr_WriteUnraisable(function);
  Py_XDECREF(result);
  PyGILState_Release(state);
}

// The next call, or false: there is none, and the thread is taken to have ended.
bool next(Call* call) {
  Hooks& one = hooks();
  std::lock_guard lock(one.mutex);
  if (one.closed) one.calls.clear();
  if (one.calls.empty()) {
    one.running = false;
    one.ended.notify_all();
    return false;
  }
  *call = std::move(one.calls.front());
  one.calls.pop_front();
  return true;
}

void* run(void*) {
  Call call;
  while (next(&call)) {
    call_python(hooks().call, name_of(call.hook), call.text.data(), static_cast<Py_ssize_t>(call.text.size()));
    hook_done(call.hook);
  }
  return nullptr;
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
  hooks().running = false;
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
  std::lock_guard lock(one.mutex);
  if (one.closed) return;
  one.calls.push_back({hook, std::string(text)});
  if (one.running) return;
  one.running = create_thread();
  if (one.running) return;
  one.calls.clear();
  note("not_honoured", "what needs Python: no thread could be started for it");
}

void close_hooks(int seconds) {
  Hooks& one = hooks();
  std::unique_lock lock(one.mutex);
  one.closed = true;
  one.ended.wait_for(lock, std::chrono::seconds(seconds), [&] { return !one.running; });
}

}  // namespace profd::agent
