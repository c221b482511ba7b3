// The fast path: how a thread writes events into its queue. Header only, and free of CPython and of libraries, so that
// the torch observer, a shared object of its own, inlines the same code. docs/arena.md says what is written.
//
//   Session session = session_of(api, kRanges);            // 0: not recording, or not this source
//   if (!session) return;
//   Thread* thread = current_thread(api);                  // null: counted, leave
//   uint32_t name = intern(api, thread, session, "x", 1);  // ids hold for one session: cache them with it
//   Handle handle;
//   begin(api, thread, session, name, Kind::Range, 0, &handle);
//   ...
//   end(api, thread, handle, 0);                            // any thread; any time, also after the session
//
// Nothing here blocks, allocates or raises. What could not be recorded is counted in the arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "arena.h"

namespace profd::recorder {

using arena::Anchor;
using arena::ChunkHeader;
using arena::Clock;
using arena::Kind;
using arena::kSlotsPerChunk;
using arena::Lost;
using arena::Slot;

// Bits of Switch::armed.
enum Source : uint32_t { kRanges = 1, kPython = 2, kOps = 4, kGpu = 8, kMemory = 16 };

// One arm to stop, numbered from 1 within the process. 0: none.
using Session = uint64_t;

// Where a thread writes now. `hold` numbers every taking of every chunk in this process, so that one compare says
// whether a handle's slot is still this thread's to write.
struct alignas(16) Place {
  uint32_t hold;
  uint32_t stream;
  uint64_t sequence;
};

inline constexpr uint32_t kNotRecorded = 0;      // as Handle::place.hold
inline constexpr uint32_t kNoChunk = 0xffffffff;  // as Thread::place.hold

// An event that has begun, or kNotRecorded.
struct Handle {
  Slot* slot;
  Place place;
};

// A thread's queue. Only its thread touches it, but for `writing`, which the control thread reads.
struct alignas(64) Thread {
  Place place;
  Slot* next;
  Slot* limit;
  ChunkHeader* chunk;
  Session session;                // of `chunk`; a chunk of an older session is gone
  std::atomic<uint32_t> writing;  // 1 while the arena must stay mapped
  uint32_t extensions;            // slots of the chunk that are no events
  uint64_t id_base;               // correlation id of the chunk's slot 0
  // The slow path's:
  uint32_t first_hold;   // since this thread has the stream; 0: it has none
  uint32_t tid;
  uint64_t freed_seen;   // Header::freed when no chunk was free
  bool starved;          // no chunk was free
  Handle* open;          // of range_push, innermost last; malloc, kept for the next thread
  uint32_t open_count;   // may be more than there is room for: what is beyond is not remembered
  uint32_t open_room;
  Thread* all;           // next in the list of all threads; never removed
  Thread* unused;        // next in the list of those whose thread has ended
};

// Hears which ranges and ops a thread enters and leaves: CUPTI's external correlation, while that is recorded. `mark`
// names one entering in this process, `id` is the event's correlation id. Leaving may come without entering, and on
// another thread.
struct Enclosing {
  void (*enter)(uint64_t mark, uint64_t id);
  void (*leave)(uint64_t mark);
};

// What decides whether anything is recorded, and who hears of it. Read by every thread on every event, written by arm and
// stop: one cache line.
struct alignas(64) Switch {
  std::atomic<uint32_t> armed;  // Source bits; 0 while idle
  Clock clock;
  std::atomic<Session> live;    // 0 unless recording
  std::atomic<const Enclosing*> enclosing;  // null: nobody wants to know. What it points to is never freed
};
static_assert(sizeof(Switch) == 64);

inline constexpr uint32_t kApiVersion = 1;
inline constexpr const char* kApiCapsule = "profclient._recorder._api";

// The capsule's pointer. Additive: what is new comes at the end and raises `bytes`.
struct Api {
  Switch state;
  uint32_t version;
  uint32_t bytes;
  Thread** (*thread_slot)();                 // address of this thread's Thread*; null until make_thread
  Thread* (*make_thread)();                  // null: counted as ForeignThread
  bool (*take_chunk)(Thread*, Session, uint32_t slots);  // inside a Window: room for `slots`, or counted and false
  void (*end_elsewhere)(Thread*, const Handle&, uint64_t ticks, uint8_t flags);
  uint32_t (*intern)(Thread*, Session, const char*, size_t);  // any bytes; kNoName: counted
  void (*lose)(Lost, uint64_t events);       // counts what the caller left out
  uint64_t (*incarnation)();
};

// While it exists the arena of the session that is live stays mapped. Costs two plain stores: the control thread makes
// up for the missing barrier with membarrier(2).
class Window {
 public:
  explicit Window(Thread* thread) : thread_(thread) {
    thread_->writing.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Window() { thread_->writing.store(0, std::memory_order_release); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

 private:
  Thread* thread_;
};

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// A time as slots hold it. Never 0.
inline uint64_t ticks([[maybe_unused]] const Api& api) {
#if defined(__x86_64__)
  if (__builtin_expect(api.state.clock == Clock::Tsc, 1)) return __rdtsc();
#endif
  return monotonic_ns();
}

// The session to record `source` in, or 0.
inline Session session_of(const Api& api, Source source) {
  if (__builtin_expect(!(api.state.armed.load(std::memory_order_relaxed) & source), 1)) return 0;
  return api.state.live.load(std::memory_order_acquire);
}

inline uint32_t intern(const Api& api, Thread* thread, Session session, const char* text, size_t bytes) {
  return api.intern(thread, session, text, bytes);
}

// Room for `slots` in one piece, or null (counted). Inside a Window.
inline Slot* reserve(const Api& api, Thread* thread, Session session, uint32_t slots) {
  const Session live = api.state.live.load(std::memory_order_relaxed);
  if (__builtin_expect(live != session || thread->session != session || thread->limit - thread->next < slots, 0)) {
    if (!api.take_chunk(thread, session, slots)) return nullptr;
  }
  return thread->next;
}

// Asks for the memory that the next event will most likely be written to, if it is as large as the last one was. Queues
// run through memory that no cache holds: a store that waits for it holds up those of the job behind it.
inline void fetch_ahead(const Slot* next, uint32_t slots) {
  constexpr uint32_t kSlotsPerLine = 64 / sizeof(Slot);
  for (uint32_t ahead = kSlotsPerLine; ahead <= slots + 1; ahead += kSlotsPerLine) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(next[ahead]));  // __builtin_prefetch would fetch it for reading
#else
    __builtin_prefetch(next + ahead, 1);
#endif
  }
}

// Makes `slots` reserved slots visible to the reader. Inside the same Window.
inline void publish(Thread* thread, uint32_t slots) {
  thread->next += slots;
  fetch_ahead(thread->next, slots);
  const uint64_t used = static_cast<uint64_t>(thread->next - reinterpret_cast<Slot*>(thread->chunk + 1));
  thread->chunk->count.store(static_cast<uint32_t>(used), std::memory_order_release);
}

// Sets name, kind, flags, scope and extensions in one store.
inline void set_head(Slot* slot, uint32_t name, Kind kind, uint8_t flags, uint8_t scope, uint8_t extensions) {
  const uint64_t head = uint64_t{name} | uint64_t{static_cast<uint8_t>(kind)} << 32 | uint64_t{flags} << 40 |
                        uint64_t{scope} << 48 | uint64_t{extensions} << 56;
  std::memcpy(&slot->name, &head, sizeof head);
}

// Correlation id of an event that this thread has just begun or appended.
inline uint64_t id_of(const Thread* thread, const Handle& handle) {
  return thread->id_base + static_cast<uint64_t>(handle.slot - reinterpret_cast<Slot*>(thread->chunk + 1));
}

inline bool is_told(Kind kind, uint8_t flags) {
  return (kind == Kind::Range || kind == Kind::Op) && !(flags & arena::kAsync);
}

// One slot that was taken once: `hold` numbers the takings of chunks, the address says which of a chunk's slots.
inline uint64_t mark_of(const Handle& handle) {
  return uint64_t{handle.place.hold} << 16 | (reinterpret_cast<uintptr_t>(handle.slot) / sizeof(Slot) & 0xffff);
}

// After an event has been published, outside its Window: whoever hears of it may take long.
inline void tell_entered(const Enclosing* told, const Thread* thread, const Handle& handle) {
  if (__builtin_expect(told != nullptr, 0)) told->enter(mark_of(handle), id_of(thread, handle));
}

// Who is to be told of an event, if anybody; `flags` then says so.
inline const Enclosing* told_of(const Api& api, Kind kind, uint8_t* flags) {
  const Enclosing* told = api.state.enclosing.load(std::memory_order_relaxed);
  if (__builtin_expect(told == nullptr, 1) || !is_told(kind, *flags)) return nullptr;
  *flags |= arena::kNamed;
  return told;
}

// Begins an event now. `payload` as in arena.h.
inline bool begin(const Api& api, Thread* thread, Session session, uint32_t name, Kind kind, uint8_t flags,
                  Handle* handle, uint8_t scope = 0, uint64_t payload = 0) {
  const Enclosing* told = told_of(api, kind, &flags);
  {
    Window window(thread);
    Slot* slot = reserve(api, thread, session, 1);
    if (__builtin_expect(!slot, 0)) {
      handle->place.hold = kNotRecorded;
      return false;
    }
    slot->end = 0;
    slot->payload = payload;
    set_head(slot, name, kind, flags, scope, 0);
    handle->slot = slot;
    handle->place = thread->place;
    slot->start = ticks(api);
    publish(thread, 1);
  }
  tell_entered(told, thread, *handle);
  return true;
}

// Ends it at `when`. Does nothing if its session is over, and nothing for an event that was not recorded.
inline void end_at(const Api& api, Thread* thread, const Handle& handle, uint8_t flags, uint64_t when) {
  if (const Enclosing* told = api.state.enclosing.load(std::memory_order_relaxed); __builtin_expect(told != nullptr, 0))
    told->leave(mark_of(handle));
  if (__builtin_expect(handle.place.hold == thread->place.hold, 1)) {
    Window window(thread);
    if (__builtin_expect(api.state.live.load(std::memory_order_relaxed) == thread->session, 1)) {
      if (flags) handle.slot->flags |= flags;
      reinterpret_cast<std::atomic<uint64_t>&>(handle.slot->end).store(when, std::memory_order_release);
    }
    return;
  }
  if (handle.place.hold != kNotRecorded) api.end_elsewhere(thread, handle, when, flags);
}

inline void end(const Api& api, Thread* thread, const Handle& handle, uint8_t flags) {
  end_at(api, thread, handle, flags, ticks(api));
}

// Appends an event that is known already: `head` as it shall stand (its `extensions` is set here), then extension
// bytes. More bytes than fit are left out and counted as TooLarge. `handle` may be null.
inline bool append(const Api& api, Thread* thread, Session session, const Slot& head, const void* extension = nullptr,
                   size_t bytes = 0, Handle* handle = nullptr) {
  if (handle) handle->place.hold = kNotRecorded;
  if (__builtin_expect(bytes > arena::kExtensionsMax * sizeof(Slot), 0)) {
    api.lose(Lost::TooLarge, 1);
    bytes = 0;
  }
  const uint32_t extensions = static_cast<uint32_t>((bytes + sizeof(Slot) - 1) / sizeof(Slot));
  uint8_t flags = head.flags;
  const Enclosing* told = handle ? told_of(api, head.kind, &flags) : nullptr;
  {
    Window window(thread);
    Slot* slot = reserve(api, thread, session, 1 + extensions);
    if (__builtin_expect(!slot, 0)) return false;
    *slot = head;
    slot->flags = flags;
    slot->extensions = static_cast<uint8_t>(extensions);
    if (extensions) {
      std::memset(slot + extensions, 0, sizeof(Slot));  // what is left of the last one ends the records
      std::memcpy(slot + 1, extension, bytes);
      thread->extensions += extensions;
    }
    if (handle) {
      handle->slot = slot;
      handle->place = thread->place;
    }
    publish(thread, 1 + extensions);
  }
  if (told) tell_entered(told, thread, *handle);
  return true;
}

// This thread's queue for callers in other shared objects. Theirs is the address, kept in a thread_local of their own.
inline Thread* current_thread(const Api& api, Thread**& slot) {
  if (__builtin_expect(!slot, 0)) slot = api.thread_slot();
  if (__builtin_expect(!*slot, 0)) return api.make_thread();
  return *slot;
}

}  // namespace profd::recorder
