#include "enclosing.h"

#include <atomic>

#include <pthread.h>

namespace profd::cupti {
namespace {

constexpr uint32_t kDepthMax = 128;  // ranges in ranges that CUPTI hears of; deeper ones count as the last of them

// The ranges and ops that a thread has open, as CUPTI's own stack of it has them.
struct Open {
  uint64_t marks[kDepthMax];
  uint32_t depth;
  uint32_t arm;  // of what is in `marks`
};

thread_local Open open;
std::atomic<const Functions*> told{nullptr};
std::atomic<uint32_t> arms{0};

void pop(const Functions& cupti, uint32_t to) {
  uint64_t last;
  for (; open.depth > to; open.depth--) cupti.pop_external(kExternalCustom2, &last);
}

void enter(uint64_t mark, uint64_t id) {
  const Functions* cupti = told.load(std::memory_order_relaxed);
  if (!cupti) return;
  if (const uint32_t now = arms.load(std::memory_order_relaxed); open.arm != now) {
    pop(*cupti, 0);  // what an earlier recording has left
    open.arm = now;
  }
  if (open.depth == kDepthMax) return;
  if (cupti->push_external(kExternalCustom2, id) == kSuccess) open.marks[open.depth++] = mark;
}

// What has ended elsewhere, or out of order, goes with what encloses it.
void leave(uint64_t mark) {
  const Functions* cupti = told.load(std::memory_order_relaxed);
  if (!cupti || open.arm != arms.load(std::memory_order_relaxed)) return;
  for (uint32_t at = open.depth; at > 0; at--)
    if (open.marks[at - 1] == mark) return pop(*cupti, at - 1);
}

constexpr recorder::Enclosing kEnclosing = {enter, leave};

// CUPTI does not live on in a child, and its locks may be held there for good: ranges that are open end without it.
void forget_in_child() { told.store(nullptr, std::memory_order_relaxed); }

}  // namespace

void enclose_with(const Functions& cupti, recorder::Api& api) {
  static const int registered = pthread_atfork(nullptr, nullptr, forget_in_child);
  if (registered != 0) return;
  told = &cupti;
  arms++;
  api.state.enclosing = &kEnclosing;
}

void enclose_no_more(recorder::Api& api) { api.state.enclosing = nullptr; }

}  // namespace profd::cupti
