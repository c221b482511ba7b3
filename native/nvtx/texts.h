// Domains and registered strings: what a program names once and refers to by handles afterwards. Kept for good, as
// their handles are, within a bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../recorder/writer.h"

namespace profd::nvtx {

inline constexpr size_t kTextsMax = 65'536;  // domains and registered strings
inline constexpr size_t kTextBytesMax = 4096;

// A text with a handle. Its id in the session that is live is looked up once.
class Text {
 public:
  explicit Text(std::string text) : text_(std::move(text)) {}
  std::string_view text() const { return text_; }
  uint32_t id(const recorder::Api& api, recorder::Thread* thread, recorder::Session session) const;

 private:
  const std::string text_;
  mutable std::atomic<uint64_t> known_{0};  // lower half of a session | id in it
};

// The same one for the same text of the same owner (a domain; null: a domain's own name). Null where there is no room:
// what it would name goes without.
const Text* text_of(const void* owner, std::string text);

// At most kTextBytesMax bytes of it.
std::string_view cut(const char* text);
std::string utf8(const wchar_t* text);

// For forks: nobody else may be in here meanwhile.
void lock_texts();
void unlock_texts();

}  // namespace profd::nvtx
