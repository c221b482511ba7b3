// What the slow paths of the recorder share: the arena that is mapped now and the counters that outlive it.
#pragma once

#include <atomic>
#include <cstdint>

#include "descriptor.h"
#include "recorder.h"

namespace profd::recorder {

// The mapped arena. Offsets and sizes are our own copies: the reader could write into the shared ones.
struct Arena {
  uint8_t* base = nullptr;
  uint64_t bytes = 0;
  arena::Layout where{};
  Descriptor memory;
  Session session = 0;
  uint32_t first_hold = 0;  // holds of this session start here

  arena::Header* header() const { return reinterpret_cast<arena::Header*>(base); }
  std::atomic<uint32_t>* states() const { return reinterpret_cast<std::atomic<uint32_t>*>(base + where.states_offset); }
  uint8_t* strings() const { return base + where.strings_offset; }
  ChunkHeader* chunk(uint32_t index) const {
    return reinterpret_cast<ChunkHeader*>(base + where.chunks_offset + uint64_t{index} * arena::kChunkBytes);
  }
  uint32_t index_of(const ChunkHeader* chunk) const {
    const auto offset = reinterpret_cast<const uint8_t*>(chunk) - (base + where.chunks_offset);
    return static_cast<uint32_t>(static_cast<uint64_t>(offset) / arena::kChunkBytes);
  }
};

[[gnu::visibility("hidden")]] extern Arena mapped;

// Counters of chunks.cpp for a new session and the first chunk's memory, and what they are.
void reset_chunks();
uint32_t next_hold();
void count_foreign();   // into the mapped header
uint64_t open_events();  // in chunks that are not sealed

// True in a child made without fork handlers (a raw clone), which has then let go of its parent's arena.
bool left_behind();

// Has the kernel give memory while it can still say no: false. A write that it has none for is a SIGBUS, the job's end.
// True as well where it cannot be asked (Linux before 5.14): then the write has to tell. Keeps errno.
bool make_resident(void* at, uint64_t bytes);

bool take_chunk(Thread* thread, Session session, uint32_t slots);
void end_elsewhere(Thread* thread, const Handle& handle, uint64_t when, uint8_t flags);
void leave_chunk(Thread* thread);  // the thread ends: its chunk goes to the next one

uint32_t intern_string(Thread* thread, Session session, const char* text, size_t bytes);
uint32_t intern_in_window(const char* text, size_t bytes);
bool reset_strings();   // for a new arena; false: no memory
void map_first_strings();
void forget_strings(bool somebody_may_look);  // the arena is gone

Thread** thread_slot();
Thread* make_thread();
Thread* first_thread();            // of all that ever were; follow Thread::all
void forget_threads_after_fork();  // only the calling thread is left
void lock_threads();
void unlock_threads();
void lock_strings();
void unlock_strings();

uint32_t os_thread_id();

}  // namespace profd::recorder
