// How a record goes from one value to the next.
//
// The records of a trace are alike. What stands between two values (commas, blanks, braces, a key) came
// before, and comparing it with what followed the same value then takes the place of reading it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "interner.h"
#include "text.h"

namespace profd::scan {

enum class Place : std::uint8_t { kOpen, kMembers, kArgs };  // behind a record's '{', one of its values, an argument

// Where the value goes: to a field of the record by that name, to its lists, or there is none.
enum class Slot : std::uint8_t { kName, kCat, kPhase, kPid, kTid, kTs, kDur, kId, kBp, kArgument, kOther, kEnd };

struct Step {
  static constexpr std::size_t kTextMax = kPadding;  // torch's longest takes 50 bytes
  static constexpr std::size_t kNextMax = 4;

  Slot slot = Slot::kEnd;
  Place place = Place::kOpen;  // behind the value
  bool opens_args = false;     // "args" began on the way: what it held before is void
  std::string_view key;        // of kArgument and kOther
  std::int32_t number = -1;    // of a kept one, from 0 in the order of keeping

  std::uint8_t size = 0;
  std::array<char, kTextMax> text;
  std::array<Step*, kNextMax> next{};  // what followed its value, the newest first

  // `p` has kPadding bytes to look at.
  bool stands_at(const char* p) const {
#if defined(__SSE2__)
    for (int at = 0;; at += 16) {
      const __m128i here = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at));
      const __m128i mine = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
      const unsigned differ = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(here, mine))) ^ 0xFFFFu;
      const int left = size - at;
      if (left <= 16) return (differ << (32 - left)) == 0;
      if (differ) return false;
    }
#else
    return std::memcmp(p, text.data(), size) == 0;
#endif
  }
};

class Steps {
 public:
  static constexpr std::size_t kMax = 1024;

  Step& start() { return start_; }

  // The step known to follow `from` that stands at p; null: to be read.
  static Step* follow(const Step& from, const char* p) {
    for (Step* const next : from.next) {
      if (!next || next->stands_at(p)) return next;
    }
    return nullptr;
  }

  // Keeps a step that was read behind `from`; null where there is no room. Its text has neither escapes nor NULs, and
  // its key is part of that.
  Step* keep(Step& from, std::string_view text, const Step& read);

 private:
  Step start_;
  std::deque<Step> kept_;
  std::unordered_map<std::string, Step*, SeededHash> by_text_;  // with the place before it
};

}  // namespace profd::scan
