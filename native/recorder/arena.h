// The arena: memory that a target writes and a streamer reads. docs/arena.md says it in words.
//
// A sealed memfd: this header, a table of chunk states, an area of strings, chunks. Everything is little-endian, and
// every field may change while the other side reads it: readers copy first and check the copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace profd::arena {

inline constexpr uint64_t kMagic = 0x31414e4552414650;  // "PFARENA1"
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kPage = 4096;
inline constexpr uint32_t kChunkBytes = 64 * 1024;
inline constexpr uint32_t kNoName = 0;  // the string area begins with one empty string

// Who may touch a chunk. FREE -> OPEN by the thread that takes it (compare and swap), OPEN -> SEALED by the thread that
// writes it when it is full (or ends), OPEN -> ORPHAN when its thread ends with room left, ORPHAN -> OPEN by the next
// new thread, SEALED -> FREE by the reader, after the ack. While `recording` is 0 the reader also takes OPEN and ORPHAN.
enum class State : uint32_t { Free = 0, Open = 1, Sealed = 2, Orphan = 3 };

// A moment on three clocks. `ticks` is what slots hold: the TSC, or CLOCK_MONOTONIC ns where `clock` says so.
struct Anchor {
  uint64_t ticks;
  uint64_t mono_ns;
  int64_t real_ns;
};

enum class Clock : uint32_t { MonotonicNs = 0, Tsc = 1 };

// Events that a target could not record, by reason. Indices of Header::lost; names in docs/wire-format.md.
enum class Lost : uint32_t {
  ArenaFull = 0,     // no free chunk: the newest event is dropped
  StringsFull = 1,   // recorded, but without its name
  TooLarge = 2,      // arguments that fit no slot group; the event itself is kept
  BackedOff = 3,     // left out to stay within --max-overhead
  ForeignThread = 4, // a thread that could not be given a queue
  CuptiDropped = 5,  // CUPTI had no buffer to write to
  CuptiBadTime = 6,  // a GPU record that has no end, or ends before it starts
  CuptiLate = 7,     // a GPU record that CUPTI handed over after the stop
  CudaEventsFull = 8,   // an op beyond those whose device time is kept; the op itself is kept
  CudaEventFailed = 9,  // CUDA refused an event, or the time between two; the op itself is kept
  TooDeep = 10,         // range_push within more open ones than are remembered
};
inline constexpr uint32_t kLostReasons = 16;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;  // kPage
  uint64_t arena_bytes;
  uint64_t incarnation;  // random; one process image (a fork child has its own)
  uint64_t epoch;        // of the arm that made this arena
  uint32_t pid;          // as the target sees itself
  Clock clock;
  uint64_t states_offset;  // chunk_count x u32 State
  uint64_t strings_offset;
  uint64_t strings_bytes;  // capacity
  uint64_t chunks_offset;
  uint32_t chunk_count;
  uint32_t chunk_bytes;
  Anchor armed;
  std::atomic<uint32_t> latest_turn;  // odd while `latest` is written (sequence lock)
  uint32_t reserved0;
  Anchor latest;  // renewed once a second while armed, and at stop
  std::atomic<uint32_t> recording;  // 1 from arm to stop
  uint32_t reserved1;
  std::atomic<uint64_t> strings_tail;  // bytes published
  std::atomic<uint64_t> freed;         // chunks ever freed by the reader: whoever found none waits for a change
  std::atomic<uint64_t> recorded;      // primary slots of chunks that were sealed
  std::atomic<uint64_t> lost[kLostReasons];
};
static_assert(sizeof(Header) <= kPage);

// A string: u32 length, UTF-8 bytes, padding to 8. Its id is (offset in the area) / 8; id 0 is the empty string.
inline constexpr uint32_t kStringAlign = 8;
inline constexpr uint32_t kStringBytesMax = 64 * 1024;

struct ChunkHeader {
  uint32_t generation;  // of this memory: rises each time the chunk is taken
  uint32_t stream;      // queue number, from 0; unique in the arena, never reused
  uint64_t sequence;    // of the chunk in its stream, from 0
  uint32_t tid;         // OS thread id (own namespace) of the first slot
  uint32_t thread_name; // string id
  uint64_t id_base;     // correlation id of slot 0; slot i has id_base + i. Never 0.
  std::atomic<uint32_t> count;  // slots published, extensions included: release-stored after they are written
  uint32_t reserved0;
  Anchor opened;  // of a chunk that follows another: that one's `sealed`, so that times go on without a step
  Anchor sealed;  // all zero while OPEN
  uint64_t extensions;  // of an ORPHAN: slots of `count` that are no events; for the thread that goes on
  uint64_t reserved1[4];
};
static_assert(sizeof(ChunkHeader) == 128);

