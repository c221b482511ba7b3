// A RecordFunction callback that does nothing: what torch itself adds to an op for being observed.
#include <ATen/record_function.h>

namespace {

using Scope = at::RecordScope;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) { return nullptr; }
void end(const at::RecordFunction&, at::ObserverContext*) {}

at::CallbackHandle installed = at::INVALID_CALLBACK_HANDLE;

}  // namespace

extern "C" __attribute__((visibility("default"))) void floor_start(int inputs) {
  at::RecordFunctionCallback callback(begin, end);
  callback.needsInputs(inputs != 0)
      .scopes({Scope::FUNCTION, Scope::BACKWARD_FUNCTION, Scope::TORCHSCRIPT_FUNCTION, Scope::USER_SCOPE});
  installed = at::addGlobalCallback(callback);
}

extern "C" __attribute__((visibility("default"))) void floor_stop() { at::removeCallback(installed); }
