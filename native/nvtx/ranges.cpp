#include "ranges.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "../recorder/extensions.h"

namespace profd::nvtx {

using recorder::Handle;
using recorder::Kind;
using recorder::Session;
using recorder::Slot;
using recorder::Thread;

namespace {

constexpr uint32_t kPushedMost = 16 * 1024;  // and not popped, per thread; further ones have no end
constexpr size_t kStartedMost = 65'536;      // and not ended; as above
constexpr std::string_view kNoName = "(NVTX range without a name)";

std::atomic<const recorder::Api*> where{nullptr};

struct Pushed {
  const Text* domain;
  int before;  // how many of its domain were there already
  Handle handle;
};

// What this thread has pushed since the session began. What was pushed before is not known, and its pops mean nothing.
struct Stack {
  Session session = 0;
  uint32_t count = 0;
  uint32_t room = 0;
  uint64_t beyond = 0;  // pushed when there was no room: innermost, and the first to be popped
  Pushed* pushed = nullptr;

  ~Stack() {
    std::free(pushed);
    pushed = nullptr, count = room = 0;  // the thread may still push while it ends
  }
  bool make_room() {
    if (count < room) return true;
    const uint32_t more = room ? 2 * room : 8;
    void* bigger = more > kPushedMost ? nullptr : std::realloc(static_cast<void*>(pushed), more * sizeof(Pushed));
    if (!bigger) return false;
    pushed = static_cast<Pushed*>(bigger);
    room = more;
    return true;
  }
  int depth(const Text* domain) const {
    for (uint32_t i = count; i-- > 0;)
      if (pushed[i].domain == domain) return pushed[i].before + 1;
    return 0;
  }
};
thread_local Stack stack;

struct Started {
  std::mutex mutex;
  std::unordered_map<RangeId, Handle> open;
  RangeId last = 0;
};

// Never destroyed: threads may end ranges while the process ends.
Started& started() {
  static Started* const one = new Started;
  return *one;
}

// Where this thread writes now; nothing while nothing is recorded.
struct Now {
  const recorder::Api* api = nullptr;
  Session session = 0;
  Thread* thread = nullptr;
  explicit operator bool() const { return thread != nullptr; }
};

Thread* queue(const recorder::Api& api) {
  static thread_local Thread** slot = nullptr;
  return recorder::current_thread(api, slot);
}

Now now() {
  Now found;
  found.api = where.load(std::memory_order_acquire);
  if (!found.api) return found;
  // A program without profclient records CUDA's events and no ranges of its own: these belong to both.
  constexpr auto kEither = static_cast<recorder::Source>(recorder::kRanges | recorder::kGpu);
  found.session = recorder::session_of(*found.api, kEither);
  if (found.session) found.thread = queue(*found.api);
  return found;
}

uint32_t intern(const Now& at, std::string_view text) {
  return recorder::intern(*at.api, at.thread, at.session, text.data(), text.size());
}

uint32_t name_of(const Now& at, const Event& event) {
  if (!event.attributes) return intern(at, event.text.empty() ? kNoName : event.text);
  const auto& message = event.attributes->message;
  switch (event.attributes->message_type) {
    case MessageType::Ascii:
      if (message.ascii) return intern(at, cut(message.ascii));
      break;
    case MessageType::Unicode:
      if (message.wide) return intern(at, utf8(message.wide));
      break;
    case MessageType::Registered:
      if (message.registered) return static_cast<const Text*>(message.registered)->id(*at.api, at.thread, at.session);
      break;
    case MessageType::Unknown: break;
  }
  return intern(at, kNoName);
}

void put_quoted(recorder::Bytes& to, std::string_view text) {
  to.put("\"", 1);
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    char escaped[8];
    if (code < 0x20 || letter == '"' || letter == '\\')
      to.put(escaped, static_cast<size_t>(std::snprintf(escaped, sizeof escaped, "\\u%04x", code)));
    else
      to.put(&letter, 1);
  }
  to.put("\"", 1);
}

template <typename Number>
std::string printed(Number value) {
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(value)) return "";
  char text[40];  // by to_chars: the program may have set a locale with commas
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// A number as JSON has it; empty for what it cannot hold.
std::string payload(const Attributes& given) {
  switch (given.payload_type) {
    case PayloadType::U64: return printed(given.payload.u64);
    case PayloadType::I64: return printed(given.payload.i64);
    case PayloadType::U32: return printed(given.payload.u32);
    case PayloadType::I32: return printed(given.payload.i32);
    case PayloadType::Double: return printed(given.payload.real);
    case PayloadType::Float: return printed(given.payload.single);
    case PayloadType::Unknown: break;
  }
  return "";
}

// {"domain": "x", "category": 3, "payload": 1.5} of those that are given.
void put_arguments(recorder::Extensions& to, const Event& event) {
  const uint32_t category = event.attributes ? event.attributes->category : 0;
  const std::string value = event.attributes ? payload(*event.attributes) : "";
  if (!event.domain && category == 0 && value.empty()) return;
  recorder::Bytes& json = to.open(arena::Ext::Args);
  const char* before = "{";
  const auto put_key = [&](std::string_view key) {
    json.put(before, std::strlen(before));
    json.put(key.data(), key.size());
    before = ", ";
  };
  if (event.domain) put_key("\"domain\": "), put_quoted(json, event.domain->text());
  if (category) {
    const std::string number = std::to_string(category);
    put_key("\"category\": "), json.put(number.data(), number.size());
  }
  if (!value.empty()) put_key("\"payload\": "), json.put(value.data(), value.size());
  json.put("}", 1);
  to.close();
}

bool append(const Now& at, const Event& event, Kind kind, uint8_t flags, Handle* handle) {
  recorder::Extensions arguments;
  put_arguments(arguments, event);
  if (arguments.too_large()) at.api->lose(recorder::Lost::TooLarge, 1);
  Slot head{};
  head.name = name_of(at, event);
  head.kind = kind;
  head.flags = flags;
  head.start = recorder::ticks(*at.api);
  if (kind == Kind::Instant) head.end = head.start;
  return recorder::append(*at.api, at.thread, at.session, head, arguments.data(), arguments.size(), handle);
}

}  // namespace

