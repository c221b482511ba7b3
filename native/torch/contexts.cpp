#include "contexts.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>

namespace profd::torch_observer {

__thread Local local;

namespace {

// A thread takes this many at once: ops nest a few dozen deep.
constexpr size_t kSlab = 64;

// Contexts of threads that have ended. Held for a few instructions, by threads that begin, end or nest deeper than ever
// before; a fork child starts with it free, whoever held it in the parent.
std::atomic_flag busy = ATOMIC_FLAG_INIT;
Context* left_behind = nullptr;
pthread_key_t at_thread_end;

void acquire() {
  while (busy.test_and_set(std::memory_order_acquire)) {
  }
}
void release() { busy.clear(std::memory_order_release); }

void leave(void*) {
  acquire();
  while (Context* context = local.unused) {
    local.unused = next_unused(context);
    context->handle.slot = reinterpret_cast<arena::Slot*>(left_behind);
    left_behind = context;
  }
  release();
}

bool take_left() {
  acquire();
  for (size_t taken = 0; left_behind && taken < kSlab; ++taken) {
    Context* context = left_behind;
    left_behind = next_unused(context);
    context->handle.slot = reinterpret_cast<arena::Slot*>(local.unused);
    local.unused = context;
  }
  release();
  return local.unused != nullptr;
}

}  // namespace

void prepare_contexts() {
  static const bool once = [] {
    pthread_key_create(&at_thread_end, leave);
    pthread_atfork(nullptr, nullptr, release);
    return true;
  }();
  (void)once;
}

bool refill() {
  pthread_setspecific(at_thread_end, &local);
  if (take_left()) return true;
  void* pages = mmap(nullptr, kSlab * sizeof(Context), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  for (size_t at = 0; at < kSlab; ++at) {
    Context::operator delete(new (static_cast<char*>(pages) + at * sizeof(Context)) Context());
  }
  return true;
}

}  // namespace profd::torch_observer
