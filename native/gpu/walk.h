// CUPTI's records to slots of the recorder's arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "../recorder/writer.h"
#include "cupti_abi.h"

namespace profd::cupti {

// Since the arm. Read by any thread.
struct Counts {
  std::atomic<uint64_t> records{0};      // walked
  std::atomic<uint64_t> device{0};       // of them kernels, copies, sets and graphs that were recorded
  std::atomic<uint64_t> launches{0};     // API calls that launch something
  std::atomic<uint64_t> bad_times{0};    // records without an end, or that end before they start
  std::atomic<uint64_t> filtered{0};     // API calls that nobody wants to see: left out
  std::atomic<uint64_t> unknown{0};      // of kinds that were not asked for
  std::atomic<uint64_t> late{0};         // came when nothing was recorded any more
  std::atomic<uint64_t> dropped{0};      // by CUPTI itself, for the lack of a buffer
};

class Walker {
 public:
  Walker(const Functions& cupti, const recorder::Api& api) : cupti_(cupti), api_(api) {}

  // Every record of a completed buffer.
  void walk(uint8_t* buffer, size_t valid);
  // Records that CUPTI says it had no room for.
  void dropped(uint64_t records);
  // For a new recording.
  void reset_counts();
  bool writes_to(const recorder::Api& api) const { return &api == &api_; }

  Counts counts;

 private:
  struct Call {
    uint32_t name = 0;  // string id in `session`
    bool wanted = false, launches = false;
  };

  void record(recorder::Thread* thread, recorder::Session session, const uint8_t* from);
  void kernel(recorder::Thread*, recorder::Session, const uint8_t* from);
  void copy(recorder::Thread*, recorder::Session, const uint8_t* from, bool peer);
  void set(recorder::Thread*, recorder::Session, const uint8_t* from);
  void graph(recorder::Thread*, recorder::Session, const uint8_t* from);
  void call(recorder::Thread*, recorder::Session, const uint8_t* from, uint32_t domain);
  void synchronization(recorder::Thread*, recorder::Session, const uint8_t* from);
  void overhead(recorder::Thread*, recorder::Session, const uint8_t* from);
  void append(recorder::Thread*, recorder::Session, arena::Kind, uint32_t name, uint64_t start, uint64_t end,
              const arena::GpuRecord& gpu, size_t bytes);
  Call call_of(recorder::Thread*, recorder::Session, uint32_t domain, uint32_t id);
  uint32_t text(recorder::Thread*, recorder::Session, const char* text);

  const Functions& cupti_;
  const recorder::Api& api_;
  std::mutex mutex_;  // buffers of several threads may complete at once
  recorder::Session names_session_ = 0;
  std::unordered_map<uint64_t, Call> calls_;  // domain << 32 | id
};

}  // namespace profd::cupti
