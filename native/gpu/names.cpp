#include "names.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/uio.h>
#include <unistd.h>

namespace profd::cupti {
namespace {

constexpr uintptr_t kPage = 4096;
constexpr size_t kPagesMax = 4096;

// The kernel reads a byte for us: it says EFAULT where we would die.
bool can_read(uintptr_t page) {
  char byte;
  iovec here{&byte, 1}, there{reinterpret_cast<void*>(page), 1};
  const ssize_t read = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  return read == 1 || (read < 0 && errno != EFAULT);  // a system that forbids the question has to be trusted
}

}  // namespace

std::string_view Names::read(const char* text, size_t most) {
  const auto from = reinterpret_cast<uintptr_t>(text);
  for (uintptr_t at = from; at - from < most;) {
    const uintptr_t page = at & ~(kPage - 1);
    if (!readable(page)) return {};
    const size_t room = std::min<size_t>(page + kPage - at, most - (at - from));
    const size_t found = strnlen(reinterpret_cast<const char*>(at), room);
    at += found;
    if (found < room) return {text, at - from};
  }
  return {text, most};
}

bool Names::readable(uintptr_t page) {
  if (page == last_) return true;
  if (pages_.size() >= kPagesMax) pages_.clear();
  const auto [known, is_new] = pages_.try_emplace(page, false);
  if (is_new) known->second = can_read(page);
  if (known->second) last_ = page;
  return known->second;
}

}  // namespace profd::cupti
