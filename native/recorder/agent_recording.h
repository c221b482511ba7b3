// One recording: from ARM to RELEASE, as the protocol sees it. The recorder does the work.
#pragma once

#include <string>
#include <vector>

#include "agent_after.h"
#include "agent_cost.h"
#include "agent_link.h"
#include "agent_requests.h"
#include "agent_times.h"

namespace profd::agent {

// A recording that no daemon came for in time: its arena is gone, and this is what was in it since it began.
struct Left {
  uint64_t epoch = 0;  // 0: there is none
  uint64_t events = 0;
  uint64_t dropped = 0;
};

class Recording {
 public:
  Recording(Link& link, Packet& packet, Requests& requests, const Settings& settings)
      : link_(link), packet_(packet), requests_(requests), settings_(settings), after_(link, packet) {}

  bool idle() const { return phase_ == Phase::Idle; }
  bool stopped() const { return phase_ == Phase::Stopped; }
  uint64_t epoch() const { return epoch_; }
  const Left& left() const { return left_; }  // until it is armed anew
  int descriptor() const;

  // False: the daemon does not keep to the protocol.
  bool arm(const Frame& frame);
  void stop(uint64_t epoch);
  void limit(const Frame& frame);  // leave out a kind of events
  void tell_steps(uint64_t question) const;
  void release(uint64_t epoch);
  void finish(const char* reason);  // as the target wants it
  void end(const char* reason);     // at once, and let go of everything

  void daemon_lost();
  void daemon_back();
  // Nothing waits for steps any more: hooks that count them may go, once nothing is recorded or compared with it.
  void rest();
  // What is due. Returns when to be called again.
  Milliseconds keep();
  void forget();  // in a fork child: there is nothing any more

 private:
  enum class Phase { Idle, Armed, Stopping, Stopped, Releasing };

  void fail(uint64_t epoch, const char* why);
  bool begin(const Frame& frame, uint64_t arena_bytes, uint64_t strings_bytes);
  void disarm(const char* reason);
  void tell_stopped();
  void tell_disarmed();
  void hear_of_stops();
  void tell_status();
  void tell_progress(Milliseconds now);
  void add_totals();
  void add_cost(uint64_t events);
  void add_steps();
  void add_program_steps();
  void add_unbegun();
  bool open_sources(const Frame& frame);
  void look_at_window();
  void let_go();
  void leave();
  Milliseconds keep_phase(Milliseconds now);
  void post(Hook hook);
  void post_stop();
  void run_posted();

  Link& link_;
  Packet& packet_;
  Requests& requests_;
  const Settings& settings_;
  StepsAfter after_;

  Phase phase_ = Phase::Idle;
  uint64_t epoch_ = 0;
  const char* reason_ = "";
  uint64_t first_ns_ = 0, last_ns_ = 0;  // CLOCK_REALTIME
  uint32_t sources_ = 0;                 // that record now
  Cost cost_;
  Milliseconds armed_at_ = 0;
  uint64_t limits_ = 0;        // LIMITs that were obeyed
  uint64_t steps_before_ = 0;  // that ended before the first whole one of the recording began
  uint64_t steps_told_ = 0, step_ns_before_ = 0;
  uint64_t step_from_ = 0;     // the program's number of the first whole one
  bool waits_for_step_ = false;
  Milliseconds status_every_ = 0;
  bool hooked_ = false;                  // Hook::Armed was posted
  bool resting_ = true;                  // Hook::Rested was posted since, or there is nothing to rest from
  uint32_t arms_done_before_ = 0;        // its posting
  Milliseconds window_end_ = kNever, next_status_ = kNever, lost_end_ = kNever, hook_end_ = kNever,
               run_posted_again_ = kNever;
  std::string armed_with_;  // the ARM's body
  // Epochs whose hooks still have to stop what they armed, oldest first: that may take longer than the recording.
  std::vector<uint64_t> undone_;
  uint32_t stops_heard_ = 0;
  uint64_t disarmed_ = 0;  // the last epoch of which nothing is armed any more
  Left left_;
};

}  // namespace profd::agent
