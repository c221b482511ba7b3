// The steps after a recording, which say what it cost: watched for some seconds, also when its arena has been let go of.
#pragma once

#include "agent_link.h"
#include "agent_times.h"

namespace profd::agent {

class StepsAfter {
 public:
  StepsAfter(Link& link, Packet& packet) : link_(link), packet_(packet) {}

  // The recording `epoch` has just stopped; its steps took `step_ns` (0: it saw none).
  void begin(uint64_t epoch, uint64_t step_ns, Milliseconds seconds);
  // What is known by now is the last word. Nothing if nothing is watched.
  void end();
  void forget() { end_ = look_ = kNever; }  // in a fork child
  // Looks where it is time. True: it has just ended.
  bool keep(Milliseconds now);
  Milliseconds due() const { return std::min(look_, end_); }

 private:
  bool tell(bool last);  // whether there was something to tell

  Link& link_;
  Packet& packet_;
  uint64_t epoch_ = 0, step_ns_ = 0;
  uint64_t first_ = 0;  // steps that had ended when the first whole one after the stop began
  Milliseconds look_ = kNever, end_ = kNever;
};

}  // namespace profd::agent
