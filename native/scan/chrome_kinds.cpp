#include "chrome_kinds.h"

#include <string>
#include <utility>

namespace profd::scan {

Category categorize(std::string_view cat) {
  struct Known {
    std::string_view name;
    Kind kind;
    DeviceType device;
  };
  constexpr DeviceType kCpu = DeviceType::kCpu;
  constexpr DeviceType kAccelerator = DeviceType::kOther;
  // Kineto's activity types (libkineto/src/ActivityType.cpp) and their names of 2021.
  static constexpr Known kKnown[] = {
      {"cpu_op", Kind::kCpuOp, kCpu},
      {"operator", Kind::kCpuOp, kCpu},
      {"user_annotation", Kind::kUserAnnotation, kCpu},
      {"python_function", Kind::kPythonFunction, kCpu},
      {"python", Kind::kPythonFunction, kCpu},
      {"python function", Kind::kPythonFunction, kCpu},
      {"cpu_instant_event", Kind::kInstant, kCpu},
      {"runtime", Kind::kRuntime, kCpu},
      {"cuda_runtime", Kind::kRuntime, kCpu},
      {"hip_runtime", Kind::kRuntime, kCpu},
      {"roc_runtime", Kind::kRuntime, kCpu},
      {"xpu_runtime", Kind::kRuntime, kCpu},
      {"mtia_runtime", Kind::kRuntime, kCpu},
      {"glow_runtime", Kind::kRuntime, kCpu},
      {"privateuse1_runtime", Kind::kRuntime, kCpu},
      {"driver", Kind::kDriver, kCpu},
      {"cuda_driver", Kind::kDriver, kCpu},
      {"hip_driver", Kind::kDriver, kCpu},
      {"xpu_driver", Kind::kDriver, kCpu},
      {"privateuse1_driver", Kind::kDriver, kCpu},
      {"kernel", Kind::kKernel, kAccelerator},
      {"concurrent_kernel", Kind::kKernel, kAccelerator},
      {"memcpy", Kind::kMemcpy, kAccelerator},
      {"gpu_memcpy", Kind::kMemcpy, kAccelerator},
      {"memset", Kind::kMemset, kAccelerator},
      {"gpu_memset", Kind::kMemset, kAccelerator},
      {"cuda_sync", Kind::kSync, kAccelerator},
      {"gpu_user_annotation", Kind::kGpuUserAnnotation, kAccelerator},
      {"overhead", Kind::kOverhead, kCpu},
      {"trace", Kind::kTrace, kCpu},
  };
  std::string lower(cat.substr(0, 64));
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  Category out;
  for (const auto& [prefix, device] : {std::pair{"hip_", DeviceType::kHip}, {"roc_", DeviceType::kHip},
                                       {"xpu_", DeviceType::kXpu}, {"mtia_", DeviceType::kMtia}}) {
    if (lower.starts_with(prefix)) out.device = out.implies = device;
  }
  if (lower.starts_with("gpu_")) out.device = kAccelerator;
  for (const Known& known : kKnown) {
    if (known.name == lower) out.kind = known.kind, out.device = known.device, out.known = true;
  }
  return out;
}

}  // namespace profd::scan
