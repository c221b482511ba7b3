#include "hooks.h"

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <string>

#include <pthread.h>

#include "../recorder/recorder.h"
#include "collector.h"
#include "nvtx_ranges.h"

namespace profd::cupti {
namespace {

struct Call {
  agent::Hook hook;
  std::string text;
};

// Never destroyed: its thread may outlive the destructors of static objects.
struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Call> calls;
  bool running = false;
};

Queue& queue() {
  static Queue* const one = new Queue;
  return *one;
}

// Sentences of the recording that runs; only the thread below touches them.
std::string& said() {
  static std::string* const one = new std::string;
  return *one;
}

void tell(const std::string& sentences) {
  if (sentences.empty()) return;
  said() += (said().empty() ? "cuda: " : "; cuda: ") + sentences;
  agent::note("not_honoured", said());
}

void tell_report() {
  const std::string lines = report();
  for (size_t from = 0; from < lines.size();) {
    const size_t equals = lines.find('=', from), end = lines.find('\n', from);
    const std::string key = lines.substr(from, equals - from), value = lines.substr(equals + 1, end - equals - 1);
    if (key == "gpu.notes")
      tell(value);
    else
      agent::note(key, value);
    from = end + 1;
  }
}

void armed(const std::string& order) {
  const Wishes wishes{.graph_nodes = order.find("cuda:whole") == std::string::npos,
                      .detach = order.find("cupti-detach") != std::string::npos};
  const Outcome outcome = arm(recorder::api, wishes);
  agent::records_at_stop(outcome.armed);
  said().clear();
  tell(outcome.armed ? outcome.notes : outcome.why);
  if (order.find("cupti-python") != std::string::npos)
    tell("cupti-python needs a process with Python, this one has our own collector");
  tell_report();
  start_nvtx();  // also where CUPTI is not to be had
}

void obey(const Call& call) {
  switch (call.hook) {
    case agent::Hook::Armed: return armed(call.text);
    case agent::Hook::Stopping: return stop_nvtx(), stop(), tell_report();
    case agent::Hook::Limited:  // the recorder leaves out what is to be left out
    case agent::Hook::Released:
    case agent::Hook::Rested: return;
  }
}

void* run_hooks(void*) {
  Queue& one = queue();
  std::unique_lock lock(one.mutex);
  for (;;) {
    one.changed.wait(lock, [&] { return !one.calls.empty(); });
    const Call call = std::move(one.calls.front());
    one.calls.pop_front();
    lock.unlock();
    obey(call);
    agent::hook_done(call.hook);
    lock.lock();
  }
}

bool start_thread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, nullptr, run_hooks, nullptr) == 0;
  if (started) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace

void post_hook(agent::Hook hook, std::string_view text) {
  Queue& one = queue();
  {
    std::lock_guard lock(one.mutex);
    if (!one.running) one.running = start_thread();
    if (one.running) {
      one.calls.push_back({hook, std::string(text)});
      return one.changed.notify_one();
    }
  }
  // The thread stays once it runs: nothing has been armed.
  if (hook == agent::Hook::Armed) agent::note("not_honoured", "cuda: no thread could be started for it");
  agent::hook_done(hook);
}

}  // namespace profd::cupti
