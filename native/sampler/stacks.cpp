#include "stacks.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <poll.h>
#include <string>
#include <unistd.h>

#include "confine.h"
#include "images.h"
#include "names.h"
#include "threads.h"
#include "trace.h"
#include "words.h"

namespace profd::sampler {
namespace {

constexpr double kNs = 1e9;
constexpr double kRateMax = 1e5;
constexpr std::int64_t kLateNs = 1'000'000'000;
constexpr unsigned kNameLooksMax = 16;  // each after twice as many samples as the one before

void stop(int) { g_stop = 1; }

void block_interrupts(bool blocked) {
  sigset_t held;
  ::sigemptyset(&held);
  ::sigaddset(&held, SIGINT);
  ::sigprocmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &held, nullptr);
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = stop;
  ::sigaction(SIGINT, &action, nullptr);
}

// SIGINT comes at any moment, but not between a look at whether it came and the sleep: nothing is missed.
void sleep_until(std::int64_t due) {
  sigset_t none;
  block_interrupts(true);
  ::sigemptyset(&none);
  do {
    const std::int64_t left = std::max<std::int64_t>(due - now_ns(), 0);
    const timespec time{left / 1'000'000'000, left % 1'000'000'000};
    ::ppoll(nullptr, 0, &time, &none);
  } while (g_stop == 0 && now_ns() < due);
  block_interrupts(false);
}

void say(const std::string& line) {
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) g_stop = 1;
}

// When samples are taken.
class Rhythm {
 public:
  Rhythm(double rate, double seconds)
      : begin_(now_ns()), end_(begin_ + static_cast<std::int64_t>(seconds * kNs)), period_(kNs / rate),
        random_(static_cast<std::uint64_t>(begin_) | 1) {}

  // Wait for the next one. False: there is none.
  bool next() {
    const double moment = (static_cast<double>(slot_) + draw()) * period_;
    sleep_until(std::min(begin_ + static_cast<std::int64_t>(moment), end_));
    const std::int64_t now = now_ns();
    if (g_stop != 0 || now >= end_) return false;
    // What it is late with is made up for within a second, as py-spy does; more would be nothing but work.
    const auto slot = static_cast<std::int64_t>(static_cast<double>(now - begin_ - kLateNs) / period_);
    if (slot > slot_) missed_ += slot - slot_;
    slot_ = std::max(slot, slot_) + 1;
    tell(now);
    return true;
  }

 private:
  double draw() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<double>(random_ >> 11) / 9007199254740992.0;
  }

  void tell(std::int64_t now) {
    const double late = static_cast<double>(missed_) * period_ / kNs;
    if (missed_ == told_ || late < 1 || now - told_at_ < kLateNs) return;
    told_ = missed_;
    told_at_ = now;
    char line[96];
    std::snprintf(line, sizeof line, "%.2fs behind in sampling\n", late);
    say(line);
  }

  std::int64_t begin_, end_;
  double period_;
  std::uint64_t random_;
  std::int64_t slot_ = 0, missed_ = 0, told_ = 0, told_at_ = 0;
};

// A thread of the process, with what all its interpreters know of it.
struct Seen {
  std::uint64_t ident = 0;
  std::string name;
  unsigned looks = 0, next_look = 0;  // for its name
  unsigned seen = 0;                  // the last sample
  std::vector<int> stack;             // outermost first
  bool whole = false;
};

class Sampling {
 public:
  Sampling(pid_t target, const Python& python, int output)
      : threads_(target, python), names_(target, python), trace_(output, target, threads_.codes().texts()) {}

  // False: no more can be taken.
  bool take(std::uint64_t now_us) {
    ++sample_;
    if (!threads_.look()) return false;
    gather();
    look_for_names();
    if (g_stop != 0) return false;  // a name may be missing
    for (auto& [native, thread] : seen_) {
      if (thread.seen != sample_ || !thread.whole) continue;
      trace_.see(native, thread.ident, thread.name, thread.stack, now_us);
      ++samples_;
    }
    if (threads_.listed()) close_ended(now_us);
    return !trace_.broken() && !threads_.codes().full();
  }

