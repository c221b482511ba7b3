// What the control thread does: finds the daemon, says who this process is, and passes on what it is told.
#pragma once

#include "agent_recording.h"

namespace profd::agent {

class Control {
 public:
  Control(Settings settings, Requests& requests)
      : settings_(std::move(settings)), requests_(requests), recording_(link_, packet_, requests, settings_) {}

  // Until Requests::leave says otherwise. May be run again after Leave::Pause: everything stays as it was.
  void run();
  // The first attempt to connect waits so long.
  void delay(Milliseconds by);
  // In a fork child: all that was the parent's is let go of; async-signal-safe.
  void forget();

 private:
  void connect();
  void greet();
  void wait(Milliseconds until);
  void receive();
  bool obey(const Frame& frame);
  bool welcome(const Frame& frame);
  void refused(const Frame& frame);
  void lose(Milliseconds retry_in);
  void give_up_for_now();
  void tell_changes();
  void tell_recalled();
  void tell_wishes();
  void publish(State state, const char* why);
  void publish_recording();
  Milliseconds backoff();
  void say_once(const char* sentence);

  Settings settings_;
  Requests& requests_;
  Link link_;
  Packet packet_;
  Recording recording_;

  bool welcomed_ = false;
  bool takes_requests_ = false;  // the daemon does
  Milliseconds next_attempt_ = 0, greeting_end_ = kNever;
  Milliseconds backoff_ = 0;
};

}  // namespace profd::agent
