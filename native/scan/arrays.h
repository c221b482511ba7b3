// What the bindings make of vectors, texts and counts.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace profd::scan {

// A numpy array that owns the vector: no copy.
template <typename T, typename Allocator>
nanobind::object array(std::vector<T, Allocator>&& values) {
  namespace nb = nanobind;
  using Vector = std::vector<T, Allocator>;
  auto* const owned = new Vector(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<Vector*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

// A str; what is not UTF-8 is replaced.
inline nanobind::object text(std::string_view s) {
  return nanobind::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

inline nanobind::dict counts(const std::map<std::string, std::uint64_t>& values) {
  nanobind::dict out;
  for (const auto& [name, count] : values) out[name.c_str()] = count;
  return out;
}

}  // namespace profd::scan
