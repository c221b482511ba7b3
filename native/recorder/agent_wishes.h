// Captures that the program asks for itself (REQUEST): what waits to be told to the daemon, and what came of it.
//
// Bounded: a program that asks in a loop is refused here, and nothing of it reaches the daemon. A fork child has none of
// its parent's.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "agent_frames.h"
#include "agent_link.h"
#include "agent_times.h"

namespace profd::agent {

struct Wish {
  uint64_t number;
  std::string lines;   // the body of REQUEST
  Milliseconds until;  // nobody waits for an answer longer
  bool told;           // to the daemon of this connection
  bool aloud;          // what came of it is written to stderr
};

struct Granted {
  uint64_t number = 0;
  std::string capture;  // its id, or
  std::string why;      // why there is none
};

// A capture that is asked for once, when the program is near a step.
struct StepWish {
  uint64_t step = 0;
  bool begins = false;  // the recording begins at the step by itself; false: it is asked for at the step
  std::string lines;    // empty: there is none, or it has been asked for
  uint64_t number = 0;  // of the request; 0: not yet
  bool armed = false;   // something has been recorded since, or was to be
  Milliseconds until = kNever;  // it was granted, and nobody waits for its ARM longer
};

// All methods lock for moments; the control thread and the program's call them.
class Wishes {
 public:
  // Its number; 0: `why` says why it is not even told. At most one a second, and few at once.
  uint64_t ask(std::string_view lines, bool aloud, std::string* why);
  void ask_at(StepWish wish);
  // The program waits for its step no longer. One that has made steps, and has not come so far, is told.
  void drop_step();
  // What came of it; number 0: nothing yet.
  Granted came_of(uint64_t number);

  // The control thread's. False: the connection is broken.
  bool tell(Link& link, Packet& packet, bool welcomed, bool can);
  void answered(const Frame& frame);
  void armed();           // an ARM has come, whatever became of it
  bool step_is_over();    // the capture at a step is, or its recording has it; said once
  void forget_told();     // the connection is over: it is told again to the next daemon, which knows it by its key
  Milliseconds due();

 private:
  void consider_step();
  void end_step();
  void settle(uint64_t number, std::string_view capture, std::string_view why);
  void say(const Granted& granted);
  void add(std::string_view lines, bool aloud);

  std::mutex mutex_;
  std::vector<Wish> waiting_;
  std::deque<Granted> granted_;
  StepWish step_;
  bool step_over_ = false;
  uint64_t last_ = 0;
  Milliseconds asked_at_ = 0;  // 0: never
};

}  // namespace profd::agent
