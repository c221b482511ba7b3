#include "agent_control.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "agent_recall.h"
#include "recorder.h"

namespace profd::agent {
namespace {

constexpr Milliseconds kGreeting = 60'000;  // for the daemon's answer to HELLO
constexpr Milliseconds kRefused = 60'000;
constexpr Milliseconds kLongestWait = 3'600'000;
constexpr Milliseconds kBlind = 1'000;      // between looks for requests, where nobody can wake us
constexpr Milliseconds kLostRetry = 1'000;  // while a recording waits for its daemon

std::atomic<bool> said_something{false};  // of this process and the children it forks

// Field 22 of /proc/self/stat: when this process started, in clock ticks after boot. 0: unknown.
uint64_t start_time() {
  char text[1024];
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = 0;
  const char* at = std::strrchr(text, ')');  // the name before it may hold anything
  for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at ? std::strtoull(at, nullptr, 10) : 0;
}

}  // namespace

void Control::run() {
  recorder::prepare();
  while (requests_.leave == Leave::Stay) {
    if (!link_.connected() && now_ms() >= next_attempt_) connect();
    const Milliseconds due = link_.connected() ? greeting_end_ : next_attempt_;
    wait(std::min({due, recording_.keep(), requests_.wishes->due()}));
    if (link_.connected()) receive();
    if (link_.connected() && now_ms() >= greeting_end_) lose(backoff());
    tell_changes();
    tell_recalled();
    tell_wishes();
    publish_recording();
  }
  if (requests_.leave == Leave::Quit) {
    recording_.end(requests_.quit_reason);
    link_.close();
    publish(State::Off, "it was stopped");
  }
}

void Control::delay(Milliseconds by) { next_attempt_ = now_ms() + by; }

void Control::connect() {
  int why = ENOENT;
  const char* full = "";  // where a daemon listens and has more callers than it takes at once
  for (const std::string& path : settings_.sockets) {
    int error;
    {
      std::lock_guard no_fork(requests_.mutex);  // else a child might inherit a socket that nobody knows yet
      error = link_.connect(path.c_str());
    }
    if (error == 0) return greet();
    if (error == EAGAIN) full = path.c_str();
    if (error != ENOENT && why != EAGAIN) why = error;
  }
  char sentence[512];
  const char* first = settings_.sockets.empty() ? "any address" : settings_.sockets.front().c_str();
  if (why == EAGAIN) {
    std::snprintf(sentence, sizeof sentence, "profd's queue is full at %s; trying again", full);
  } else {
    std::snprintf(sentence, sizeof sentence, "no profd answers at %s (%s)", first, strerrordesc_np(why));
  }
  publish(State::Looking, sentence);
  say_once(sentence);
  lose(backoff());
}

void Control::greet() {
  welcomed_ = false;
  greeting_end_ = now_ms() + kGreeting;
  packet_.begin(Type::Hello, 0);
  packet_.add("versions", "1-1");
  packet_.add("pid", static_cast<uint64_t>(getpid()));
  packet_.add("start", start_time());
  packet_.add_hex("incarnation", recorder::incarnation());
  {
    std::lock_guard lock(requests_.mutex);
    packet_.add_lines(requests_.hello);
    requests_.changed.clear();
  }
  const int arena = recording_.idle() ? -1 : recording_.descriptor();
  if (arena >= 0) packet_.add_hex("armed", recording_.epoch());
  if (const Left& left = recording_.left(); arena < 0 && left.epoch) {
    packet_.add_hex("left", left.epoch);
    packet_.add("left_events", left.events);
    packet_.add("left_dropped", left.dropped);
  }
  if (!link_.send(packet_, arena)) lose(backoff());
}

void Control::wait(Milliseconds until) {
  Milliseconds left = until == kNever ? -1 : std::clamp<Milliseconds>(until - now_ms(), 0, kLongestWait);
  pollfd files[2] = {{-1, POLLIN, 0}, {link_.fd(), POLLIN, 0}};  // a negative descriptor is left out
  {
    std::lock_guard lock(requests_.mutex);
    if (requests_.wake.open()) files[0].fd = requests_.wake.fd();
  }
  if (files[0].fd < 0) left = left < 0 ? kBlind : std::min(left, kBlind);  // no descriptor is to be had
  poll(files, 2, static_cast<int>(left));
  if (!files[0].revents) return;
  std::lock_guard lock(requests_.mutex);
  requests_.wake.drain();
}

void Control::receive() {
  std::size_t bytes = 0;
  switch (link_.receive(&bytes)) {
    case Link::Received::Nothing: return;
    case Link::Received::Closed:
      publish(State::Looking, "profd has gone; it is looked for");
      return lose(backoff());
    case Link::Received::Malformed: return give_up_for_now();
    case Link::Received::Packet: break;
  }
  Frame frame;
  if (!parse_frame(link_.packet(), bytes, &frame) || !obey(frame)) give_up_for_now();
}

// False: a daemon does not say that, or not now.
bool Control::obey(const Frame& frame) {
  if (!welcomed_) {
    if (frame.type == Type::Refused) return refused(frame), true;
    return frame.type == Type::Welcome && welcome(frame);
  }
  switch (frame.type) {
    case Type::Arm: return requests_.wishes->armed(), recording_.arm(frame);
    case Type::Stop: return recording_.stop(frame.epoch), true;
    case Type::Release: return recording_.release(frame.epoch), true;
    case Type::Limit: return recording_.limit(frame), true;
    case Type::Recall: return recall(requests_, frame.epoch, frame.fields.number("entries", 0) == uint64_t{1}), true;
    case Type::Request: return requests_.wishes->answered(frame), true;
    case Type::Steps: return recording_.tell_steps(frame.epoch), true;
    case Type::Refused: return refused(frame), true;
    default: return false;
  }
}

bool Control::welcome(const Frame& frame) {
  if (frame.fields.number("version", 0) != uint64_t{1}) return false;
  welcomed_ = true;
  takes_requests_ = lists(frame.fields.text("can"), "request");
  greeting_end_ = kNever;
  backoff_ = 0;
  publish(State::Connected, "");
  recording_.daemon_back();
  return true;
}

void Control::refused(const Frame& frame) {
  char sentence[512];
  const std::string_view why = frame.fields.text("why");
  std::snprintf(sentence, sizeof sentence, "profd refuses this process: %.*s",
                static_cast<int>(std::min<std::size_t>(why.size(), 400)), why.data());
  publish(State::Refused, sentence);
  say_once(sentence);
  lose(kRefused);
}

void Control::give_up_for_now() {
  publish(State::Looking, "what listens there does not speak the protocol of profd's agents");
  lose(settings_.retry_most_ms);
}

void Control::lose(Milliseconds retry_in) {
  link_.close();
  welcomed_ = false;
  greeting_end_ = kNever;
  recording_.daemon_lost();
  requests_.wishes->forget_told();
  next_attempt_ = now_ms() + (recording_.idle() ? retry_in : std::min(retry_in, kLostRetry));
}

void Control::tell_changes() {
  if (!welcomed_) return;
  {
    std::lock_guard lock(requests_.mutex);
    if (requests_.changed.empty()) return;
    packet_.begin(Type::Changed, 0);
    packet_.add_lines(requests_.changed);
    requests_.changed.clear();
  }
  if (!link_.send(packet_)) lose(backoff());
}

// Also where nobody is there any more: the descriptors are let go of.
void Control::tell_recalled() {
  std::vector<Recalled> answers;
  {
    std::lock_guard lock(requests_.mutex);
    answers.swap(requests_.recalled);
  }
  for (const Recalled& each : answers) {
    if (welcomed_) {
      packet_.begin(Type::Recalled, each.number);
      if (each.fd < 0) packet_.add("why", each.why);
      if (!link_.send(packet_, each.fd)) lose(backoff());
    }
    if (each.fd >= 0) close(each.fd);
  }
}

void Control::tell_wishes() {
  if (!requests_.wishes->tell(link_, packet_, welcomed_, takes_requests_)) lose(backoff());
  if (requests_.wishes->step_is_over()) recording_.rest();
}

void Control::publish(State state, const char* why) {
  std::lock_guard lock(requests_.mutex);
  requests_.snapshot.state = state;
  std::snprintf(requests_.snapshot.why, sizeof requests_.snapshot.why, "%s", why);
}

void Control::publish_recording() {
  std::lock_guard lock(requests_.mutex);
  Snapshot& shown = requests_.snapshot;
  shown.epoch = recording_.epoch();
  if (!welcomed_) return;
  shown.state = recording_.idle() ? State::Connected : recording_.stopped() ? State::Stopped : State::Armed;
}

// Doubles from time to time; spread, so that the processes of a host do not come back in one moment.
Milliseconds Control::backoff() {
  const Milliseconds first = settings_.retry_first_ms, most = settings_.retry_most_ms;
  // What is recorded waits no longer than grace_ms for its daemon.
  backoff_ = backoff_ && recording_.idle() ? std::min(backoff_ * 2, most) : first;
  return backoff_ - backoff_ / 4 * static_cast<Milliseconds>(recorder::incarnation() % 256) / 256;
}

void Control::say_once(const char* sentence) {
  if (settings_.quiet || said_something.exchange(true)) return;
  char line[600];
  const int length = std::snprintf(line, sizeof line, "profclient: %s; it is looked for quietly from now on\n", sentence);
  pollfd out{STDERR_FILENO, POLLOUT, 0};  // a full pipe would make us wait
  if (length > 0 && poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) &&
      write(STDERR_FILENO, line, std::min<std::size_t>(length, sizeof line - 1)) < 0)
    return;  // nobody reads it
}

void Control::forget() {
  link_.close();
  recording_.forget();
  welcomed_ = false;
  greeting_end_ = kNever;
  next_attempt_ = backoff_ = 0;
}

}  // namespace profd::agent
