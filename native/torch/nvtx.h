// PyTorch's operators as NVTX ranges of another tool.
#pragma once

namespace profd::torch_observer {

struct NvtxTool {
  void (*push)(const char* name);
  void (*pop)();
};

// Tells it of every operator on every thread that begins from now on; `with_sizes`: of its inputs, too. Throws if it is
// on already.
void start_nvtx(const NvtxTool& told, bool with_sizes);
void stop_nvtx();

}  // namespace profd::torch_observer
