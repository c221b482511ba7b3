#include "devices.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>

#include <dlfcn.h>
#include <pthread.h>

namespace profd::cupti {
namespace {

constexpr int kDevicesMax = 64;

struct Driver {
  int (*device_count)(int*);
  int (*primary_state)(int device, unsigned* flags, int* active);
  int (*primary_retain)(void** context, int device);
  int (*primary_release)(int device);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*synchronize)();
};

template <typename F>
bool resolve_driver(void* handle, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(handle, name));
  return function != nullptr;
}

bool resolve_all_of_driver(Driver& to) {
  void* handle = driver();
  return handle && resolve_driver(handle, "cuDeviceGetCount", to.device_count) &&
         resolve_driver(handle, "cuDevicePrimaryCtxGetState", to.primary_state) &&
         resolve_driver(handle, "cuDevicePrimaryCtxRetain", to.primary_retain) &&
         resolve_driver(handle, "cuDevicePrimaryCtxRelease_v2", to.primary_release) &&
         resolve_driver(handle, "cuCtxPushCurrent_v2", to.push) && resolve_driver(handle, "cuCtxPopCurrent_v2", to.pop) &&
         resolve_driver(handle, "cuCtxSynchronize", to.synchronize);
}

// A CUresult; 0 also for a device that this process does not use.
int wait_for(const Driver& cuda, int device) {
  unsigned flags = 0;
  int active = 0;
  void* context = nullptr;
  if (cuda.primary_state(device, &flags, &active) != 0 || !active) return 0;
  if (const int error = cuda.primary_retain(&context, device)) return error;
  int error = cuda.push(context);
  if (!error) {
    error = cuda.synchronize();
    cuda.pop(&context);
  }
  cuda.primary_release(device);
  return error;
}

// Shared with a thread that may never come back: whoever is last frees it.
struct Wait {
  Driver cuda{};
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  Waited result;
};

void* run_wait(void* argument) {
  const std::unique_ptr<std::shared_ptr<Wait>> own(static_cast<std::shared_ptr<Wait>*>(argument));
  Wait& wait = **own;
  Waited found;
  int count = 0;
  if (wait.cuda.device_count(&count) != 0) count = 0;
  for (int device = 0; device < count && device < kDevicesMax && found.error == 0; device++)
    if ((found.error = wait_for(wait.cuda, device)) != 0) found.device = device;
  std::lock_guard lock(wait.mutex);
  wait.result = found;
  wait.done = true;
  wait.ended.notify_all();
  return nullptr;
}

bool start(const std::shared_ptr<Wait>& wait) {
  auto* argument = new std::shared_ptr<Wait>(wait);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, nullptr, run_wait, argument) == 0;
  if (started) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) delete argument;
  return started;
}

}  // namespace

void* driver() { return dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL); }

Waited wait_for_devices(int seconds) {
  const auto wait = std::make_shared<Wait>();
  if (!resolve_all_of_driver(wait->cuda)) return {};
  if (!start(wait)) return {.ended = false, .device = -1, .error = 0};
  std::unique_lock lock(wait->mutex);
  if (wait->ended.wait_for(lock, std::chrono::seconds(seconds), [&] { return wait->done; })) return wait->result;
  return {.ended = false, .device = -1, .error = 0};
}

}  // namespace profd::cupti
