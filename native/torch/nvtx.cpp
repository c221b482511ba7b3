// PyTorch's operators told to NVTX, as torch's own emit_nvtx does, and in builds of torch without CUDA, too: each thread
// pushes "aten::mm, seq = 7", and what runs a backward function "MmBackward0, stashed seq = 7".
#include "nvtx.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace profd::torch_observer {
namespace {

NvtxTool tool;
std::mutex nvtx_control;
at::CallbackHandle nvtx_installed = at::INVALID_CALLBACK_HANDLE;

// [[2, 3], [], [4]]: sizes of tensors, [] for everything else.
std::string sizes_of(const at::RecordFunction& fn) {
  std::string text = "[";
  for (const c10::IValue& input : fn.inputs()) {
    if (text.size() > 1) text += ", ";
    text += '[';
    if (input.isTensor() && input.toTensor().defined() && !input.toTensor().is_nested()) {
      const char* before = "";
      for (const auto& size : input.toTensor().sym_sizes()) {
        const auto number = size.maybe_as_int();
        text += before + (number ? std::to_string(*number) : "?");
        before = ", ";
      }
    }
    text += ']';
  }
  return text + "]";
}

std::string title(const at::RecordFunction& fn, bool with_sizes) {
  std::string text = fn.name();
  if (fn.seqNr() >= 0) {
    text += fn.scope() == at::RecordScope::BACKWARD_FUNCTION ? ", stashed seq = " : ", seq = ";
    text += std::to_string(fn.seqNr());
  }
  if (with_sizes) text += ", sizes = " + sizes_of(fn);
  return text;
}

struct Pushed : at::ObserverContext {
  std::thread::id by = std::this_thread::get_id();
};

template <bool with_sizes>
std::unique_ptr<at::ObserverContext> nvtx_begin(const at::RecordFunction& fn) {
  if (fn.isAsync()) return nullptr;  // it may end on another thread, which could not pop it
  tool.push(title(fn, with_sizes).c_str());
  return std::make_unique<Pushed>();
}

void nvtx_end(const at::RecordFunction&, at::ObserverContext* pushed) {
  if (pushed && static_cast<Pushed*>(pushed)->by == std::this_thread::get_id()) tool.pop();
}

}  // namespace

void start_nvtx(const NvtxTool& told, bool with_sizes) {
  const std::lock_guard<std::mutex> guard(nvtx_control);
  if (nvtx_installed != at::INVALID_CALLBACK_HANDLE) throw std::runtime_error("emit_nvtx is on already");
  tool = told;
  using Scope = at::RecordScope;
  at::RecordFunctionCallback made(with_sizes ? nvtx_begin<true> : nvtx_begin<false>, nvtx_end);
  made.needsInputs(with_sizes)
      .scopes({Scope::FUNCTION, Scope::BACKWARD_FUNCTION, Scope::TORCHSCRIPT_FUNCTION, Scope::USER_SCOPE});
  nvtx_installed = at::addGlobalCallback(made);
}

void stop_nvtx() {
  const std::lock_guard<std::mutex> guard(nvtx_control);
  if (nvtx_installed == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(nvtx_installed);
  nvtx_installed = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace profd::torch_observer
