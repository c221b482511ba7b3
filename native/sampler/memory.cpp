#include "memory.h"

#include <algorithm>
#include <cerrno>

#include "words.h"

namespace profd::sampler {
namespace {

constexpr std::size_t kPlacesAtOnce = 1024;  // UIO_MAXIOV

}  // namespace

void Batch::clear() {
  total_ = 0;
  there_.clear();
  starts_.clear();
  read_.clear();
}

std::size_t Batch::add(std::uint64_t address, std::size_t bytes) {
  if (total_ + bytes > kBatchBytesMax) bytes = 0;
  there_.push_back({reinterpret_cast<void*>(address), bytes});
  starts_.push_back(total_);
  read_.push_back(0);
  total_ += bytes;
  return there_.size() - 1;
}

bool Batch::run() {
  if (room_.size() < total_) room_.resize(total_);
  std::size_t failures = 0;
  for (std::size_t first = 0; first < there_.size();) {
    if (g_stop != 0) return false;
    const std::size_t count = std::min(there_.size() - first, kPlacesAtOnce);
    const std::size_t behind = first + count < there_.size() ? starts_[first + count] : total_;
    const iovec here{room_.data() + starts_[first], behind - starts_[first]};
    const ssize_t got = here.iov_len == 0 ? 0 : ::process_vm_readv(process_, &here, 1, &there_[first], count, 0);
    if (got < 0 && errno != EFAULT) return false;
    std::size_t left = got < 0 ? 0 : static_cast<std::size_t>(got);
    std::size_t next = first;
    while (next < first + count && there_[next].iov_len <= left) {
      left -= there_[next].iov_len;
      read_[next] = there_[next].iov_len > 0;
      ++next;
    }
    if (next < first + count) {  // the kernel stops at the first place that is not there
      if (++failures > kBatchFailuresMax) return true;
      ++next;
    }
    first = next;
  }
  return true;
}

bool read_place(pid_t process, std::uint64_t address, void* into, std::size_t bytes) {
  return address != 0 && read_memory(process, address, into, bytes) == bytes;
}

}  // namespace profd::sampler
