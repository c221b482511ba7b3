// A Chrome trace file, fed in slices: {"traceEvents": [...], ...} or a bare array.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chrome_events.h"
#include "chrome_record.h"
#include "text.h"

namespace profd::scan {

// Invariant: buffer_[0, size_) is input not yet consumed plus what the cursor has passed since the
// last append(); behind it lie kPadding NULs. Memory: one slice plus at most one record of event_bytes.
class ChromeScanner {
 public:
  // With `skip_events` the events are passed over and only the other top-level members are read.
  ChromeScanner(const Limits& limits, bool skip_events);
  ChromeScanner(const ChromeScanner&) = delete;  // its parts point at one another
  ChromeScanner& operator=(const ChromeScanner&) = delete;

  // Scans a slice as far as it goes. Pauses (see held()) before the first event of an object.
  void feed(std::string_view slice, bool final);
  // Goes on after the pause; `base_ns` is the Unix time of the file's zero.
  void begin(std::int64_t base_ns, DeviceType accelerator);

  bool held() const { return state_ == State::kHeld; }
  bool done() const { return state_ == State::kDone; }
  // Why scanning stopped early; empty: it did not. `truncated()`: the input ended too soon.
  const std::string& fault() const { return fault_; }
  bool truncated() const { return truncated_; }
  std::uint64_t offset() const { return consumed_ + cursor_; }
  bool is_object() const { return object_; }

  ChromeEvents& events() { return events_; }
  // Top-level members met since the last call, as key and clean JSON.
  std::vector<std::pair<std::string, std::string>> take_members() { return std::exchange(members_, {}); }

 private:
  static constexpr std::size_t kPieceBytes = 256 << 10;  // stays in the cache while it is scanned

  enum class State : std::uint8_t {
    kStart, kKey, kAfterMember, kHeld, kEvents, kSkipRecord, kSkipEvents, kSkipMember, kTail, kDone, kFault,
  };

  void append(std::string_view piece);
  void run();
  bool step();  // false: needs more input, or stopped
  bool step_start();
  bool step_key();
  bool step_after_member();
  bool step_events();
  bool step_record();
  bool step_skip(State next);
  bool step_tail();
  bool member(std::string_view key, const char* p);
  bool skip_from(const char* p, State how);
  bool stop(const char* p, std::string_view expected);
  void finish();
  void move_to(const char* p) { cursor_ = static_cast<std::size_t>(p - buffer_.data()); }
  const char* at() const { return buffer_.data() + cursor_; }
  const char* end() const { return buffer_.data() + size_; }
  std::size_t left(const char* p) const { return static_cast<std::size_t>(end() - p); }

  Limits limits_;
  bool skip_events_;
  ChromeEvents events_;
  Record record_;
  Skipper skipper_;
  std::string buffer_;
  std::size_t size_ = 0, cursor_ = 0;
  std::uint64_t consumed_ = 0;  // bytes of the input before buffer_[0]
  State state_ = State::kStart;
  bool object_ = false;
  bool final_ = false, truncated_ = false;
  bool need_comma_ = false;  // in kEvents: a record has just ended
  std::size_t member_bytes_ = 0;
  std::string fault_;
  std::vector<std::pair<std::string, std::string>> members_;
};

}  // namespace profd::scan
