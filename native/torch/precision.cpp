#include "precision.h"

#include <ATen/Context.h>
#include <torch/version.h>

#include <algorithm>

namespace profd::torch_observer {

bool multiplies_matrices(std::string_view op) {
  constexpr std::string_view kAll[] = {"aten::mm",     "aten::addmm",  "aten::bmm",
                                       "aten::baddbmm", "aten::addbmm", "aten::_addmm_activation"};
  return std::find(std::begin(kAll), std::end(kAll), op) != std::end(kAll);
}

bool allows_tf32() try {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
  // Not allowTF32CuBLAS(): it raises where a program has used the older and the newer of torch's settings.
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
#else
  return at::globalContext().allowTF32CuBLAS();
#endif
} catch (...) {
  return false;
}

}  // namespace profd::torch_observer
