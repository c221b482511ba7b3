#include "texts.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace profd::nvtx {
namespace {

struct Texts {
  std::mutex mutex;
  std::map<std::pair<const void*, std::string>, std::unique_ptr<const Text>> all;
};

// Never destroyed: programs use their handles until they have ended.
Texts& texts() {
  static Texts* const one = new Texts;
  return *one;
}

void put_utf8(std::string& to, uint32_t code) {
  if (code < 0x80) {
    to += static_cast<char>(code);
  } else if (code < 0x800) {
    to += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
  } else if (code < 0x10000) {
    to += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
           static_cast<char>(0x80 | (code & 0x3f))};
  } else {
    to += {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3f)),
           static_cast<char>(0x80 | (code >> 6 & 0x3f)), static_cast<char>(0x80 | (code & 0x3f))};
  }
}

}  // namespace

uint32_t Text::id(const recorder::Api& api, recorder::Thread* thread, recorder::Session session) const {
  const uint64_t known = known_.load(std::memory_order_relaxed), half = session << 32;
  if (known >> 32 == half >> 32 && known != 0) return static_cast<uint32_t>(known);
  const uint32_t id = recorder::intern(api, thread, session, text_.data(), text_.size());
  if (id != arena::kNoName) known_.store(half | id, std::memory_order_relaxed);
  return id;
}

const Text* text_of(const void* owner, std::string text) {
  Texts& one = texts();
  std::lock_guard lock(one.mutex);
  const auto known = one.all.find({owner, text});
  if (known != one.all.end()) return known->second.get();
  if (one.all.size() >= kTextsMax) return nullptr;
  auto made = std::make_unique<const Text>(text);
  return one.all.emplace(std::pair(owner, std::move(text)), std::move(made)).first->second.get();
}

std::string_view cut(const char* text) { return {text, strnlen(text, kTextBytesMax)}; }

std::string utf8(const wchar_t* text) {
  std::string found;
  for (; *text && found.size() + 4 <= kTextBytesMax; text++) {
    const uint32_t code = static_cast<uint32_t>(*text);
    put_utf8(found, code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0xfffd : code);
  }
  return found;
}

void lock_texts() { texts().mutex.lock(); }
void unlock_texts() { texts().mutex.unlock(); }

}  // namespace profd::nvtx
