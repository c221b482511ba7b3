// Where in TorchScript an op runs: string ids, 0 outside of TorchScript.
#pragma once

#include "../recorder/writer.h"

namespace profd::torch_observer {

// Frames joined by ';', innermost first, as torch.profiler joins them.
uint32_t script_stack(const recorder::Api& api, recorder::Thread* thread, recorder::Session session);

// Instances and methods joined by '.', outermost first.
uint32_t script_module(const recorder::Api& api, recorder::Thread* thread, recorder::Session session);

}  // namespace profd::torch_observer
