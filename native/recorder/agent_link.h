// The connection to the daemon. Nothing here ever waits: a daemon that does not read is as good as gone.
#pragma once

#include <cstddef>

#include "agent_frames.h"
#include "descriptor.h"

namespace profd::agent {

class Link {
 public:
  enum class Received { Packet, Nothing, Closed, Malformed };

  bool connected() const { return socket_.open(); }
  int fd() const { return socket_.number(); }

  // errno of the attempt, 0 when it is connected.
  int connect(const char* path);
  // With `descriptor` unless -1. Closes the connection and returns false when it cannot be sent at once.
  bool send(const Packet& packet, int descriptor = -1);
  // Sends only if there is room; false: not sent. A broken connection shows when it is read.
  bool try_send(const Packet& packet);
  // The next packet; its bytes stay valid until the next call.
  Received receive(std::size_t* bytes);
  const char* packet() const { return buffer_; }
  void close() { socket_.close(); }  // async-signal-safe

 private:
  Descriptor socket_;
  char buffer_[kFrameBytesMax];
};

}  // namespace profd::agent
