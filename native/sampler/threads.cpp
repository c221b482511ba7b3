#include "threads.h"

#include <algorithm>

#include "words.h"

namespace profd::sampler {
namespace {

constexpr std::size_t kGapMax = 1024;    // between two frames that are read in one piece
constexpr std::size_t kSpanMax = 1 << 16;
constexpr std::size_t kGrowth = 1024;    // beyond the innermost frame, for those that come
constexpr int kLists = 3;
constexpr std::uint64_t kBefore = 2;     // bytes of an instruction
constexpr std::uint64_t kInPage = kPageBytes - 1;
// Where a piece of the stack of frames begins in its pages: behind its head; of the first one a word later.
constexpr std::uint64_t kFirstFrames[] = {24, 32}, kOutermost = 32;

std::size_t thread_bytes(const Layout& layout) {
  return std::max({layout.next_thread, layout.interpreter, layout.ident, layout.native, layout.current}) + kWord;
}

// One piece of memory for several frames, if they are near each other.
void make_spans(const std::vector<Frame>& stack, std::vector<Span>& spans) {
  static std::vector<std::uint64_t> places;
  places.clear();
  std::uint64_t last = 0;  // of the stack of frames, on which others come
  for (const Frame& frame : stack) {
    places.push_back(frame.address);
    if (frame.owner == kOwnedByThread) last = frame.address;
  }
  std::sort(places.begin(), places.end());
  spans.clear();
  for (const std::uint64_t place : places) {
    std::uint64_t end = place + kFrameBytes;
    if (place == last) end = std::max(end, std::min(end + kGrowth, (end | kInPage) + 1));
    const bool near = !spans.empty() && place <= spans.back().end + kGapMax && end - spans.back().begin < kSpanMax;
    if (near) {
      spans.back().end = std::max(spans.back().end, end);
    } else {
      spans.push_back({place, end, nullptr});
    }
  }
}

}  // namespace

bool Threads::look() {
  ++sample_;
  batch_.clear();
  ask();
  if (!batch_.run()) return false;
  for (auto& [address, thread] : states_) {
    thread.whole = false;
    for (const Frame& frame : thread.stack) codes_.check(frame.code, sample_, batch_);
  }
  list_all();
  for (const std::uint64_t address : found_) settle(address, states_.at(address));
  if (listed_) forget_ended();
  return g_stop == 0;
}

// All that the last sample found, in one call: what has not changed is not looked for again.
void Threads::ask() {
  const Layout& layout = python_.layout;
  head_place_ = batch_.add(python_.runtime + layout.interpreters, kWord);
  for (const std::uint64_t address : found_) ask_stack(address, states_.at(address), batch_);
  for (const std::uint64_t address : found_) {
    for (const Frame& frame : states_.at(address).stack) {
      if (frame.owner != kOwnedByC) codes_.ask(frame.code, sample_, batch_);
    }
  }
}

// The frames right behind what leads to them: the less passes between, the less changes.
void Threads::ask_stack(std::uint64_t address, ThreadState& thread, Batch& batch) {
  const Layout& layout = python_.layout;
  const std::uint64_t current = layout.through_c_frame ? thread.c_frame + layout.current_of_c_frame
                                                       : address + layout.current;
  thread.asked = sample_;
  thread.place = batch.add(address, thread_bytes(layout));
  thread.c_place = layout.through_c_frame ? batch.add(current, kWord) : thread.place;
  thread.spans_place = thread.c_place + 1;
  for (const Span& span : thread.spans) batch.add(span.begin, span.end - span.begin);
  thread.end_place = batch.add(current, kWord);
}

void Threads::list_all() {
  for (int tries = 0; tries < kLists; ++tries) {
    found_.clear();
    listed_ = list_interpreters();
    for (std::size_t at = 0; at < interpreters_.size() && listed_; ++at) listed_ = list_threads(interpreters_[at]);
    if (listed_) return;
    // What was read at once may be of different times.
    for (auto& each : states_) each.second.asked = 0;
  }
}

// The first one is the last in the list.
bool Threads::list_interpreters() {
  const Layout& layout = python_.layout;
  interpreters_.clear();
  const char* const said = batch_.at(head_place_);
  std::uint64_t address = said == nullptr ? 0 : load<std::uint64_t>(said);
  while (address != 0 && interpreters_.size() < kInterpretersMax) {
    interpreters_.push_back(address);
    if (!read_value(process_, address + layout.next_interpreter, address)) return false;
  }
  std::reverse(interpreters_.begin(), interpreters_.end());
  return address == 0;
}

bool Threads::list_threads(std::uint64_t interpreter) {
  std::uint64_t address = 0;
  if (!read_value(process_, interpreter + python_.layout.threads, address)) return false;
  while (address != 0 && found_.size() < kThreadsMaxOfProcess) {
    std::uint64_t next = 0;
    if (!take_thread(address, interpreter, next)) return false;
    address = next;
  }
  return address == 0;
}

// One of this interpreter, as the batch has it, or read now. False: it is none.
bool Threads::take_thread(std::uint64_t address, std::uint64_t interpreter, std::uint64_t& next) {
  const Layout& layout = python_.layout;
  const auto known = states_.find(address);
  const char* said = known != states_.end() && known->second.asked == sample_ ? batch_.at(known->second.place) : nullptr;
  char read[kThreadBytesMax];
  if (said == nullptr) {
    if (!read_place(process_, address, read, thread_bytes(layout))) return false;
    said = read;
  }
  if (load<std::uint64_t>(said + layout.interpreter) != interpreter) return false;
  next = load<std::uint64_t>(said + layout.next_thread);
  const auto ident = load<std::uint64_t>(said + layout.ident), native = load<std::uint64_t>(said + layout.native);
  if (ident == 0) return true;  // it has not begun
  ThreadState& thread = states_[address];
  if (thread.ident != ident || thread.native != native || thread.interpreter != interpreter) {
    thread = {};  // another one in its place
    thread.interpreter = interpreter;
    thread.ident = ident;
    thread.native = native;
  }
  if (thread.seen == sample_ && std::find(found_.begin(), found_.end(), address) != found_.end()) return false;  // a ring
  thread.seen = sample_;
  found_.push_back(address);
  return true;
}

void Threads::forget_ended() {
  for (auto each = states_.begin(); each != states_.end();) {
    each = each->second.seen == sample_ ? std::next(each) : states_.erase(each);
  }
}

// Look until what is seen leads to where the thread began. What has changed while it was read is at the inner end.
void Threads::settle(std::uint64_t address, ThreadState& thread) {
  bool again = false;  // before_ is of the look before
  for (int looks = 0; looks < kLooks && g_stop == 0; ++looks) {
    Batch& batch = looks == 0 ? batch_ : few_;
    if (looks > 0) {
      few_.clear();
      ask_stack(address, thread, few_);
      if (!few_.run()) return;
    } else if (thread.asked != sample_) {
      continue;  // a new one
    }
    if (!look_at(thread, batch)) {
      again = false;
      continue;
    }
    const bool last = looks == kLooks - 1;
    // One that stands still, at the same instructions, has the stack that is seen, whatever that is. A short loop may be
    // caught twice in the same two moments, but its innermost frame is another one at the end of the look.
    const bool still = again && ends_at_top(thread, batch) && walked_ == before_ && looked_ == looked_before_;
    const bool at_once = pieces_used_ == 0 || last;  // else it was read at different times
    if (still ? is_rooted(thread) || (last && thread.root == 0) : is_rooted(thread) && at_once && (!walked_.empty() || last)) {
      if (!still) trim(thread, batch);
      accept(thread);
      return;
    }
    make_spans(walked_, thread.spans);
    std::swap(walked_, before_);
    std::swap(looked_, looked_before_);
    again = true;
  }
  ++dropped_;
}

bool Threads::look_at(ThreadState& thread, const Batch& batch) {
  const char* const said = batch.at(thread.place);
  std::uint64_t top = 0;
  if (said == nullptr || load<std::uint64_t>(said + python_.layout.interpreter) != thread.interpreter ||
      !find_top(thread, batch, top)) {
    return false;
  }
  for (std::size_t at = 0; at < thread.spans.size(); ++at) thread.spans[at].copy = batch.at(thread.spans_place + at);
  return walk(thread, top) && name_all();
}

// False: its C frame is another one by now, and is known to the next look.
bool Threads::find_top(ThreadState& thread, const Batch& batch, std::uint64_t& top) {
  const auto current = load<std::uint64_t>(batch.at(thread.place) + python_.layout.current);
  if (!python_.layout.through_c_frame) {
    top = current;
    return true;
  }
  top = 0;
  if (current == 0) return true;
  const char* const c_frame = batch.at(thread.c_place);
  const bool known = current == thread.c_frame && c_frame != nullptr;
  thread.c_frame = current;
  if (known) top = load<std::uint64_t>(c_frame);
  return known;
}

// From the innermost frame out, kDepthMax of them. False: it leads nowhere.
bool Threads::walk(ThreadState& thread, std::uint64_t top) {
  const Layout& layout = python_.layout;
  walked_.clear();
  looked_.clear();
  pieces_used_ = 0;
  cut_ = false;
  for (std::uint64_t address = top; address != 0;) {
    cut_ = walked_.size() == kDepthMax;
    if (cut_) break;
    const char* said = copy_of(thread, address);
    if (said == nullptr) said = fetch(address);
    if (said == nullptr) return false;
    walked_.push_back({address, load<std::uint64_t>(said + layout.code), load<std::uint8_t>(said + layout.owner)});
    looked_.push_back(state_of(said));
    address = load<std::uint64_t>(said + layout.previous);
  }
  std::reverse(walked_.begin(), walked_.end());
  std::reverse(looked_.begin(), looked_.end());
  return true;
}

FrameState Threads::state_of(const char* frame) const {
  const Layout& layout = python_.layout;
  FrameState found;
  found.instruction = load<std::uint64_t>(frame + layout.instruction);
  found.waits = load<std::int32_t>(frame + layout.stack_top) >= 0;
  found.entered = layout.entry != 0 && load<std::uint8_t>(frame + layout.entry) != 0;
  return found;
}

// Null: nothing has been read there.
const char* Threads::copy_of(const ThreadState& thread, std::uint64_t address) const {
  const auto behind = std::upper_bound(thread.spans.begin(), thread.spans.end(), address,
                                       [](std::uint64_t place, const Span& span) { return place < span.begin; });
  if (behind != thread.spans.begin()) {
    const Span& span = behind[-1];
    if (span.copy != nullptr && address <= span.end - kFrameBytes) return span.copy + (address - span.begin);
  }
  for (std::size_t at = pieces_used_; at-- > 0;) {
    const Piece& piece = pieces_[at];
    if (address >= piece.begin && address <= piece.end - kFrameBytes) return piece.copy + (address - piece.begin);
  }
  return nullptr;
}

// With what lies before it in its page: the frames that called it, for most.
const char* Threads::fetch(std::uint64_t frame) {
  if (pieces_used_ >= kPiecesMax || frame > ~std::uint64_t{0} - kFrameBytes) return nullptr;
  if (pieces_used_ == pieces_.size()) pieces_.emplace_back();
  Piece& piece = pieces_[pieces_used_];
  piece.begin = frame & ~kInPage;
  piece.end = frame + kFrameBytes;
  if (!read_place(process_, piece.begin, piece.copy, piece.end - piece.begin)) return nullptr;
  ++pieces_used_;
  return piece.copy + (frame - piece.begin);
}

bool Threads::name_all() {
  for (std::size_t at = 0; at < walked_.size(); ++at) {
    const Frame& frame = walked_[at];
    if (frame.owner == kOwnedByC) continue;
    const Code* const code = codes_.get(frame.code, sample_);
    if (code == nullptr) return false;
    looked_[at].bytes = code->frame_bytes;
    looked_[at].code_bytes = code->code_bytes;
    looked_[at].text = code->text;
  }
  return true;
}

// The frame from which the look began is the innermost one when it ends, too.
bool Threads::ends_at_top(const ThreadState& thread, const Batch& batch) const {
  const char* const end = batch.at(thread.end_place);
  return end != nullptr && load<std::uint64_t>(end) == (walked_.empty() ? 0 : walked_.back().address);
}

// It begins where the thread's stack of frames does. A frame that is being made, or a generator's that is resumed or
// yields, leads to none for a moment.
bool Threads::is_rooted(const ThreadState& thread) const {
  if (cut_) return true;  // so many that follow each other are no accident
  for (const Frame& frame : walked_) {
    if (frame.owner == kOwnedByC) continue;
    const bool first = frame.owner == kOwnedByThread && (frame.address & kInPage) == kOutermost;
    return first || frame.address == thread.root;
  }
  return true;
}

// Behind its first instruction, and in its own code.
bool Threads::is_begun(std::size_t at) const {
  const std::uint64_t place = looked_[at].instruction - (walked_[at].code + python_.layout.instructions);
  return place - 1 < looked_[at].code_bytes;
}

// Can this frame be called by the one at `outer`? `outer_thread`: the nearest one that lies in the stack of frames.
bool Threads::follows(std::size_t at, const Frame* outer_thread, std::size_t outer) const {
  const Frame& frame = walked_[at];
  // One that has not begun has its last instruction before the first.
  const std::uint64_t place = looked_[at].instruction - (frame.code + python_.layout.instructions) + kBefore;
  if (place >= looked_[at].code_bytes + kBefore) return false;
  if (frame.owner == kOwnedByThread && outer_thread != nullptr) {  // as calls put them there, one behind the other
    const auto distance = static_cast<std::size_t>(outer_thread - walked_.data());
    const bool first = std::find(std::begin(kFirstFrames), std::end(kFirstFrames), frame.address & kInPage) !=
                       std::end(kFirstFrames);
    if (!first && frame.address != outer_thread->address + looked_[distance].bytes) return false;
  }
  // Who calls a function of Python's from Python puts its stack away; who calls one of C's does not.
  return walked_[outer].owner == kOwnedByC || looked_[at].entered || (looked_[outer].waits && is_begun(outer));
}

// Leave out what was not there at one time with what is further out: it has changed while it was read. The functions
// that were read at the same time as their callers are put in its place, if there are any.
void Threads::trim(const ThreadState& thread, const Batch& batch) {
  const char* const end = batch.at(thread.end_place);
  const std::uint64_t top = end == nullptr ? 0 : load<std::uint64_t>(end);
  const Frame* outer_thread = nullptr;
  std::size_t kept = 0;
  for (; kept < walked_.size(); ++kept) {
    const Frame& frame = walked_[kept];
    if (frame.owner != kOwnedByC && kept > 0 && !follows(kept, outer_thread, kept - 1)) break;
    // Nothing ties a generator's frame to the one that resumed it but a word of its own, which may be of another time: at
    // the end of the look, too, the innermost frame is to be one of these, or deeper than who resumed it.
    const auto is_top = [top](const Frame& inner) { return inner.address == top; };
    const bool deeper = outer_thread != nullptr && top > outer_thread->address && top - outer_thread->address < kSpanMax;
    if (frame.owner == kOwnedByGenerator && kept > 0 && !deeper &&
        std::none_of(walked_.begin() + static_cast<std::ptrdiff_t>(kept), walked_.end(), is_top)) {
      break;
    }
    if (frame.owner == kOwnedByThread) outer_thread = &frame;
  }
  while (kept > 0 && kept < walked_.size() && walked_[kept - 1].owner == kOwnedByC) --kept;
  walked_.resize(kept);
  looked_.resize(kept);
  extend(thread);
}

// By frames that lie behind the innermost one and are called by it, if they end in one that runs: others are over.
void Threads::extend(const ThreadState& thread) {
  const std::size_t before = walked_.size();
  while (push_next(thread)) {
  }
  if (walked_.size() > before && looked_.back().waits) {
    walked_.resize(before);
    looked_.resize(before);
  }
}

bool Threads::push_next(const ThreadState& thread) {
  if (walked_.empty() || walked_.size() >= kDepthMax || walked_.back().owner != kOwnedByThread) return false;
  const std::size_t outer = walked_.size() - 1;
  if (!looked_[outer].waits || !is_begun(outer)) return false;
  const Layout& layout = python_.layout;
  const std::uint64_t place = walked_[outer].address + looked_[outer].bytes;
  const char* const said = copy_of(thread, place);
  if (said == nullptr || load<std::uint64_t>(said + layout.previous) != walked_[outer].address ||
      load<std::uint8_t>(said + layout.owner) != kOwnedByThread) {
    return false;
  }
  FrameState state = state_of(said);
  const auto address = load<std::uint64_t>(said + layout.code);
  const Code* const code = state.entered ? nullptr : codes_.get(address, sample_);
  if (code == nullptr) return false;
  state.bytes = code->frame_bytes;
  state.code_bytes = code->code_bytes;
  state.text = code->text;
  walked_.push_back({place, address, static_cast<std::uint8_t>(kOwnedByThread)});
  looked_.push_back(state);
  if (follows(outer + 1, nullptr, outer)) return true;
  walked_.pop_back();
  looked_.pop_back();
  return false;
}

void Threads::collect_names() {
  named_.clear();
  const int left_out = cut_ ? codes_.texts().number(front_of("", 0, kLeftOut)) : kNoText;
  if (left_out != kNoText) named_.push_back(left_out);
  for (const FrameState& frame : looked_) {
    if (frame.text != kNoText) named_.push_back(frame.text);
  }
}

void Threads::accept(ThreadState& thread) {
  thread.whole = true;
  collect_names();
  std::swap(thread.texts, named_);
  if (walked_ == thread.stack) return;
  std::swap(thread.stack, walked_);
  make_spans(thread.stack, thread.spans);
  const auto of_python = std::find_if(thread.stack.begin(), thread.stack.end(),
                                      [](const Frame& frame) { return frame.owner != kOwnedByC; });
  if (of_python != thread.stack.end() && !cut_) thread.root = of_python->address;
}

}  // namespace profd::sampler
