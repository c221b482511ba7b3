#include "observer.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "access.h"
#include "attributes.h"
#include "contexts.h"
#include "device_times.h"
#include "forward_threads.h"
#include "names.h"
#include "precision.h"
#include "script.h"

namespace profd::torch_observer {
namespace {

using arena::Kind;
using arena::Slot;
using recorder::Api;
using recorder::Session;
using recorder::Thread;

const Api* api = nullptr;
Names names;
std::atomic<uint32_t> wanted_now{0};  // as observer.h has it

Name name_of(Thread* thread, Session session, const at::RecordFunction& fn) {
  const auto& descriptor = descriptor_of(fn);
  if (__builtin_expect(descriptor.index() == 1, 1)) {
    return names.of_schema(*api, thread, session, &std::get_if<1>(&descriptor)->get());
  }
  return {names.of_text(*api, thread, session, *std::get_if<0>(&descriptor)), false};
}

// Sequence number and forward thread as arena.h packs them.
uint64_t payload_of(const at::RecordFunction& fn) {
  const uint64_t sequence = static_cast<uint64_t>(fn.seqNr() + 1) & arena::kSequenceMask;
  const uint64_t forward = fn.forwardThreadId();
  if (__builtin_expect(forward == 0, 1)) return sequence;
  return sequence | forward_thread(forward) << 40;
}

Kind kind_of(at::RecordScope scope) { return scope == at::RecordScope::USER_SCOPE ? Kind::Range : Kind::Op; }

uint8_t flags_of(const at::RecordFunction& fn) { return is_async(fn) ? arena::kAsync : 0; }

uint8_t flags_at_begin(const at::RecordFunction& fn, const Name& name) {
  return flags_of(fn) | (__builtin_expect(name.multiplies, 0) && allows_tf32() ? arena::kAllowTf32 : 0);
}

// The recorder's queue of this thread while ops are recorded, else null.
Thread* thread_in(Local& here, Session session) {
  Thread* thread = recorder::current_thread(*api, here.recorder_slot);
  if (__builtin_expect(here.session != session, 0)) {
    here.session = session;
    name_this_thread(at::RecordFunction::currentThreadId());
  }
  return thread;
}

using Begun = std::unique_ptr<at::ObserverContext>;

// As torch.profiler does: where a backward op came from is known by its forward op.
ScriptPlace script_place(Thread* thread, Session session, const at::RecordFunction& fn, uint32_t wanted) {
  ScriptPlace place;
  if (!(wanted & (kStacks | kModules)) || fn.scope() == at::RecordScope::BACKWARD_FUNCTION) return place;
  if (wanted & kStacks) place.stack = script_stack(*api, thread, session);
  if (wanted & kModules) place.module = script_module(*api, thread, session);
  return place;
}

Slot head_of(const at::RecordFunction& fn, uint32_t name, uint8_t flags, uint32_t extensions) {
  Slot head{};
  recorder::set_head(&head, name, kind_of(fn.scope()), flags, static_cast<uint8_t>(fn.scope()),
                     static_cast<uint8_t>(extensions));
  head.payload = payload_of(fn);
  head.start = recorder::ticks(*api);
  return head;
}

// Attributes beyond kInPlace slots: lists of dozens of tensors.
bool write_large(Thread* thread, Session session, const at::RecordFunction& fn, const Name& name, const ScriptPlace& place,
                 uint32_t wanted, recorder::Handle* handle) {
  Slot slots[arena::kExtensionsMax];
  Attributes attributes(slots, arena::kExtensionsMax);
  if (!attributes.collect(fn, place, wanted) && !attributes.cut(fn, wanted)) {
    api->lose(recorder::Lost::TooLarge, 1);
    attributes.keep_small();
  }
  const Slot head = head_of(fn, name.id, flags_at_begin(fn, name), 0);
  return recorder::append(*api, thread, session, head, attributes.data(), attributes.bytes(), handle);
}

enum class Outcome { Written, NoRoom, TooLarge };

// Encodes straight into the arena: reading bytes again that were just written one by one would stall the processor.
Outcome write_in_place(Thread* thread, Session session, const at::RecordFunction& fn, const Name& name, uint8_t flags,
                       const ScriptPlace& place, uint32_t wanted, recorder::Handle* handle) {
  constexpr uint32_t kInPlace = 16;
  recorder::Window window(thread);
  Slot* slot = recorder::reserve(*api, thread, session, 1 + kInPlace);
  if (__builtin_expect(!slot, 0)) return Outcome::NoRoom;
  Attributes attributes(slot + 1, kInPlace);
  if (__builtin_expect(!attributes.collect(fn, place, wanted), 0)) return Outcome::TooLarge;
  const uint32_t extensions = attributes.close();
  handle->slot = slot;
  handle->place = thread->place;
  thread->extensions += extensions;
  *slot = head_of(fn, name.id, flags, extensions);
  recorder::publish(thread, 1 + extensions);
  return Outcome::Written;
}

bool write_with_attributes(Thread* thread, Session session, const at::RecordFunction& fn, recorder::Handle* handle) {
  const uint32_t wanted = wanted_now.load(std::memory_order_relaxed);
  const Name name = name_of(thread, session, fn);  // outside the window: strings have their own
  const ScriptPlace place = script_place(thread, session, fn, wanted);
  uint8_t flags = flags_at_begin(fn, name);
  const recorder::Enclosing* told = recorder::told_of(*api, kind_of(fn.scope()), &flags);
  switch (write_in_place(thread, session, fn, name, flags, place, wanted, handle)) {
    case Outcome::Written:
      recorder::tell_entered(told, thread, *handle);
      return true;
    case Outcome::NoRoom:
      return false;
    case Outcome::TooLarge:
      break;
  }
  return write_large(thread, session, fn, name, place, wanted, handle);
}

bool write_plain(Thread* thread, Session session, const at::RecordFunction& fn, recorder::Handle* handle) {
  if (__builtin_expect(fn.debugHandle() != -1, 0)) return write_with_attributes(thread, session, fn, handle);
  const Name name = name_of(thread, session, fn);
  return recorder::begin(*api, thread, session, name.id, kind_of(fn.scope()), flags_at_begin(fn, name), handle,
                         static_cast<uint8_t>(fn.scope()), payload_of(fn));
}

using Write = bool(Thread*, Session, const at::RecordFunction&, recorder::Handle*);

template <Write* write, bool timed>
Begun on_begin(const at::RecordFunction& fn) {
  const Session session = recorder::session_of(*api, recorder::kOps);
  if (__builtin_expect(!session, 0)) return nullptr;
  Local& here = local_now();
  Thread* thread = thread_in(here, session);
  if (__builtin_expect(!thread, 0)) return nullptr;
  Context* context = take_context(here);
  if (__builtin_expect(!context, 0)) {
    api->lose(recorder::Lost::ForeignThread, 1);
    return nullptr;
  }
  Begun begun(context);
  if constexpr (timed) prepare_timed_op();
  const bool written = write(thread, session, fn, &context->handle);
  if constexpr (timed) settle_timed_op();
  return written ? std::move(begun) : nullptr;
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* begun) {
  if (__builtin_expect(!begun, 0)) return;
  const uint64_t now = recorder::ticks(*api);
  Thread* thread = recorder::current_thread(*api, local_now().recorder_slot);
  if (__builtin_expect(!thread, 0)) return;
  recorder::end_at(*api, thread, static_cast<Context*>(begun)->handle, flags_of(fn), now);
}

std::mutex control;
at::CallbackHandle installed = at::INVALID_CALLBACK_HANDLE;

// torch makes its table of callbacks anew around each backward node, scope by scope: 25 ns for each that we ask for.
std::unordered_set<at::RecordScope> scopes(uint32_t wanted) {
  using Scope = at::RecordScope;
  std::unordered_set<Scope> asked{Scope::FUNCTION, Scope::BACKWARD_FUNCTION, Scope::TORCHSCRIPT_FUNCTION,
                                  Scope::USER_SCOPE};
  if (wanted & kMobile) {
    asked.insert({Scope::LITE_INTERPRETER, Scope::STATIC_RUNTIME_OP, Scope::STATIC_RUNTIME_MODEL});
  }
  return asked;
}

template <Write* write>
at::RecordFunctionCallback callback_that(uint32_t wanted) {
  using Callback = at::RecordFunctionCallback;
  return wanted & kTimes ? Callback(on_begin<write, true>, on_end) : Callback(on_begin<write, false>, on_end);
}

at::RecordFunctionCallback callback(uint32_t wanted) {
  auto made = wanted & kAttributes ? callback_that<write_with_attributes>(wanted) : callback_that<write_plain>(wanted);
  made.needsInputs(wanted & kInputs).scopes(scopes(wanted));
  return made;
}

// A child of a fork stops what its parent had started: it must find the lock, and torch's behind it, free.
void prepare_forks() {
  static const int once = pthread_atfork([] { control.lock(); }, [] { control.unlock(); }, [] { control.unlock(); });
  (void)once;
}

}  // namespace

void start(const Api& recorder_api, uint32_t wanted) {
  prepare_forks();
  const std::lock_guard<std::mutex> guard(control);
  if (installed != at::INVALID_CALLBACK_HANDLE) return;
  if (!api) names.watch();
  api = &recorder_api;
  wanted_now.store(wanted, std::memory_order_relaxed);
  prepare_contexts();
  installed = at::addGlobalCallback(callback(wanted));
}

void stop() {
  const std::lock_guard<std::mutex> guard(control);
  if (installed == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(installed);
  installed = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace profd::torch_observer
