// Event chunks to the columns of batches. Every chunk is gone through twice: first for what other chunks need of it
// (texts of strings, ends of events that began elsewhere), then for its events, in whatever order the caller likes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chunk_body.h"
#include "chunk_columns.h"
#include "interner.h"

namespace profd::scan {

struct ChunkLimits {
  std::size_t dictionary_bytes, open_events, tracks;
};

// What the header of a chunk says, as the caller has checked it.
struct ChunkPlace {
  std::uint32_t space;  // which (incarnation, epoch): strings and streams are numbered within it
  std::uint32_t pid;
  std::uint32_t stream;
  std::uint64_t sequence;
  std::uint64_t tid;
  std::uint32_t thread_name;
  std::uint64_t id_base;
  std::int64_t start;  // Unix ns of the base time
  std::uint32_t slots, events;
};

inline constexpr std::uint64_t kTensorsMax = 512;  // of one op; more than the extensions of a slot can hold

class ChunkReader {
 public:
  explicit ChunkReader(const ChunkLimits& limits);
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // (no row that `add` makes of it starts before this, whether any was open when recording began). Nothing: malformed,
  // and nothing of it is to be read again.
  std::optional<std::pair<std::int64_t, bool>> index(const ChunkPlace& place, std::string_view body);
  bool add(const ChunkPlace& place, std::string_view body);
  // After the last chunk: ends that no event waited for.
  std::size_t unmatched_ends() const { return ends_.size(); }

  ChunkColumns columns;

 private:
  Budget budget_;  // before those that refer to it

 public:
  Interner names, modules, stacks, inputs, args;
  std::map<std::string, std::uint64_t> lost, counted;
  std::vector<std::pair<bool, std::uint64_t>> take_processes();               // (is a GPU, its number or pid) in order
  std::vector<std::pair<std::int32_t, std::uint64_t>> take_threads();         // (process, tid or stream) in order
  std::vector<std::pair<std::int32_t, std::string>> take_thread_names();      // (thread, name)

 private:
  enum Dictionary : unsigned { kNameDictionary, kModuleDictionary, kStackDictionary, kDictionaries };
  struct String {
    std::string text;
    std::int32_t codes[kDictionaries] = {kNoCode, kNoCode, kNoCode};
  };
  struct EventKey {
    std::uint64_t space_and_stream, sequence, slot;
    bool operator==(const EventKey&) const = default;
  };
  struct EventHash {
    std::uint64_t seed;
    std::size_t operator()(const EventKey& key) const {
      return mix(mix(key.space_and_stream ^ seed, 0xA0761D6478BD642Full) ^ key.sequence, mix(key.slot ^ seed, 0xE7037ED1A0B428DBull));
    }
  };
  struct End {
    std::int64_t time;
    std::int32_t thread;
  };
  // A record of CUPTI: see docs/wire-format.md.
  enum GpuField : unsigned {
    kCorrelationId, kGpuDevice, kGpuContext, kGpuStream, kTid, kDetail, kGpuBytes, kGraphNode, kGraph,
    kShortRecord, kRegisters = kShortRecord, kGrid, kBlock = kGrid + 3, kShared = kBlock + 3, kGpuFields,
  };
  using GpuFields = std::array<std::uint64_t, kGpuFields>;
  struct Looks {  // of a label: what its rows have in common
    std::int32_t name, cat;
    std::uint8_t kind, phase;
    bool plain;  // nothing but a name, a kind and times
  };

  bool read_strings(const ChunkPlace& place, std::string_view section);
  bool read_losses(std::string_view section);
  std::int64_t earliest(const ChunkPlace& place) const;
  std::int32_t text(std::uint32_t space, std::uint32_t id, Dictionary dictionary);
  std::int32_t process(bool gpu, std::uint64_t id);
  std::int32_t thread(std::int32_t process, std::uint64_t tid);
  void look(const ChunkPlace& place);
  void name_thread(std::uint32_t space, std::int32_t thread, std::uint64_t name);
  bool add_events(const ChunkPlace& place);
  void other(const ChunkPlace& place, const OtherRow& from, std::size_t row);
  void particulars(const ChunkPlace& place, const Label& label, std::uint32_t slot, std::size_t row);
  bool add_attributes(const ChunkPlace& place, std::size_t first);
  bool read_slots(Cursor& cursor, std::uint32_t slots);
  bool read_blobs(Cursor& cursor, Interner& into);
  bool read_values(Cursor& cursor, unsigned tag, std::uint32_t space);
  void read_memory(Cursor& cursor, std::int64_t row);
  bool read_gpu(Cursor& cursor, std::int64_t row, GpuFields& fields);
  void put_gpu(const GpuFields& fields, std::size_t row, bool kernel);
  void gpu_args(const GpuFields& fields, std::size_t row, bool kernel);
  void put_args();

  ChunkLimits limits_;
  std::vector<std::unordered_map<std::uint32_t, String>> spaces_;
  std::unordered_map<EventKey, End, EventHash> ends_;
  std::map<std::pair<bool, std::uint64_t>, std::int32_t> process_numbers_;
  std::map<std::pair<std::int32_t, std::uint64_t>, std::int32_t> thread_numbers_;
  std::vector<std::pair<bool, std::uint64_t>> new_processes_;
  std::vector<std::pair<std::int32_t, std::uint64_t>> new_threads_;
  std::unordered_map<std::int32_t, std::pair<std::uint32_t, std::uint64_t>> thread_names_;  // the last (space, id)
  std::vector<std::pair<std::int32_t, std::string>> new_thread_names_;

  // Of the chunk that is being read.
  Body body_;
  std::vector<Label> labels_;
  std::vector<Looks> looks_;
  std::vector<OtherRow> others_;
  std::vector<std::size_t> open_;          // rows
  std::vector<std::int32_t> row_of_slot_;  // less the first row; -1: no event
  std::vector<std::int64_t> rows_;         // of the attribute that is being read; -1: no event
  std::vector<std::int32_t> codes_;
  std::vector<std::pair<std::int64_t, std::int32_t>> args_;  // (row, code)
  std::int32_t process_ = -1, thread_ = -1;
};

}  // namespace profd::scan
