// CUPTI's records to slots of the recorder's arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <array>
#include <unordered_map>

#include "../recorder/writer.h"
#include "clock_fit.h"
#include "cupti_abi.h"
#include "names.h"

namespace profd::cupti {

// Since the arm. Read by any thread.
struct Counts {
  std::atomic<uint64_t> records{0};      // walked
  std::atomic<uint64_t> events{0};       // of them those that the arena has taken
  std::atomic<uint64_t> device{0};       // of those kernels, copies, sets and graphs
  std::atomic<uint64_t> launches{0};     // API calls that launch something
  std::atomic<uint64_t> graph_calls{0};  // of CUDA graphs, and work of their nodes
  std::atomic<uint64_t> bad_times{0};    // records without an end, or that end before they start
  std::atomic<uint64_t> foreign_times{0};  // of them those that are no time of this recording
  std::atomic<uint64_t> gone_names{0};   // kernels whose name went with its module
  std::atomic<uint64_t> external{0};     // calls that CUPTI placed in a range or op of ours
  std::atomic<uint64_t> filtered{0};     // API calls that nobody wants to see: left out
  std::atomic<uint64_t> unknown{0};      // of kinds that were not asked for, or cut short
  std::atomic<uint64_t> late{0};         // came when nothing was recorded any more
  std::atomic<uint64_t> error{0};        // the first that a call returned after which a device works no more
  std::atomic<uint64_t> dropped{0};      // by CUPTI itself, for the lack of a buffer
};

class Walker {
 public:
  Walker(const Functions& cupti, const recorder::Api& api, const ClockFit& clock)
      : cupti_(cupti), api_(api), clock_(clock) {}

  // Every record of a completed buffer.
  void walk(uint8_t* buffer, size_t valid);
  // Whole records, each somewhere else.
  void take(const uint8_t* const* records, size_t count);
  // Records that CUPTI says it had no room for.
  void dropped(uint64_t records);
  // For a new recording.
  void reset_counts();
  bool writes_to(const recorder::Api& api) const { return &api == &api_; }

  Counts counts;

 private:
  struct Call {
    uint32_t name = 0;  // string id in `session`
    bool wanted = false, launches = false, graphs = false;
  };
  struct External {
    uint32_t correlation;
    uint64_t id;
  };

  // What holds for one buffer.
  struct Buffer {
    recorder::Thread* thread;
    recorder::Session session;
    Line line;
    Names names;
  };

  // How a kind of record is read, and how much of it.
  struct Reader {
    Activity kind;
    size_t bytes;
    void (Walker::*read)(Buffer&, const uint8_t* from);
  };
  static const Reader kReaders[];

  recorder::Thread* this_thread(recorder::Session) const;
  Buffer opened() const;
  void names_of(recorder::Session);
  void record(Buffer&, const uint8_t* from, size_t room);
  void kernel(Buffer&, const uint8_t* from);
  template <typename At>
  void copy(Buffer&, const uint8_t* from);
  void set(Buffer&, const uint8_t* from);
  void graph(Buffer&, const uint8_t* from);
  template <uint32_t kDomain>
  void call(Buffer&, const uint8_t* from);
  void synchronization(Buffer&, const uint8_t* from);
  void overhead(Buffer&, const uint8_t* from);
  void external(Buffer&, const uint8_t* from);
  void append(Buffer&, arena::Kind, uint32_t name, uint64_t start, uint64_t end, const arena::GpuRecord& gpu,
              size_t bytes);
  uint32_t kernel_name(Buffer&, const char* name);
  Call call_of(const Buffer&, uint32_t domain, uint32_t id);
  uint32_t text(const Buffer&, std::string_view text);

  const Functions& cupti_;
  const recorder::Api& api_;
  const ClockFit& clock_;
  std::mutex mutex_;  // buffers of several threads may complete at once
  recorder::Session names_session_ = 0;
  std::unordered_map<uint64_t, Call> calls_;  // domain << 32 | id
  // The external id of a call comes before the call, on the same thread, and maybe in the buffer before.
  std::array<External, 1024> externals_{};    // at correlation % 1024
};

}  // namespace profd::cupti
