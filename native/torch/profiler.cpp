#include "profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <set>

namespace profd::torch_observer {
namespace {

using torch::profiler::impl::ActivityType;

std::set<ActivityType> activities(bool devices) {
  std::set<ActivityType> wanted{ActivityType::CPU};
  if (devices) wanted.insert(ActivityType::CUDA);
  return wanted;
}

}  // namespace

void start_profiler(bool shapes, bool flops, bool devices) {
  using namespace torch::profiler::impl;
  ExperimentalConfig experimental;
  experimental.profile_all_threads = true;
  experimental.trace_only = true;  // the file is all that is wanted
  // Without memory, stacks and modules: in all-thread mode the first records nothing, and the others are the tracer's.
  const ProfilerConfig config(ProfilerState::KINETO, shapes || flops, false, false, flops, false, experimental);
  torch::autograd::profiler::prepareProfiler(config, activities(devices));
  torch::autograd::profiler::enableProfiler(config, activities(devices));
}

void stop_profiler(const std::string& path) { torch::autograd::profiler::disableProfiler()->save(path); }

}  // namespace profd::torch_observer
