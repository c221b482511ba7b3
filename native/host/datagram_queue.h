// Datagrams that wait for Python, in their users' turn.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace profd::host {

// One datagram, and what the kernel says of it; zeros where it said nothing.
struct Datagram {
  int socket = -1;  // the descriptor that it came in at
  std::string data;
  std::string address;  // the sender's, as in sun_path: empty, or an abstract name with its leading NUL, or a path
  pid_t pid = 0;
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  std::int64_t sent_ns = 0;  // Unix time
  bool attached = false;     // descriptors came with it, and are closed
  bool truncated = false;    // it was longer than what is read
};

// A bounded queue: users take turns, and each turn is all that waits of one sender, so that whoever takes can tell its newest.
// Not thread-safe.
class FairQueue {
 public:
  explicit FairQueue(std::size_t most) : most_(most) {}
  // Whether a datagram was dropped for this one: of whoever has most in the queue, which may be this one itself.
  bool push(Datagram&& datagram);
  // Turns until `about` datagrams are reached or none is left.
  std::vector<Datagram> take(std::size_t about);
  bool empty() const { return waiting_ == 0; }

 private:
  struct User {
    std::deque<std::string> order;  // keys of by_sender
    std::unordered_map<std::string, std::vector<Datagram>> by_sender;
    std::size_t waiting = 0;
  };
  void drop_of_largest();

  std::size_t most_;
  std::size_t waiting_ = 0;
  std::unordered_map<uid_t, User> users_;  // those that have something here
  std::deque<uid_t> turns_;
};

}  // namespace profd::host