void write_to(const recorder::Api* api) { where.store(api, std::memory_order_release); }

void forget_started() {
  Started& one = started();
  std::lock_guard lock(one.mutex);
  one.open.clear();
}

void mark(const Event& event) {
  if (const Now at = now()) append(at, event, Kind::Instant, 0, nullptr);
}

int push(const Event& event) {
  const Now at = now();
  if (!at) return kNoTracking;
  if (stack.session != at.session) stack.session = at.session, stack.count = 0, stack.beyond = 0;
  const int before = stack.depth(event.domain);
  if (stack.beyond || !stack.make_room()) {
    stack.beyond++;
    append(at, event, Kind::Range, 0, nullptr);
    return before;
  }
  Pushed& one = stack.pushed[stack.count++];  // also where it is not recorded: its pop must find it
  one.domain = event.domain;
  one.before = before;
  append(at, event, Kind::Range, 0, &one.handle);
  return before;
}

int pop(const Text* domain) {
  const Now at = now();
  if (!at || stack.session != at.session) return kNoTracking;
  if (stack.beyond) {
    stack.beyond--;
    return stack.depth(domain);
  }
  for (uint32_t i = stack.count; i-- > 0;) {
    if (stack.pushed[i].domain != domain) continue;
    recorder::end(*at.api, at.thread, stack.pushed[i].handle, 0);
    for (uint32_t next = i + 1; next < stack.count; next++) stack.pushed[next - 1] = stack.pushed[next];
    stack.count--;
    return stack.depth(domain);
  }
  return kNoTracking;
}

RangeId start(const Event& event) {
  const Now at = now();
  if (!at) return 0;
  Handle handle;
  if (!append(at, event, Kind::Range, arena::kAsync, &handle)) return 0;
  Started& one = started();
  std::lock_guard lock(one.mutex);
  if (one.open.size() >= kStartedMost) return 0;
  one.open[++one.last] = handle;
  return one.last;
}

void end(RangeId id) {
  const Now at = now();
  if (!at || id == 0) return;
  Started& one = started();
  Handle handle;
  {
    std::lock_guard lock(one.mutex);
    const auto found = one.open.find(id);
    if (found == one.open.end()) return;
    handle = found->second;
    one.open.erase(found);
  }
  recorder::end(*at.api, at.thread, handle, arena::kAsync);
}

void lock_started() { started().mutex.lock(); }
void unlock_started() { started().mutex.unlock(); }

}  // namespace profd::nvtx
