// The agent: a native thread that keeps this process known to the daemon and obeys it (docs/agent-protocol.md).
//
// It knows nothing of Python, needs no GIL and holds no memory of the job: while idle it sleeps in poll(2) without a
// timeout. What needs Python is asked for through Hooks. Programs without Python link the same code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace profd::agent {

// What is to be done outside the control thread, in the order of the calls; posting must not wait. `text` is the body of
// the ARM; for Limited the options that are dropped. Rested: the steps after a recording have been seen.
enum class Hook { Armed, Limited, Stopping, Released, Rested };
using PostHook = void (*)(Hook hook, std::string_view text);

struct Settings {
  std::vector<std::string> sockets;  // paths of agent.sock, best first
  std::string hello;                 // lines of HELLO beside versions, pid, start and incarnation
  std::string hooked;                // options that need a hook, comma-separated
  PostHook post = nullptr;
  bool (*run_posted)() = nullptr;    // begins what was posted; false: not now, it is called again
  bool quiet = false;                // not even the one line that says that there is no daemon
  uint32_t retry_first_ms = 1'000;   // between attempts to connect; doubles up to
  uint32_t retry_most_ms = 30'000;
  uint32_t grace_ms = 15'000;        // recording goes on so long after the window or without a daemon
  uint32_t after_ms = 5'000;         // steps after a recording are watched so long; longer where they are long
};

enum class State { Off, Looking, Connected, Armed, Stopped, Refused };

struct Snapshot {
  State state = State::Off;
  char why[512] = "";  // a sentence, for people
  uint64_t epoch = 0;
};

// Starts the thread. False: `why` says what could not be had. Nothing happens if it runs already.
bool start(Settings settings, std::string* why);

// Ends it: a recording is stopped for `reason` and told. Waits, a second at most; the arena is let go of.
void stop(const char* reason);

// No thread of this process but the caller's, the agent's and `hooks` (0: none); with `unknown` one more, which has not
// said yet who it is. The agent's is known even before it has run.
bool alone_but_for(pid_t hooks, bool unknown);

// Around a fork: ends the thread and starts it again, without a word to the daemon, where there is none beside it and
// the caller's; `gone` is one that has ended, and that the kernel may still count. CPython >= 3.12 warns of forks in
// processes with several threads, and ours shall not be why. Costs the fork 0.1 ms (1 ms where every core is busy);
// forks need it for nothing else.
void pause(pid_t gone);
void resume();

// In the child of a fork, once it may have threads: registers it as a process of its own, after a little while, so that
// children that only exec never appear.
void start_in_child();

// Later HELLOs have these lines; a daemon that is there is told those that have changed.
void describe(std::string_view hello, std::string_view changed);

// A line that goes with every STATUS and STOPPED of this recording; the last value of a key holds.
void note(std::string_view key, std::string_view value);

// A hooked option records now, or has said why it does not.
void begun(std::string_view option);

// Ends the recording for a reason of the target's own ("iterations", "overhead").
void finish(const char* reason);

// A capture of this process that the program asks for; see agent_wishes.h. The number is 0 where it is refused at once.
uint64_t ask(std::string_view lines, std::string* why);
// The same once, at a step of the program's. `begins`: the recording begins there by itself, and is asked for before.
void ask_at(uint64_t step, bool begins, std::string_view lines);
// What came of it. False: nothing yet. An id of a capture, or why there is none.
bool came_of(uint64_t number, std::string* capture, std::string* why);
// The step of ask_at, or one that was waited for on the way to it, has begun. Any thread; never waits.
void step_watched();

// While true, a stop waits for the hook `Stopping` to be done (at most a minute): it still records.
void records_at_stop(bool does);

// What was posted is done.
void hook_done(Hook hook);

Snapshot snapshot();

}  // namespace profd::agent
