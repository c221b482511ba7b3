#include "trace.h"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

#include "texts.h"

namespace profd::sampler {
namespace {

constexpr std::size_t kWrittenAtOnce = 1 << 16;

}  // namespace

void Trace::see(std::uint64_t native, std::uint64_t ident, const std::string& name, const std::vector<int>& stack,
                std::uint64_t now_us) {
  Open& thread = open_[native];
  if (thread.name_text == kNoText || thread.ident != ident || thread.name != name) {
    end_all(thread, now_us);
    thread.ident = ident;
    thread.name = name;
    std::string said = "thread (" + std::to_string(native) + ")";
    if (!name.empty()) said += ": " + name;
    thread.name_text = texts_.number(front_of("", 0, said));
    if (thread.name_text == kNoText) return;
    put(thread, thread.name_text, 'B', now_us);
  }
  const auto both = std::min(thread.stack.size(), stack.size());
  const auto differs = std::mismatch(stack.begin(), stack.begin() + static_cast<std::ptrdiff_t>(both),
                                     thread.stack.begin()).first;
  const auto same = static_cast<std::size_t>(differs - stack.begin());
  while (thread.stack.size() > same) pop(thread, now_us);
  for (std::size_t at = same; at < stack.size(); ++at) {
    put(thread, stack[at], 'B', now_us);
    thread.stack.push_back(stack[at]);
  }
}

void Trace::close(std::uint64_t native, std::uint64_t now_us) {
  const auto found = open_.find(native);
  if (found == open_.end()) return;
  end_all(found->second, now_us);
  open_.erase(found);
}

void Trace::pop(Open& thread, std::uint64_t now_us) {
  put(thread, thread.stack.back(), 'E', now_us);
  thread.stack.pop_back();
}

void Trace::end_all(Open& thread, std::uint64_t now_us) {
  while (!thread.stack.empty()) pop(thread, now_us);
  if (thread.name_text == kNoText) return;
  put(thread, thread.name_text, 'E', now_us);
  last_ = thread;
  thread.name_text = kNoText;
}

bool Trace::finish(std::uint64_t now_us) {
  if (open_.empty() && last_.name_text != kNoText) {
    put(last_, last_.name_text, 'B', now_us);
    put(last_, last_.name_text, 'E', now_us);
  }
  for (auto& [native, thread] : open_) end_all(thread, now_us);
  open_.clear();
  waiting_ += "]\n";
  flush();
  return !broken_;
}

void Trace::put(const Open& thread, int text, char phase, std::uint64_t now_us) {
  if (!first_) waiting_.push_back(',');
  first_ = false;
  waiting_ += texts_.front(text);
  waiting_.push_back(phase);
  waiting_ += R"(","pid":)";
  put_number(waiting_, static_cast<std::uint64_t>(process_));
  waiting_ += R"(,"tid":)";
  put_number(waiting_, thread.ident);
  waiting_ += R"(,"ts":)";
  put_number(waiting_, now_us);
  waiting_.push_back('}');
  if (waiting_.size() >= kWrittenAtOnce) flush();
}

// Who reads may have had enough.
void Trace::flush() {
  const char* from = waiting_.data();
  for (std::size_t left = waiting_.size(); left > 0 && !broken_;) {
    const ssize_t written = ::write(output_, from, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      broken_ = true;
      break;
    }
    from += written;
    left -= static_cast<std::size_t>(written);
  }
  waiting_.clear();
}

}  // namespace profd::sampler
