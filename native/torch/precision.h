// Whether cuBLAS may multiply float32 matrices in TF32 (torch.backends.cuda.matmul.allow_tf32).
#pragma once

#include <string_view>

namespace profd::torch_observer {

// The operators that the setting is about: they are asked for it each time, no other is.
bool multiplies_matrices(std::string_view op);

// As it is set now; false where torch cannot say. Never throws.
bool allows_tf32();

}  // namespace profd::torch_observer
