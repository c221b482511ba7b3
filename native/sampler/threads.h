// The stacks of all Python threads of a process, read again and again.
#pragma once

#include <cstdint>
#include <deque>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include "codes.h"
#include "layout.h"
#include "memory.h"

namespace profd::sampler {

inline constexpr std::size_t kInterpretersMax = 256;
inline constexpr std::size_t kThreadsMaxOfProcess = 4096;
inline constexpr std::size_t kDepthMax = 16'000;  // the decoder takes 16,384; of a deeper stack these are the innermost
inline constexpr char kLeftOut[] = "(more than 16,000 calls deep: the outer ones are left out)";
inline constexpr std::size_t kPieceBytes = 4096 + kFrameBytes;
inline constexpr std::size_t kPiecesMax = 2048;  // that a walk may miss
inline constexpr int kLooks = 6;                   // at a stack that changes while it is read, before it is dropped

struct Frame {
  std::uint64_t address = 0, code = 0;
  std::uint8_t owner = 0;
  bool operator==(const Frame&) const = default;
};

// What else is looked at of a frame, to know whether it was whole when it was read.
struct FrameState {
  std::uint64_t instruction = 0;       // its address
  bool waits = false;                  // its stack is put away: it has called a function of Python's
  bool entered = false;                // C called it
  std::size_t bytes = 0, code_bytes = 0;  // of the frame with what lies behind it; of its instructions
  int text = kNoText;
  bool operator==(const FrameState&) const = default;
};

// Memory that is read in one piece, because frames lie in it.
struct Span {
  std::uint64_t begin = 0, end = 0;
  const char* copy = nullptr;
};

// The part of a page up to the end of a frame.
struct Piece {
  std::uint64_t begin = 0, end = 0;
  char copy[kPieceBytes];
};

// A thread state: of one thread in one interpreter.
struct ThreadState {
  std::uint64_t interpreter = 0;  // its address; that of its state is the key
  std::uint64_t ident = 0, native = 0;
  std::uint64_t c_frame = 0;      // where the last look found its frame (3.11, 3.12)
  std::vector<Frame> stack;       // outermost first, as last accepted
  std::vector<Span> spans;        // in order
  std::vector<int> texts;         // of the stack's functions, outermost first
  std::size_t place = 0, c_place = 0, spans_place = 0, end_place = 0;  // in the batch of this sample
  unsigned asked = 0;
  unsigned seen = 0;              // the last sample that listed it
  std::uint64_t root = 0;         // its outermost frame, which stays; 0: not known yet
  bool whole = false;             // this sample has it
};

// What one sample found: thread states, outer interpreters first.
class Threads {
 public:
  Threads(pid_t process, const Python& python) : process_(process), python_(python), batch_(process), few_(process),
                                                 codes_(process, python) {}

  // Look once. False: the process is gone, or may not be read any more (errno says); or g_stop is set, and what was found
  // is not whole.
  bool look();

  const std::vector<std::uint64_t>& found() const { return found_; }
  ThreadState& state(std::uint64_t address) { return states_.at(address); }
  bool has(std::uint64_t address) const { return states_.count(address) != 0; }
  // Whether who is not found has ended.
  bool listed() const { return listed_; }
  std::uint64_t dropped() const { return dropped_; }  // stacks that changed, in all
  Codes& codes() { return codes_; }
  // Of the first interpreter, which knows the names of threads; 0: there is none.
  std::uint64_t main_interpreter() const { return interpreters_.empty() ? 0 : interpreters_.front(); }

 private:
  void ask();
  void ask_stack(std::uint64_t address, ThreadState& thread, Batch& batch);
  bool list_interpreters();
  bool list_threads(std::uint64_t interpreter);
  bool take_thread(std::uint64_t address, std::uint64_t interpreter, std::uint64_t& next);
  void list_all();
  void forget_ended();
  void settle(std::uint64_t address, ThreadState& thread);
  bool look_at(ThreadState& thread, const Batch& batch);
  bool find_top(ThreadState& thread, const Batch& batch, std::uint64_t& top);
  bool walk(ThreadState& thread, std::uint64_t top);
  const char* fetch(std::uint64_t frame);
  const char* copy_of(const ThreadState& thread, std::uint64_t address) const;
  FrameState state_of(const char* frame) const;
  bool name_all();
  void collect_names();
  bool ends_at_top(const ThreadState& thread, const Batch& batch) const;
  bool is_rooted(const ThreadState& thread) const;
  bool follows(std::size_t at, const Frame* outer_thread, std::size_t outer) const;
  bool is_begun(std::size_t at) const;
  void trim(const ThreadState& thread, const Batch& batch);
  void extend(const ThreadState& thread);
  bool push_next(const ThreadState& thread);
  void accept(ThreadState& thread);

  pid_t process_;
  const Python& python_;
  Batch batch_, few_;
  Codes codes_;
  unsigned sample_ = 0;
  std::uint64_t dropped_ = 0;
  std::vector<std::uint64_t> interpreters_, found_;
  std::vector<std::size_t> interpreter_places_;
  std::size_t head_place_ = 0;
  std::unordered_map<std::uint64_t, ThreadState> states_;
  bool listed_ = false;                 // this sample has seen all threads
  // Of the thread that is looked at, this time, and the time before: outermost first.
  std::vector<Frame> walked_, before_;
  bool cut_ = false;                    // walked_ is the inner end of a deeper one
  std::vector<int> named_;              // the texts of walked_, shims left out
  std::vector<FrameState> looked_, looked_before_;  // the rest of their frames
  std::deque<Piece> pieces_;            // memory that a walk missed
  std::size_t pieces_used_ = 0;
};

}  // namespace profd::sampler
