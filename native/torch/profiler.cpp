#include "profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <set>
#include <stdexcept>

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
  // Without memory, stacks and modules: in all-thread mode the first records nothing, and the others are the tracer's.
  const ProfilerConfig config(ProfilerState::KINETO, shapes || flops, false, false, flops, false, experimental);
  torch::autograd::profiler::prepareProfiler(config, activities(devices));
  torch::autograd::profiler::enableProfiler(config, activities(devices));
}

void stop_profiler(const std::string& path) {
  const auto result = torch::autograd::profiler::disableProfiler();
  // A profiler that somebody else has started meanwhile leaves ours without events; such a result must not be exported.
  if (result->events().empty()) {
    throw std::runtime_error("it recorded nothing: no operator ran, or another torch profiler ran meanwhile");
  }
  result->save(path);
}

}  // namespace profd::torch_observer
