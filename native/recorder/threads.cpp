// Every thread's queue object: found through one TLS pointer, given back when its thread ends, never freed.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "session.h"

namespace profd::recorder {

__thread Thread* this_thread = nullptr;

namespace {

pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
std::atomic<Thread*> all_threads{nullptr};
Thread* unused_threads = nullptr;  // under registry

// A thread ends. What it still records afterwards (destructors of its other thread_locals) gets a new queue object, for
// which this runs again.
void thread_ends(void* ended) {
  Thread* thread = static_cast<Thread*>(ended);
  leave_chunk(thread);
  this_thread = nullptr;
  pthread_mutex_lock(&registry);
  thread->unused = unused_threads;
  unused_threads = thread;
  pthread_mutex_unlock(&registry);
}

pthread_key_t end_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    if (pthread_key_create(&made, thread_ends) != 0) made = static_cast<pthread_key_t>(-1);
    return made;
  }();
  return key;
}

void make_blank(Thread* thread) {
  thread->place = {.hold = kNoChunk, .stream = 0, .sequence = 0};
  thread->next = thread->limit = nullptr;
  thread->chunk = nullptr;
  thread->session = 0;
  thread->extensions = 0;
  thread->first_hold = 0;
  thread->tid = 0;
  thread->starved = false;
}

Thread* take_unused() {
  pthread_mutex_lock(&registry);
  Thread* thread = unused_threads;
  if (thread) unused_threads = thread->unused;
  pthread_mutex_unlock(&registry);
  return thread;
}

Thread* add_thread() {
  Thread* thread = new (std::nothrow) Thread{};
  if (!thread) return nullptr;
  thread->all = all_threads.load(std::memory_order_relaxed);
  while (!all_threads.compare_exchange_weak(thread->all, thread, std::memory_order_release)) {
  }
  return thread;
}

}  // namespace

uint32_t os_thread_id() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

Thread** thread_slot() { return &this_thread; }

Thread* make_thread() {
  Thread* thread = take_unused();
  if (!thread) thread = add_thread();
  if (!thread || pthread_setspecific(end_key(), thread) != 0) {
    lose(Lost::ForeignThread, 1);
    return nullptr;
  }
  make_blank(thread);
  thread->tid = os_thread_id();
  thread->open_count = 0;
  this_thread = thread;
  return thread;
}

Thread* first_thread() { return all_threads.load(std::memory_order_acquire); }

void lock_threads() { pthread_mutex_lock(&registry); }
void unlock_threads() { pthread_mutex_unlock(&registry); }

void forget_threads_after_fork() {
  unused_threads = nullptr;
  for (Thread* thread = first_thread(); thread; thread = thread->all) {
    make_blank(thread);
    thread->writing.store(0, std::memory_order_relaxed);
    if (thread == this_thread) {
      thread->tid = os_thread_id();
      continue;
    }
    thread->unused = unused_threads;
    unused_threads = thread;
  }
}

}  // namespace profd::recorder