enum class Kind : uint8_t {
  None = 0,
  Range = 1,      // profclient.record_function: user annotation
  Op = 2,         // a framework's operator
  PyCall = 3,     // Python function: name is "file(line): function"
  CCall = 4,      // C function called from Python
  Module = 5,     // nn.Module call: name is "nn.Module: Linear_0", path in Ext::Module
  Instant = 6,    // end is not written
  Counter = 7,    // end holds the bits of a double
  Alloc = 8,      // payload: bytes, negative for a free; end: address; Ext::Memory
  OutOfMemory = 9,// payload: bytes asked for; Ext::Memory
  Patch = 10,     // the end of an event that began in a chunk this thread may not write any more:
                  // end: its time, name: stream, start: chunk sequence, payload: slot. The event ends on this thread.
  Thread = 11,    // from here on the chunk is written by another thread: end: tid, name: its name
  // From CUPTI. Start and end are CLOCK_REALTIME ns; Ext::Gpu says the rest. They nest with nothing.
  Api = 12,       // of CUDA's runtime or driver
  Kernel = 13,
  Memcpy = 14,
  Memset = 15,
  Sync = 16,
  Overhead = 17,
  Graph = 18,     // a whole graph, where nodes are not recorded
};

enum Flag : uint8_t {
  kAsync = 1,        // may end on another thread, outside the nesting
  kOpenAtStart = 2,  // was open when recording began; start is that moment
  kFailed = 4,       // left by an exception
  kBackend = 8,      // times were given by the caller (backend events)
  kNamed = 16,       // CUPTI was told of it: calls that were made in it have its correlation id as their external id
  kAllowTf32 = 32,   // of an Op that multiplies matrices: cuBLAS might use TF32
};

// 32 bytes. `end` 0: open. An event with arguments is followed by `extensions` more slots of raw bytes, published with
// it in one store of count.
struct Slot {
  uint64_t start;  // ticks
  uint64_t end;    // ticks
  uint32_t name;   // string id
  Kind kind;
  uint8_t flags;
  uint8_t scope;       // at::RecordScope of an Op; 0 elsewhere
  uint8_t extensions;  // slots that follow and belong to this one
  uint64_t payload;    // Op: bits 0-39 sequence number + 1 (0: none), bits 40-63 forward thread (0: none)
};
static_assert(sizeof(Slot) == 32);

inline constexpr uint32_t kSlotsPerChunk = (kChunkBytes - sizeof(ChunkHeader)) / sizeof(Slot);
inline constexpr uint32_t kExtensionsMax = 255;
inline constexpr uint64_t kSequenceMask = (uint64_t{1} << 40) - 1;

// Extension slots hold records {u8 type, u8 0, u16 length, bytes} without padding between; type 0 ends them.
enum class Ext : uint8_t {
  End = 0,
  Inputs = 1,         // tag stream of tensor inputs: docs/wire-format.md
  Args = 2,           // UTF-8 JSON object of user arguments
  Memory = 3,         // u8 device type (events/schema.py DeviceType), u8 0, i16 index, u32 0, i64 allocated, i64 reserved (INT64_MIN: unknown)
  Module = 4,         // u32 string id of the attribute path ("layers.3.attn.q_proj")
  ForwardThread = 5,  // u64, where it does not fit the payload
  DebugHandle = 6,    // i64
  Stack = 7,          // u32 string id: frames joined by ';', innermost first
  TensorIds = 8,      // per tensor of the inputs, in order: u64 impl, u64 storage
  ExternalTime = 9,   // of kBackend: i64 start, i64 end, Unix ns; start and end of the slot are then 0 and 1
  Flops = 10,         // double
  Gpu = 11,           // GpuRecord, or only its first kGpuRecordShort bytes: the rest is 0. Of a Counter: of which op it is
};

struct GpuRecord {
  uint32_t correlation;
  uint32_t device, context, stream;
  uint32_t tid;     // of an Api or Sync: OS thread id
  uint32_t detail;  // Memcpy: CUpti_ActivityMemcpyKind; Sync: its type; Api: return value; Overhead: its kind
  uint64_t bytes;   // of an Api or Counter: external id, the correlation id of the innermost event it belongs to; 0: none
  uint64_t graph_node;
  uint32_t graph;
  uint32_t registers;  // a thread; this and what follows only of a Kernel
  uint32_t grid[3], block[3];
  uint32_t shared;  // bytes of shared memory
  uint32_t reserved;
};
static_assert(sizeof(GpuRecord) == 80);
inline constexpr uint32_t kGpuRecordShort = 44;

// Where things are in an arena of `arena_bytes`.
struct Layout {
  uint64_t states_offset, strings_offset, strings_bytes, chunks_offset;
  uint32_t chunk_count;
};

constexpr uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

constexpr Layout layout(uint64_t arena_bytes, uint64_t strings_bytes) {
  Layout where{};
  const uint64_t chunks_at_most = arena_bytes / kChunkBytes;
  where.states_offset = kPage;
  where.strings_offset = round_up(where.states_offset + chunks_at_most * sizeof(uint32_t), kPage);
  where.strings_bytes = strings_bytes;
  where.chunks_offset = round_up(where.strings_offset + strings_bytes, kChunkBytes);
  where.chunk_count =
      where.chunks_offset < arena_bytes ? static_cast<uint32_t>((arena_bytes - where.chunks_offset) / kChunkBytes) : 0;
  return where;
}

}  // namespace profd::arena
