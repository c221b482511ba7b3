#include "agent.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent_control.h"
#include "agent_recall.h"
#include "step_window.h"

namespace profd::agent {
namespace {

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr Milliseconds kChildDelay = 200;  // a child that execs is gone by then
constexpr int kEndSeconds = 2;
constexpr int kYields = 10'000;

// Never destroyed: its thread may outlive the destructors of static objects.
struct Agent {
  Requests requests;
  Settings settings;
  Control* control = nullptr;  // made by the first start
  bool running = false;  // there is a thread
  pthread_t thread{};
  std::atomic<pid_t> tid{0};  // 0 until it has said it
};

Agent& agent() {
  static Agent* const one = new Agent;
  return *one;
}

bool wake() {
  std::lock_guard lock(agent().requests.mutex);
  return agent().requests.wake.signal();
}

void* run(void*) {
  agent().tid = gettid();
  agent().control->run();
  return nullptr;
}

// A thread with a small stack and no signals: a program that waits for signals with sigwait(3) would be killed by the
// one that finds a thread that does not block it.
int create_thread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = EINVAL;
  // Where libraries have much thread-local storage it comes out of the stack and asks for more.
  for (std::size_t stack = kStackBytes; error == EINVAL && stack <= 64 * kStackBytes; stack *= 4) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    error = pthread_create(&agent().thread, &attributes, run, nullptr);
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) pthread_setname_np(agent().thread, "profd-agent");
  return error;
}

bool launch(std::string* why) {
  Agent& one = agent();
  bool awakes;
  {
    std::lock_guard lock(one.requests.mutex);
    awakes = one.requests.wake.open();
  }
  one.tid = 0;  // a fork until the thread runs is not to look for the one before it
  const int error = awakes ? (one.requests.leave = Leave::Stay, create_thread()) : errno;
  one.running = error == 0;
  if (error && why) *why = std::string("its thread could not be started: ") + std::strerror(error);
  return one.running;
}

bool join(int seconds) {
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds;
  agent().running = pthread_timedjoin_np(agent().thread, nullptr, &until) != 0;
  return !agent().running;
}

// A thread that was joined is counted by the kernel a little longer.
void wait_until_uncounted(pid_t tid) {
  for (int i = 0; i < kYields && tid && syscall(SYS_tgkill, getpid(), tid, 0) == 0; ++i) sched_yield();
}

// The child has only the thread that forked: ours is gone, and its sockets and its recording are the parent's. A child
// that kept the socket open would hide the parent's death from the daemon.
void before_fork() { agent().requests.mutex.lock(); }
void in_parent() { agent().requests.mutex.unlock(); }
void in_child() {
  Agent& one = agent();
  if (one.control) one.control->forget();
  forget_recall(one.requests);
  (void)one.requests.wishes.release();  // another thread may have held its lock
  one.requests.wishes = std::make_unique<Wishes>();
  recorder::forget_watched_step();
  one.requests.wake.close();
  one.running = false;
  one.requests.snapshot.state = State::Off;
  one.requests.snapshot.epoch = 0;
  one.requests.mutex.unlock();
}

}  // namespace

bool start(Settings settings, std::string* why) {
  Agent& one = agent();
  if (one.running) return true;
  static const int registered = pthread_atfork(before_fork, in_parent, in_child);
  if (registered != 0) return *why = "fork handlers could not be registered", false;
  one.requests.hello = settings.hello;
  one.requests.snapshot.state = State::Looking;
  delete one.control;
  one.settings = std::move(settings);
  one.control = new Control(one.settings, one.requests);
  return launch(why);
}

void stop(const char* reason) {
  Agent& one = agent();
  if (!one.running) return;
  one.requests.wishes->drop_step();
  one.requests.quit_reason = reason;
  one.requests.leave = Leave::Quit;
  // A thread that cannot be woken, or takes too long, is left to itself: it touches nothing that goes away.
  if (wake() || one.requests.snapshot.epoch) join(kEndSeconds);
}

bool alone_but_for(pid_t hooks, bool unknown) {
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return false;
  const pid_t mine = agent().running ? agent().tid.load() : -1;
  const int unnamed = unknown + (mine == 0);
  int others = 0;
  while (const dirent* entry = others > unnamed ? nullptr : readdir(tasks)) {
    const pid_t tid = std::atoi(entry->d_name);  // 0: . and ..
    others += tid != 0 && tid != gettid() && tid != hooks && tid != mine;
  }
  closedir(tasks);
  return others <= unnamed;
}

void pause(pid_t gone) {
  Agent& one = agent();
  if (!one.running || one.requests.leave != Leave::Stay || !alone_but_for(gone, false)) return;
  one.requests.leave = Leave::Pause;
  if (!wake()) {
    one.requests.leave = Leave::Stay;
  } else if (join(kEndSeconds)) {
    wait_until_uncounted(one.tid);
    wait_until_uncounted(gone);
  }
}

void resume() {
  Agent& one = agent();
  if (one.requests.leave != Leave::Pause) return;
  if (one.running && !join(kEndSeconds)) {
    one.requests.leave = Leave::Stay;  // it has not even seen the request
    return;
  }
  launch(nullptr);
}

void start_in_child() {
  Agent& one = agent();
  if (!one.control || one.running || one.requests.leave == Leave::Quit) return;
  // The parent's thread may have been in the middle of anything when it was copied: its state is left where it is.
  one.control = new Control(one.settings, one.requests);
  one.control->delay(kChildDelay);
  one.requests.snapshot.state = State::Looking;
  launch(nullptr);
}

void describe(std::string_view hello, std::string_view changed) {
  Agent& one = agent();
  {
    std::lock_guard lock(one.requests.mutex);
    one.requests.hello.assign(hello);
    one.requests.changed.assign(changed);
  }
  wake();
}

void note(std::string_view key, std::string_view value) {
  Requests& requests = agent().requests;
  std::lock_guard lock(requests.mutex);
  for (auto& [known, text] : requests.notes)
    if (known == key) return void(text.assign(value));
  requests.notes.emplace_back(key, value);
}

void begun(std::string_view option) {
  std::lock_guard lock(agent().requests.mutex);
  agent().requests.begun.emplace_back(option);
}

void finish(const char* reason) {
  agent().requests.finish = reason;
  wake();
}

uint64_t ask(std::string_view lines, std::string* why) {
  const uint64_t number = agent().requests.wishes->ask(lines, false, why);
  if (number) wake();
  return number;
}

void ask_at(uint64_t step, bool begins, std::string_view lines) {
  agent().requests.wishes->ask_at({step, begins, std::string(lines)});
  wake();
}

bool came_of(uint64_t number, std::string* capture, std::string* why) {
  const Granted granted = agent().requests.wishes->came_of(number);
  *capture = granted.capture;
  *why = granted.why;
  return granted.number != 0;
}

void step_watched() { wake(); }

void records_at_stop(bool does) { agent().requests.records_at_stop = does; }

void hook_done(Hook hook) {
  if (hook == Hook::Armed) agent().requests.arms_done++;
  if (hook != Hook::Stopping) return;
  agent().requests.stops_done++;
  wake();
}

Snapshot snapshot() {
  Requests& requests = agent().requests;
  std::lock_guard lock(requests.mutex);
  return requests.snapshot;
}

}  // namespace profd::agent
