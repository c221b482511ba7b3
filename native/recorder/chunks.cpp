// Chunks change hands here: taken from the arena, sealed when full, handed on when their thread ends.
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "clock.h"
#include "session.h"

namespace profd::recorder {

using arena::State;

namespace {

constexpr uint32_t kMappedAtOnce = 4;

std::atomic<uint32_t> holds{1};
std::atomic<uint64_t> ids{1};
std::atomic<uint32_t> streams{0};
std::atomic<uint32_t> orphans{0};
std::atomic<uint64_t> search{0};   // Header::freed at the last search for a free chunk << 32 | where that ended
std::atomic<uint64_t> resident_chunks[kArenaBytesMax / arena::kChunkBytes / 64];  // a bit for each chunk that has its memory
std::atomic<uint64_t> foreign{0};  // events of threads without a queue

Slot* slots_of(ChunkHeader* chunk) { return reinterpret_cast<Slot*>(chunk + 1); }

uint32_t used_slots(const Thread* thread) { return static_cast<uint32_t>(thread->next - slots_of(thread->chunk)); }

uint32_t thread_name() {
  char name[16] = {};
  prctl(PR_GET_NAME, name);
  return intern_in_window(name, strnlen(name, sizeof name));
}

void set_state(ChunkHeader* chunk, State state) {
  mapped.states()[mapped.index_of(chunk)].store(static_cast<uint32_t>(state), std::memory_order_release);
}

bool claim(uint32_t index, State from) {
  uint32_t expected = static_cast<uint32_t>(from);
  return mapped.states()[index].compare_exchange_strong(expected, static_cast<uint32_t>(State::Open),
                                                        std::memory_order_acq_rel);
}

bool is_resident(uint32_t index) { return resident_chunks[index / 64].load(std::memory_order_relaxed) >> index % 64 & 1; }

bool map_chunks(uint32_t begin, uint32_t end) {
  if (!make_resident(mapped.chunk(begin), uint64_t{end - begin} * arena::kChunkBytes)) return false;
  for (uint32_t i = begin; i < end; i++) resident_chunks[i / 64].fetch_or(uint64_t{1} << i % 64, std::memory_order_relaxed);
  return true;
}

// Has a chunk's memory mapped here, and that of those which come next: a fault at every 128th event would be seen, a call
// at every 8000th is not. False: there is no memory.
bool has_its_memory(uint32_t index) {
  if (is_resident(index)) return true;
  uint32_t end = index + 1;
  while (end < std::min(index + kMappedAtOnce, mapped.where.chunk_count) && !is_resident(end)) end++;
  return map_chunks(index, end) || map_chunks(index, index + 1);
}

// The lowest free chunk: first what its reader has allocated (docs/arena.md) or somebody has used, and memory of this
// process's own only when all of that is taken. What lay below the last one can be free only if `freed` has changed.
ChunkHeader* claim_free(uint64_t freed) {
  const uint32_t count = mapped.where.chunk_count;
  const uint64_t last = search.load(std::memory_order_relaxed);
  const uint32_t start = last >> 32 == (freed & 0xffffffff) ? static_cast<uint32_t>(last) : 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t index = (start + i) % count;
    if (mapped.states()[index].load(std::memory_order_relaxed) != static_cast<uint32_t>(State::Free)) continue;
    if (!has_its_memory(index)) return nullptr;
    if (!claim(index, State::Free)) continue;
    search.store(freed << 32 | (index + 1), std::memory_order_relaxed);
    return mapped.chunk(index);
  }
  return nullptr;
}

ChunkHeader* claim_orphan() {
  for (uint32_t index = 0; index < mapped.where.chunk_count; index++) {
    if (mapped.states()[index].load(std::memory_order_relaxed) != static_cast<uint32_t>(State::Orphan)) continue;
    if (claim(index, State::Orphan)) return mapped.chunk(index);
  }
  return nullptr;
}

void drop_chunk(Thread* thread) {
  thread->chunk = nullptr;
  thread->next = thread->limit = nullptr;
  thread->place.hold = kNoChunk;
  thread->extensions = 0;
}

void seal_chunk(Thread* thread) {
  ChunkHeader* chunk = thread->chunk;
  chunk->sealed = read_anchor(api.state.clock, 1);
  mapped.header()->recorded.fetch_add(used_slots(thread) - thread->extensions, std::memory_order_relaxed);
  set_state(chunk, State::Sealed);
  drop_chunk(thread);
}

void hold_chunk(Thread* thread, ChunkHeader* chunk, Session session, uint32_t used) {
  chunk->generation = next_hold();
  thread->place.hold = chunk->generation;
  thread->chunk = chunk;
  thread->next = slots_of(chunk) + used;
  thread->limit = slots_of(chunk) + kSlotsPerChunk;
  thread->session = session;
  thread->starved = false;
}

// A chunk that a thread left half full when it ended. Its stream goes on here, under this thread's name.
bool adopt_orphan(Thread* thread, Session session) {
  if (orphans.load(std::memory_order_relaxed) == 0) return false;
  ChunkHeader* chunk = claim_orphan();
  if (!chunk) return false;
  orphans.fetch_sub(1, std::memory_order_relaxed);
  const uint32_t used = chunk->count.load(std::memory_order_relaxed);
  if (used >= kSlotsPerChunk) {  // not what we left there
    set_state(chunk, State::Sealed);
    return false;
  }
  hold_chunk(thread, chunk, session, used);
  thread->place.stream = chunk->stream;
  thread->place.sequence = chunk->sequence;
  thread->first_hold = thread->place.hold;
  thread->id_base = chunk->id_base;
  thread->extensions = static_cast<uint32_t>(chunk->extensions);
  Slot* slot = thread->next;
  slot->start = ticks(api);
  slot->end = thread->tid;
  slot->payload = 0;
  set_head(slot, thread_name(), Kind::Thread, 0, 0, 0);
  thread->extensions++;  // no event
  publish(thread, 1);
  return true;
}

bool open_chunk(Thread* thread, Session session) {
  if (left_behind()) return false;
  const uint64_t freed = mapped.header()->freed.load(std::memory_order_acquire);
  if (thread->starved && thread->session == session && freed == thread->freed_seen) return false;
  ChunkHeader* chunk = claim_free(freed);
  if (!chunk) {
    thread->session = session;
    thread->freed_seen = freed;
    thread->starved = true;
    return false;
  }
  const bool continues = thread->first_hold != 0;
  if (!continues) {
    thread->place.stream = streams.fetch_add(1, std::memory_order_relaxed);
    thread->place.sequence = 0;
  } else {
    thread->place.sequence++;
  }
  hold_chunk(thread, chunk, session, 0);
  if (!continues) thread->first_hold = thread->place.hold;
  thread->id_base = ids.fetch_add(kSlotsPerChunk, std::memory_order_relaxed);
  chunk->count.store(0, std::memory_order_relaxed);
  chunk->stream = thread->place.stream;
  chunk->sequence = thread->place.sequence;
  chunk->tid = thread->tid;
  chunk->thread_name = thread_name();
  chunk->id_base = thread->id_base;
  chunk->opened = read_anchor(api.state.clock, 3);
  chunk->sealed = {};
  std::atomic_thread_fence(std::memory_order_release);
  return true;
}

void enter_session(Thread* thread, Session session) {
  drop_chunk(thread);
  thread->session = session;
  thread->first_hold = 0;
  thread->starved = false;
}

}  // namespace

