// CUDA events for a torch that has no CUDA: each is a number, one more than the one before, and the time between two is
// what lies between their numbers, in us. Registers itself when it is loaded.
#include <torch/csrc/profiler/stubs/base.h>

#include <atomic>
#include <memory>
#include <stdexcept>

namespace {

using namespace torch::profiler::impl;

std::atomic<int> recorded{0};
std::atomic<bool> fails{false};

struct FakeEvents : ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t*) const override {
    if (fails) throw std::runtime_error("out of memory");
    if (device) *device = 3;
    *event = std::make_shared<int>(recorded++);
  }
  float elapsed(const ProfilerVoidEventStub* from, const ProfilerVoidEventStub* to) const override {
    return static_cast<float>(*static_cast<int*>(to->get()) - *static_cast<int*>(from->get()));
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}
};

FakeEvents fake;
const bool registered = (registerCUDAMethods(&fake), true);

}  // namespace

extern "C" __attribute__((visibility("default"))) void fake_events_fail(int whether) { fails = whether != 0; }
