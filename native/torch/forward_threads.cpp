#include "forward_threads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace profd::torch_observer {
namespace {

constexpr uint64_t kNumbers = 1 << 16;  // of threads that a process ever has; those beyond stay numbers
std::atomic<uint32_t> os_ids[kNumbers];

}  // namespace

void name_this_thread(uint64_t number) {
  if (number < kNumbers) os_ids[number].store(static_cast<uint32_t>(syscall(SYS_gettid)), std::memory_order_relaxed);
}

uint64_t forward_thread(uint64_t number) {
  const uint32_t known = number < kNumbers ? os_ids[number].load(std::memory_order_relaxed) : 0;
  return known ? known : kUnknownThread | (number & (kUnknownThread - 1));
}

}  // namespace profd::torch_observer