uint32_t next_hold() {
  uint32_t hold = holds.fetch_add(1, std::memory_order_relaxed);
  while (hold == kNotRecorded || hold == kNoChunk) hold = holds.fetch_add(1, std::memory_order_relaxed);
  return hold;
}

void count_foreign() {
  mapped.header()->lost[static_cast<uint32_t>(Lost::ForeignThread)].fetch_add(foreign.exchange(0));
}

// Events of chunks that are not sealed; near enough while threads write.
uint64_t open_events() {
  uint64_t slots = 0, extensions = 0;
  for (uint32_t i = 0; i < mapped.where.chunk_count; i++) {
    const uint32_t state = mapped.states()[i].load(std::memory_order_acquire);
    if (state != static_cast<uint32_t>(State::Open) && state != static_cast<uint32_t>(State::Orphan)) continue;
    slots += std::min(mapped.chunk(i)->count.load(std::memory_order_relaxed), kSlotsPerChunk);
    if (state == static_cast<uint32_t>(State::Orphan)) extensions += mapped.chunk(i)->extensions;
  }
  for (Thread* thread = first_thread(); thread; thread = thread->all) {
    extensions += __atomic_load_n(&thread->extensions, __ATOMIC_RELAXED);  // of the chunk that it has open
  }
  return slots - std::min(extensions, slots);
}

