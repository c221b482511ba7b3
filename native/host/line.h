// A line to a server that is not trusted: gRPC's client at one end, that server at the other.
//
// gRPC reads on for as long as there is something to read, also behind the end of every call and of its channel: a
// server that sends a header block again and again has a core for itself, for a byte of HPACK that stands for 4 KiB. So
// one thread carries the bytes. It counts what the server sends as the door does what clients send, waits where that is
// more than may pass in a second, and ends with the line, whatever is still to come.
//
// What the server sends is untrusted. The buffers are bounded. The GIL is never needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "allowance.h"
#include "door_connection.h"
#include "frames.h"

namespace profd::host {

struct LineLimits {
  int header_block_bytes;  // of one header block, in however many frames
  int header_fields;       // the same
  Allowance::Rates rates;
};

// One line, as its thread has it.
class Carrying {
 public:
  // Both are connected, and do not block; they become ours. Throws std::system_error.
  Carrying(int client, int server, const LineLimits& limits);
  ~Carrying();

  void run();
  void end();
  bool is_foreign() const { return foreign_; }

 private:
  bool carry_down();  // false: it is over
  bool carry_up();
  bool clear();  // lets frames pass; false: they are none
  bool may_pass();
  void wait();
  void tell_both();

  const LineLimits limits_;
  End client_, server_;
  Buffer up_, down_;         // to the server, to the client
  std::size_t cleared_ = 0;  // bytes at the front of `down_` that may go
  Frames frames_{Frames::Of::SERVER};
  Allowance allowance_;
  bool begun_ = false;    // its first frame has passed
  bool waiting_ = false;  // for its allowance
  Time until_{};          // then there is enough of it
  int wake_ = -1;
  std::atomic<bool> ended_{false}, foreign_{false};
};

class Line {
 public:
  // As Carrying. The thread lives for as long as both ends do, or until `end`.
  Line(int client, int server, const LineLimits& limits);
  ~Line() { end(); }

  // Nothing passes any more, and both ends are told. Waits for nobody: the thread ends by itself. Safe to repeat.
  void end() { carrying_->end(); }
  // The server has sent what is no HTTP/2, or beyond the limits of a header block: the line has ended by that.
  bool is_foreign() const { return carrying_->is_foreign(); }

 private:
  std::shared_ptr<Carrying> carrying_;
};

}  // namespace profd::host
