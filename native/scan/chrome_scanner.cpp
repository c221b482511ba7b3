#include "chrome_scanner.h"

#include <algorithm>
#include <cstring>

#include "strings.h"

namespace profd::scan {

ChromeScanner::ChromeScanner(const Limits& limits, bool skip_events)
    : limits_(limits), skip_events_(skip_events), events_(limits), buffer_(kPadding, '\0') {}

void ChromeScanner::feed(std::string_view slice, bool final) {
  do {
    // Of a record that goes on as much again as there is, so that reading it anew adds up to twice its size.
    const std::string_view piece = slice.substr(0, std::max(kPieceBytes, size_ - cursor_));
    slice.remove_prefix(piece.size());
    append(piece);
    final_ = final && slice.empty();
    run();
  } while (!slice.empty() && state_ != State::kDone && state_ != State::kFault);
}

void ChromeScanner::append(std::string_view piece) {
  consumed_ += cursor_;
  buffer_.resize(size_);
  buffer_.erase(0, cursor_);
  cursor_ = 0;
  buffer_.append(piece);
  size_ = buffer_.size();
  buffer_.append(kPadding, '\0');
}

void ChromeScanner::begin(std::int64_t base_ns, DeviceType accelerator) {
  events_.begin(base_ns, accelerator);
  if (state_ != State::kHeld) return;
  state_ = State::kEvents;
  run();
}

void ChromeScanner::run() {
  while (step()) {
  }
  if (state_ == State::kFault || (final_ && state_ != State::kHeld)) finish();
}

bool ChromeScanner::step() {
  switch (state_) {
    case State::kStart: return step_start();
    case State::kKey: return step_key();
    case State::kAfterMember: return step_after_member();
    case State::kEvents: return step_events();
    case State::kSkipRecord: return step_skip(State::kEvents);
    case State::kSkipEvents:
    case State::kSkipMember: return step_skip(State::kAfterMember);
    case State::kTail: return step_tail();
    case State::kHeld:
    case State::kDone:
    case State::kFault: return false;
  }
  return false;
}

bool ChromeScanner::stop(const char* p, std::string_view expected) {
  if (p >= end()) return false;  // more input decides
  move_to(p);
  static constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(*p);
  fault_ = "expected " + std::string(expected) + ", found ";
  if (byte > 0x20 && byte < 0x7f) {
    fault_ += {'\'', static_cast<char>(byte), '\''};
  } else {
    fault_ += {'0', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
  state_ = State::kFault;
  return false;
}

bool ChromeScanner::step_start() {
  if (consumed_ + cursor_ == 0 && size_ < 3 && !final_) return false;
  const char* p = at();
  if (consumed_ + cursor_ == 0 && left(p) >= 3 && std::memcmp(p, "\xEF\xBB\xBF", 3) == 0) p += 3;
  p = skip_space(p);
  move_to(p);
  if (*p == '{') {
    object_ = true;
    state_ = State::kKey;
  } else if (*p == '[') {
    state_ = skip_events_ ? State::kDone : State::kEvents;
  } else {
    return stop(p, "'{' or '['");
  }
  move_to(p + 1);
  return true;
}

bool ChromeScanner::step_key() {
  const char* p = skip_space(at());
  move_to(p);
  if (*p == '}') {
    move_to(p + 1);
    state_ = State::kTail;
    return true;
  }
  if (*p != '"') return stop(p, "a key");
  const char* q = p;
  Text key;
  if (scan_string(q, end(), key) != Scan::kOk) {
    if (left(p) > limits_.string_bytes) return stop(p, "a shorter key");
    return false;
  }
  q = skip_space(q);
  if (*q != ':') return stop(q, "':'");
  return member(key.plain ? std::string(key.raw) : unescape(key.raw), skip_space(q + 1));
}

bool ChromeScanner::member(std::string_view key, const char* p) {
  if (key == "traceEvents" && *p == '[') {
    if (skip_events_) return skip_from(p, State::kSkipEvents);
    move_to(p + 1);
    need_comma_ = false;
    state_ = State::kHeld;
    return true;
  }
  const char* q = p;
  bool clean = true;
  const Scan s = skip_value(q, end(), limits_.depth, clean);
  if (s == Scan::kBad) return stop(q, "a value");
  const bool large = left(p) > limits_.event_bytes && static_cast<std::size_t>(q - p) > limits_.event_bytes;
  if (s == Scan::kDeep || (s == Scan::kMore && large)) {
    ++events_.counted["top_level_dropped"];
    if (*p != '{' && *p != '[' && *p != '"') return stop(p, "a shorter value");
    return skip_from(p, State::kSkipMember);
  }
  if (s == Scan::kMore) return false;
  const std::string_view text(p, static_cast<std::size_t>(q - p));
  if (member_bytes_ + key.size() + text.size() > limits_.event_bytes) {
    ++events_.counted["top_level_dropped"];
  } else {
    member_bytes_ += key.size() + text.size();
    members_.emplace_back(key, clean ? std::string(text) : clean_json(text));
  }
  move_to(q);
  state_ = State::kAfterMember;
  return true;
}

bool ChromeScanner::skip_from(const char* p, State how) {
  move_to(p);
  skipper_.reset();
  state_ = how;
  return true;
}

bool ChromeScanner::step_skip(State next) {
  const char* p = at();
  const bool closed = skipper_.run(p, end());
  move_to(p);
  if (!closed) return false;
  need_comma_ = true;
  state_ = next;
  return true;
}

bool ChromeScanner::step_after_member() {
  const char* p = skip_space(at());
  move_to(p);
  if (*p != ',' && *p != '}') return stop(p, "',' or '}'");
  state_ = *p == ',' ? State::kKey : State::kTail;
  move_to(p + 1);
  return true;
}

bool ChromeScanner::step_events() {
  const char* p = at();
  for (;;) {
    p = skip_space(p);
    if (*p != ',') break;
    need_comma_ = false;
    ++p;
  }
  move_to(p);
  if (*p == ']') {
    move_to(p + 1);
    state_ = object_ ? State::kAfterMember : State::kTail;
    return true;
  }
  if (need_comma_) return stop(p, "',' or ']'");
  if (*p == '{') return step_record();
  if (p >= end()) return false;
  const char* q = p;
  bool clean = true;
  const Scan s = skip_value(q, end(), limits_.depth, clean);
  if (s == Scan::kBad) return stop(q, "an event");
  if (s == Scan::kDeep || (s == Scan::kMore && left(p) > limits_.event_bytes)) {
    if (*p != '[' && *p != '"') return stop(p, "an event");
    events_.lose("not_an_event");
    return skip_from(p, State::kSkipRecord);
  }
  if (s == Scan::kMore) return false;
  events_.lose("not_an_event");
  need_comma_ = true;
  move_to(q);
  return true;
}

bool ChromeScanner::step_record() {
  const char* const begin = at();
  const char* p = begin;
  const Scan s = record_.parse(p, end(), limits_);
  if (s == Scan::kOk) [[likely]] {
    const std::string_view text(begin, static_cast<std::size_t>(p - begin));
    if (text.size() > limits_.event_bytes) {
      events_.lose("too_large");
    } else {
      events_.accept(record_, text);
    }
    need_comma_ = true;
    move_to(p);
    return true;
  }
  if (s == Scan::kBad) return stop(p, "a member of an event");
  if (s == Scan::kMore && left(begin) <= limits_.event_bytes) return false;
  events_.lose(s == Scan::kDeep ? "too_deep" : "too_large");
  return skip_from(begin, State::kSkipRecord);
}

bool ChromeScanner::step_tail() {
  const char* p = skip_space(at());
  if (p >= end()) {
    move_to(end());
    if (final_) state_ = State::kDone;
    return false;
  }
  move_to(p);
  ++events_.counted["trailing_bytes"];
  state_ = State::kDone;
  return false;
}

void ChromeScanner::finish() {
  if (state_ != State::kDone && state_ != State::kFault) {
    const bool between = state_ == State::kEvents && (*at() == '\0' && left(at()) == 0);
    if (between && !object_) {
      state_ = State::kDone;  // Chrome itself leaves arrays open when it is killed
    } else {
      if (state_ == State::kEvents && !between) events_.lose("truncated");
      truncated_ = true;
      fault_ = "the input ends too soon";
      state_ = State::kFault;
    }
  }
  events_.finish();
}

}  // namespace profd::scan
