#include "detach.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace profd::cupti {
namespace {

constexpr uint32_t kOldestSafe12 = 24;  // CUDA 12.6: before it, graphs crashed after cuptiFinalize
constexpr uint32_t kApiExit = 1;        // CUpti_ApiCallbackSite, the first field of what is called back with

// Never destroyed: CUPTI may call back while the process ends.
struct Detaching {
  std::mutex mutex;
  std::condition_variable changed;
  const Functions* cupti = nullptr;  // null: nobody waits
  bool done = false;
  Result result = kSuccess;
};

Detaching& detaching() {
  static Detaching* const one = new Detaching;
  return *one;
}

bool able(const Functions& cupti, uint32_t version) {
  return cupti.finalize && cupti.enable_domain && (version >= 10'000 || version >= kOldestSafe12);
}

void calls_back(const Functions& cupti, Subscriber subscriber, uint32_t on) {
  cupti.enable_domain(on, subscriber, kDomainRuntime);
  cupti.enable_domain(on, subscriber, kDomainDriver);
}

}  // namespace

const char* code_of(Detached detached) {
  switch (detached) {
    case Detached::Yes: return "gone";
    case Detached::NoCall: return "no_call";
    case Detached::Refused: return "refused";
    case Detached::Graphs: return "graphs";
    case Detached::Unknown: return "unknown";
  }
  return "unknown";
}

Detached detach(const Functions& cupti, Subscriber subscriber, uint32_t version, int milliseconds) {
  if (!able(cupti, version)) return Detached::Unknown;
  Detaching& one = detaching();
  {
    std::lock_guard lock(one.mutex);
    one.done = false;
    one.cupti = &cupti;
  }
  calls_back(cupti, subscriber, 1);
  {
    std::unique_lock lock(one.mutex);
    one.changed.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return one.done; });
    one.cupti = nullptr;  // from here on no call ends it
    if (one.done && one.result == kSuccess) return Detached::Yes;
  }
  calls_back(cupti, subscriber, 0);
  return one.done ? Detached::Refused : Detached::NoCall;
}

void on_call(void*, uint32_t, uint32_t, const void* data) {
  if (!data || *static_cast<const uint32_t*>(data) != kApiExit) return;
  Detaching& one = detaching();
  std::unique_lock lock(one.mutex, std::try_to_lock);  // another thread ends it, or nobody waits any more
  if (!lock || !one.cupti) return;
  one.result = one.cupti->finalize();
  one.cupti = nullptr;
  one.done = true;
  lock.unlock();
  one.changed.notify_all();
}

}  // namespace profd::cupti
