// The drain of sockets whose queue in the kernel is everybody's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "datagram_queue.h"
#include "datagram_shares.h"

namespace profd::host {

class DatagramBatch;
class Interrupts;

struct DrainCounts {
  std::uint64_t flood = 0;    // beyond their sender's share
  std::uint64_t backlog = 0;  // the queue for Python was full
  std::uint64_t waits = 0;    // for what came with datagrams, that were ended
};

// Keeps the kernel's queue of datagram sockets empty, which holds ten datagrams of all senders together: one thread does
// nothing but `run`, another one `take`. What is beyond its sender's share is dropped here, the rest waits in a FairQueue.
class Drain {
 public:
  // `interrupts`: descriptors may come (Linux before 6.16), and nothing that was passed is to hold up the drain.
  Drain(std::size_t datagram_bytes, std::size_t queued, const ShareLimits& shares, bool interrupts = false);
  ~Drain();
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  // Receives until `stop`. std::system_error if a descriptor is no socket.
  void run(const std::vector<int>& sockets);
  void stop();
  // A descriptor among those of `run` is another socket now.
  void changed();
  // What waits, in the order in which it is to be handled; waits for it. Empty once stopped.
  std::vector<Datagram> take(std::size_t about);
  DrainCounts counts();

 private:
  std::size_t receive(int socket, DatagramBatch& batch, Interrupts& interrupts);
  void wake();

  const std::size_t datagram_bytes_;
  const bool interrupts_;
  Shares shares_;  // of the thread that runs
  const int wake_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // held for moments: it is what both threads meet at
  std::condition_variable filled_;
  FairQueue queue_;
  DrainCounts counts_;
};

}  // namespace profd::host