void reset_chunks() {
  foreign.store(0, std::memory_order_relaxed);
  streams.store(0, std::memory_order_relaxed);
  orphans.store(0, std::memory_order_relaxed);
  search.store(0, std::memory_order_relaxed);
  for (uint32_t word = 0; word * 64 < mapped.where.chunk_count; word++) resident_chunks[word].store(0, std::memory_order_relaxed);
  map_chunks(0, 1);  // for the first event; what is refused now is lost then, and counted
}

void lose(Lost why, uint64_t events) {
  Thread* thread = this_thread;
  if (!thread) {  // it could not be given one: nothing keeps the arena mapped for it
    foreign.fetch_add(events, std::memory_order_relaxed);
    return;
  }
  const bool nested = thread->writing.load(std::memory_order_relaxed);
  thread->writing.store(1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (api.state.live.load(std::memory_order_relaxed)) {
    mapped.header()->lost[static_cast<uint32_t>(why)].fetch_add(events, std::memory_order_relaxed);
  }
  if (!nested) thread->writing.store(0, std::memory_order_release);
}

bool take_chunk(Thread* thread, Session session, uint32_t slots) {
  if (api.state.live.load(std::memory_order_relaxed) != session) return false;  // over: nothing is owed any more
  if (thread->session != session) enter_session(thread, session);
  if (thread->chunk && thread->limit - thread->next >= slots) return true;
  if (thread->chunk) seal_chunk(thread);
  const bool begun = thread->first_hold != 0;
  if (!begun && adopt_orphan(thread, session)) {
    if (thread->limit - thread->next >= slots) return true;
    seal_chunk(thread);
  }
  if (open_chunk(thread, session)) return true;
  lose(Lost::ArenaFull, 1);
  return false;
}

void end_elsewhere(Thread* thread, const Handle& handle, uint64_t when, uint8_t flags) {
  Window window(thread);
  const Session live = api.state.live.load(std::memory_order_relaxed);
  if (!live || static_cast<int32_t>(handle.place.hold - mapped.first_hold) < 0) return;  // its session is over
  Slot* slot = reserve(api, thread, live, 1);
  if (!slot) return;
  const bool own = thread->first_hold && handle.place.stream == thread->place.stream &&
                   static_cast<int32_t>(handle.place.hold - thread->first_hold) >= 0;
  slot->start = handle.place.sequence;
  slot->end = when;
  slot->payload = (reinterpret_cast<uintptr_t>(handle.slot) & (arena::kChunkBytes - 1)) / sizeof(Slot) -
                  sizeof(ChunkHeader) / sizeof(Slot);
  set_head(slot, handle.place.stream, Kind::Patch, static_cast<uint8_t>(flags | (own ? 0 : arena::kAsync)), 0, 0);
  thread->extensions++;  // no event
  publish(thread, 1);
}

void leave_chunk(Thread* thread) {
  Window window(thread);
  if (!thread->chunk || api.state.live.load(std::memory_order_relaxed) != thread->session) return;
  if (thread->next == thread->limit) {
    seal_chunk(thread);
    return;
  }
  thread->chunk->extensions = thread->extensions;  // for whoever goes on
  set_state(thread->chunk, State::Orphan);
  orphans.fetch_add(1, std::memory_order_relaxed);
  drop_chunk(thread);
}

}  // namespace profd::recorder
