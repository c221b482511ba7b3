// Which C++ symbols the demangler may be given.
#pragma once

#include <cstddef>
#include <string_view>

namespace profd {

// Whether a mangled name (Itanium C++ ABI, _Z…) is in the part of the grammar that takes linear time to parse.
//
// libstdc++'s demangler goes back and tries again where a name holds expressions (decltype, conversion operators,
// expansions of more than a parameter): 112 bytes of them can keep it busy for hours. What kernels and functions are
// commonly called has none: nested and local names, templates with types and literals, packs, lambdas, clones.
// It recurses as deep as the name is nested, so no more often than the name has bytes: limit them first.
bool is_plain_symbol(std::string_view name);

}  // namespace profd
