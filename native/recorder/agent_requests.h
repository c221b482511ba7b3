// What other threads ask of the control thread, and what it tells them. Locked for moments only.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "agent.h"
#include "agent_wake.h"
#include "agent_wishes.h"

namespace profd::agent {

enum class Leave : int { Stay, Pause, Quit };

// The answer to a RECALL: a sealed memfd of ours until it is sent, or -1 and why.
struct Recalled {
  uint64_t number;
  int fd;
  std::string why;
};

struct Requests {
  std::atomic<Leave> leave{Leave::Stay};
  std::atomic<const char*> quit_reason{nullptr};
  std::atomic<const char*> finish{nullptr};  // reason; string literals only
  std::atomic<uint32_t> arms_done{0};   // hooks `Armed` that have returned, ever
  std::atomic<uint32_t> stops_done{0};  // hooks `Stopping` that have returned, ever
  std::atomic<bool> records_at_stop{false};

  std::unique_ptr<Wishes> wishes = std::make_unique<Wishes>();  // has a lock of its own; another one in a fork child

  std::mutex mutex;  // of all below
  Wake wake;
  std::string changed;  // lines to be told
  std::string hello;
  std::vector<Recalled> recalled;
  bool recalling = false;  // a thread is at it
  std::vector<std::pair<std::string, std::string>> notes;
  std::vector<std::string> begun;  // options whose hooks have returned, of this recording
  Snapshot snapshot;
};

}  // namespace profd::agent
