// C++ symbols (_Z…) to what they were written as.
//
// A name of 200 bytes can stand for one of gigabytes: a type that is a pair of a pair of a pair. abi::__cxa_demangle
// writes all of it into memory; libstdc++'s own demangler behind it hands out piece by piece, so that it can be left.
// It is C and, with a callback, allocates nothing: a longjmp leaves it whole. It is in the static archive only.
// How long it may take before it hands out anything is symbol.h's matter.
#include "demangle.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "symbol.h"

#ifdef PROFD_DEMANGLER
extern "C" int __gcclibcxx_demangle_callback(const char* mangled, void (*piece)(const char*, std::size_t, void*),
                                             void* opaque);
#endif

namespace profd {
namespace {

namespace nb = nanobind;

#ifdef PROFD_DEMANGLER

struct Output {
  std::jmp_buf too_long;
  char* at;
  std::size_t room;
};

void take(const char* piece, std::size_t size, void* opaque) {
  Output& output = *static_cast<Output*>(opaque);
  if (size > output.room) std::longjmp(output.too_long, 1);
  std::memcpy(output.at, piece, size);
  output.at += size;
  output.room -= size;
}

// Whether `buffer` has the whole of it; `size` is then how much. No destructor may stand between the jump and here.
bool demangled(const char* name, char* buffer, std::size_t room, std::size_t* size) {
  Output output;
  output.at = buffer;
  output.room = room;
  if (setjmp(output.too_long) != 0) return false;
  if (__gcclibcxx_demangle_callback(name, &take, &output) != 0) return false;
  *size = static_cast<std::size_t>(output.at - buffer);
  return true;
}

void demangle_all(std::vector<std::string>& names, std::size_t name_max, std::size_t result_max) {
  std::vector<char> buffer(result_max);
  for (std::string& name : names) {
    // A zero byte would end it early, and the rest of it be lost.
    if (name.size() > name_max || name.find('\0') != std::string::npos || !is_plain_symbol(name)) continue;
    std::size_t size = 0;
    if (demangled(name.c_str(), buffer.data(), buffer.size(), &size)) name.assign(buffer.data(), size);
  }
}

#else

void demangle_all(std::vector<std::string>&, std::size_t, std::size_t) {}

#endif

std::vector<std::string> demangle(std::vector<std::string> names, std::size_t name_max, std::size_t result_max) {
  nb::gil_scoped_release release;
  demangle_all(names, name_max, result_max);
  return names;
}

}  // namespace

void bind_demangle(nb::module_& m) {
#ifdef PROFD_DEMANGLER
  m.attr("demangles") = true;
#else
  m.attr("demangles") = false;
#endif
  m.def("demangle", &demangle, nb::arg("names"), nb::kw_only(), nb::arg("name_max"), nb::arg("result_max"));
}

}  // namespace profd