  void finish(std::uint64_t now_us) {
    trace_.finish(now_us);
    say("Wrote chrome trace. Samples: " + std::to_string(samples_) + " Errors: " + std::to_string(threads_.dropped()) +
        "\n");
  }

 private:
  // A thread may be in several interpreters; the first one's is outermost.
  void gather() {
    for (const std::uint64_t address : threads_.found()) {
      const ThreadState& state = threads_.state(address);
      Seen& thread = seen_[state.native];
      if (thread.seen != sample_) {
        if (thread.ident != state.ident) thread = {};
        thread.ident = state.ident;
        thread.seen = sample_;
        thread.whole = true;
        thread.stack.clear();
      }
      thread.whole = thread.whole && state.whole;
      thread.stack.insert(thread.stack.end(), state.texts.begin(), state.texts.end());
    }
  }

  // A thread gets its name after it has begun; one that Python did not start may never have one.
  void look_for_names() {
    wanted_.clear();
    for (auto& [native, thread] : seen_) {
      if (thread.seen != sample_ || !thread.name.empty() || thread.looks >= kNameLooksMax || sample_ < thread.next_look) {
        continue;
      }
      thread.next_look = sample_ + (1U << thread.looks++);
      wanted_.push_back(thread.ident);
    }
    if (wanted_.empty()) return;
    std::sort(wanted_.begin(), wanted_.end());
    const auto found = names_.find(threads_.main_interpreter(), wanted_);
    for (auto& [native, thread] : seen_) {
      const auto name = found.find(thread.ident);
      if (thread.name.empty() && name != found.end()) thread.name = name->second;
    }
  }

  void close_ended(std::uint64_t now_us) {
    for (auto each = seen_.begin(); each != seen_.end();) {
      if (each->second.seen == sample_) {
        ++each;
        continue;
      }
      trace_.close(each->first, now_us);
      each = seen_.erase(each);
    }
  }

  Threads threads_;
  ThreadNames names_;
  Trace trace_;
  std::unordered_map<std::uint64_t, Seen> seen_;
  std::vector<std::uint64_t> wanted_;
  unsigned sample_ = 0;
  std::uint64_t samples_ = 0;
};

double positive(const char* word, double most) {
  char* end = nullptr;
  const double value = std::strtod(word, &end);
  if (end == word || *end != '\0' || !(value > 0) || value > most) {
    fail("read its arguments", "a number above 0 was expected");
  }
  return value;
}

}  // namespace

[[noreturn]] void refuse_unknown(const char* why) {
  const std::string line = std::string("Error: Failed to find an interpreter whose layout is known: ") + why + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) ::_exit(kUnknownStatus);
  ::_exit(kUnknownStatus);
}

[[noreturn]] void sample_stacks(char** arguments) {
  const auto target = static_cast<pid_t>(number(arguments[2]));
  const int output = static_cast<int>(number(arguments[kArguments]));
  const double rate = positive(arguments[kArguments + 1], kRateMax);
  const double seconds = positive(arguments[kArguments + 2], 1e9);
  const std::int64_t begin = now_ns();
  const auto now_us = [begin] { return static_cast<std::uint64_t>((now_ns() - begin) / 1000); };
  confine(arguments, open_mappings);
  std::set_new_handler([] { fail("hold what it samples", "its memory is not enough"); });
  static Python python;
  if (const char* const why = find_mapped_python(target, python); why != nullptr) refuse_unknown(why);
  catch_interrupts();  // until here it is ended by one
  Sampling sampling(target, python, output);
  say(std::string("Sampling process ") + arguments[kArguments + 1] + " times a second\n");
  Rhythm rhythm(rate, seconds);
  while (rhythm.next()) {
    if (!sampling.take(now_us())) {
      if (g_stop == 0) say("Stopped sampling\n");
      break;
    }
  }
  sampling.finish(now_us());
  ::_exit(0);
}

}  // namespace profd::sampler
