// What torch carries from the begin of an op to its end: pooled, because ops end on other threads and out of order, and
// because a callback must not allocate. The unique_ptr that torch holds gives a context back through operator delete.
#pragma once

#include <ATen/record_function.h>

#include "../recorder/writer.h"

namespace profd::torch_observer {

struct alignas(64) Context final : at::ObserverContext {
  recorder::Handle handle;

  static void* operator new(size_t, void* at) { return at; }
  static void operator delete(void* context);
};

// Per thread; no constructor and no destructor, so that it can be used until the thread's very end.
struct Local {
  Context* unused;  // linked through handle.slot
  recorder::Thread** recorder_slot;
  recorder::Session session;  // in which this thread made itself known
};
extern __thread Local local __attribute__((visibility("hidden")));

// Its address, found once per callback: compilers call for it at each use of `local`.
inline Local& local_now() {
  Local* here = &local;
  __asm__("" : "+r"(here));
  return *here;
}

// Fills this thread's pool: from contexts that ended threads left, else from new pages. False: there is no memory.
bool refill();

// Once, before the first callback.
void prepare_contexts();

inline Context* next_unused(Context* context) { return reinterpret_cast<Context*>(context->handle.slot); }

// A context for an op that begins; null without memory.
inline Context* take_context(Local& here) {
  if (__builtin_expect(!here.unused, 0) && !refill()) return nullptr;
  Context* context = here.unused;
  here.unused = next_unused(context);
  return context;
}

inline void Context::operator delete(void* address) {
  Context* context = static_cast<Context*>(address);
  Local& here = local_now();
  context->handle.slot = reinterpret_cast<arena::Slot*>(here.unused);
  here.unused = context;
}

}  // namespace profd::torch_observer
