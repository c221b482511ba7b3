#include "state.h"

namespace profd::cupti {

constexpr std::string_view kNoName = "<not provided>";  // as CUPTI 13 names it

std::string_view code_of(State state) {
  switch (state) {
    case State::Ok: return "ok";
    case State::NoDriver: return "no_driver";
    case State::NoCupti: return "no_cupti";
    case State::UnknownCupti: return "unknown_cupti";
    case State::DriverMismatch: return "driver_mismatch";
    case State::ForeignSubscriber: return "foreign_subscriber";
    case State::NoPrivilege: return "no_privilege";
    case State::Unsupported: return "unsupported";
    case State::ForeignClock: return "foreign_clock";
    case State::Forked: return "forked";
    case State::Failed: return "failed";
    case State::NoKernels: return "no_kernels";
    case State::TakenOver: return "taken_over";
    case State::GpuLost: return "gpu_lost";
    case State::StillRunning: return "still_running";
  }
  return "failed";
}

State state_of(Result result) {
  switch (result) {
    case kSuccess: return State::Ok;
    case kOtherSubscriber:
    case kNotCompatible: return State::ForeignSubscriber;
    case kNoPrivilege:
    case kVirtualizedNoPrivilege: return State::NoPrivilege;
    case kNotInitialized: return State::DriverMismatch;
    case kVirtualized:
    case kConfidential:
    case kMining:
    case kMig:
    case kWsl: return State::Unsupported;
    default: return State::Failed;
  }
}

std::string sentence_of(State state, const std::string& described, const std::string& holder) {
  switch (state) {
    case State::ForeignSubscriber:
      if (holder.find(kNoName) != std::string::npos)
        return "another profiler holds CUPTI in this process, one that gives CUPTI no name: PyTorch's gives none, and keeps "
               "CUPTI until the process ends";
      return "another profiler holds CUPTI in this process" + (holder.empty() ? "" : ": " + holder) +
             ", stop it, or start the process without it";
    case State::NoPrivilege:
      return "the driver lets only administrators profile (NVreg_RestrictProfilingToAdminUsers=0 allows everybody): " +
             described;
    case State::DriverMismatch:
      return "CUPTI does not work with this driver: " + described +
             ", install the nvidia-cuda-cupti of the driver's CUDA version or an older one";
    case State::Unsupported:
      return "CUPTI does not trace on this kind of device (a MIG slice, a virtual GPU, confidential computing, WSL): " +
             described + ", use a whole GPU, or let its administrator allow profiling";
    default: return "CUPTI does not work: " + described;
  }
}

}  // namespace profd::cupti
