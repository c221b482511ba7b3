#include "mix.h"

#include <algorithm>
#include <vector>

#include "session.h"

namespace profd::recorder {
namespace {

using arena::State;

constexpr uint32_t kChunksWalked = 16;
constexpr uint32_t kSlotsWalked = 1024;  // of each

// What of a chunk was counted: its taking, and the slots.
struct Seen {
  uint32_t generation = 0;
  uint32_t slots = 0;
};
std::vector<Seen>& seen = *new std::vector<Seen>;  // never destroyed: the control thread may outlive main
uint32_t turn = 0;  // the chunk that the next look begins with

int source_of(Kind kind) {
  switch (kind) {
    case Kind::Range: case Kind::Instant: case Kind::Counter: return 0;
    case Kind::PyCall: case Kind::CCall: case Kind::Module: return 1;
    case Kind::Op: return 2;
    case Kind::Api: case Kind::Kernel: case Kind::Memcpy: case Kind::Memset: case Kind::Sync: case Kind::Overhead:
    case Kind::Graph: return 3;
    case Kind::Alloc: case Kind::OutOfMemory: return 4;
    default: return -1;
  }
}

// Its thread goes on writing behind `count`; what stands before it stays.
void walk(const ChunkHeader* chunk, uint32_t from, uint32_t count, Mix& mix) {
  const Slot* slots = reinterpret_cast<const Slot*>(chunk + 1);
  for (uint32_t i = from; i < count; i += 1u + slots[i].extensions) {
    const int source = source_of(slots[i].kind);
    if (source >= 0) mix.events[source]++;
  }
}

}  // namespace

Mix sample_mix() {
  Mix mix;
  const uint32_t chunks = mapped.where.chunk_count;
  seen.resize(chunks);
  uint32_t walked = 0;
  for (uint32_t i = 0; i < chunks && walked < kChunksWalked; i++) {
    const uint32_t index = (turn + i) % chunks;
    if (mapped.states()[index].load(std::memory_order_acquire) == static_cast<uint32_t>(State::Free)) continue;
    const ChunkHeader* chunk = mapped.chunk(index);
    const uint32_t count = std::min(chunk->count.load(std::memory_order_acquire), kSlotsPerChunk);
    Seen& before = seen[index];
    if (before.generation != chunk->generation) before = {chunk->generation, 0};
    if (before.slots >= count) continue;
    // Slots can be read one after the other only: those at the end of a long piece are taken to be like the rest.
    walk(chunk, before.slots, std::min(count, before.slots + kSlotsWalked), mix);
    before.slots = count;
    walked++;
  }
  turn = chunks ? (turn + kChunksWalked) % chunks : 0;
  return mix;
}

void reset_mix() {
  seen.clear();
  turn = 0;
}

}  // namespace profd::recorder
