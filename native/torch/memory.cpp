#include "memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <stdexcept>

#include "contexts.h"
#include "live_blocks.h"
#include "memory_record.h"

namespace profd::torch_observer {
namespace {

using arena::Kind;
using arena::Slot;

constexpr uint8_t kCpu = 1;  // DeviceType of daemon/profd/events/schema.py

const recorder::Api* told = nullptr;
LiveBlocks blocks;
std::atomic<int64_t> allocated{0};  // since the capture began: what was there before is not known

void record(Kind kind, const void* address, int64_t bytes) {
  const recorder::Session session = recorder::session_of(*told, recorder::kMemory);
  if (!session) return;
  recorder::Thread* thread = recorder::current_thread(*told, local.recorder_slot);
  if (!thread) return;
  MemoryRecord extension;
  extension.device_type = kCpu;
  const int64_t change = kind == Kind::Alloc ? bytes : 0;
  extension.total_allocated = allocated.fetch_add(change, std::memory_order_relaxed) + change;
  Slot slot{};
  recorder::set_head(&slot, arena::kNoName, kind, 0, 0, 0);
  slot.payload = static_cast<uint64_t>(bytes);
  slot.end = reinterpret_cast<uint64_t>(address);
  slot.start = recorder::ticks(*told);
  recorder::append(*told, thread, session, slot, &extension, sizeof extension);
}

void free_block(void* address);

// Everything is left to torch's own allocator but the deleter: context and data stay the same pointer, as torch's code
// that asks for "simple" pointers expects.
class Recording final : public c10::Allocator {
 public:
  explicit Recording(c10::Allocator* original) : original_(original), deleter_(original->raw_deleter()) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = allocate_or_tell(bytes);
    void* address = block.get();
    if (!address || block.get_context() != address) return block;
    if (!blocks.add(address, bytes)) {
      told->lose(recorder::Lost::TooLarge, 1);
      return block;
    }
    if (!block.compare_exchange_deleter(deleter_, free_block)) {
      blocks.take(address);
      return block;
    }
    record(Kind::Alloc, address, static_cast<int64_t>(bytes));
    return block;
  }

  c10::DeleterFnPtr raw_deleter() const override { return deleter_ ? free_block : nullptr; }
  bool is_simple_data_ptr(const c10::DataPtr& block) const override { return original_->is_simple_data_ptr(block); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { original_->copy_data(to, from, bytes); }

  c10::Allocator* original() const { return original_; }
  c10::DeleterFnPtr deleter() const { return deleter_; }

 private:
  c10::DataPtr allocate_or_tell(size_t bytes) try {
    return original_->allocate(bytes);
  } catch (...) {
    record(Kind::OutOfMemory, nullptr, static_cast<int64_t>(bytes));
    throw;
  }

  c10::Allocator* const original_;
  const c10::DeleterFnPtr deleter_;
};

// Never destroyed: blocks that came through it live as long as they like.
Recording* wrapper = nullptr;

void free_block(void* address) {
  if (const auto bytes = blocks.take(address); bytes >= 0) record(Kind::Alloc, address, -bytes);
  wrapper->deleter()(address);
}

std::mutex switching;  // free in a child of a fork, which gives torch its allocator back

void prepare_memory_forks() {
  static const int once = pthread_atfork([] { switching.lock(); }, [] { switching.unlock(); }, [] { switching.unlock(); });
  (void)once;
}

}  // namespace

void start_memory(const recorder::Api& recorder_api) {
  prepare_memory_forks();
  const std::lock_guard<std::mutex> guard(switching);
  c10::Allocator* current = c10::GetCPUAllocator();
  if (wrapper && current == wrapper) return;
  if (!current->raw_deleter()) {
    throw std::runtime_error("torch's CPU allocator has been replaced by one that cannot be followed");
  }
  if (wrapper && wrapper->original() != current) {
    throw std::runtime_error("torch's CPU allocator has been replaced since the first capture with memory");
  }
  told = &recorder_api;
  prepare_contexts();
  if (!wrapper) wrapper = new Recording(current);
  allocated.store(0, std::memory_order_relaxed);
  // Priority 0 replaces torch's own and lets itself be replaced; a higher one could never be taken back.
  c10::SetCPUAllocator(wrapper, 0);
  if (c10::GetCPUAllocator() != wrapper) {
    throw std::runtime_error("another CPU allocator was set in torch with a priority of its own");
  }
}

void stop_memory() {
  const std::lock_guard<std::mutex> guard(switching);
  if (wrapper && c10::GetCPUAllocator() == wrapper) c10::SetCPUAllocator(wrapper->original(), 0);
}

}  // namespace profd::torch_observer
