// One-dimensional numpy arrays in and out, and the checks every kernel makes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace profd {

namespace nb = nanobind;

template <typename T>
using In = nb::ndarray<const T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using InOut = nb::ndarray<T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
using AnyColumn = nb::ndarray<nb::ro, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The sentinels of events/schema.py.
inline constexpr std::int64_t kNoRow = -1;
inline constexpr std::int64_t kAbsent = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// Times may be anything an int64 can hold, so differences saturate.
inline std::int64_t minus(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (!__builtin_sub_overflow(a, b, &result)) return result;
  return b < 0 ? kForever : kAbsent + 1;
}

inline std::int64_t plus(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (!__builtin_add_overflow(a, b, &result)) return result;
  return b > 0 ? kForever : kAbsent + 1;
}

inline void require(bool holds, const char* message) {
  if (!holds) throw nb::value_error(message);
}

// numpy makes contiguous arrays that are not aligned: np.frombuffer at an odd offset.
template <typename T>
void require_aligned(const In<T>& column, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(column.data()) % alignof(T) == 0) return;
  const std::string message = std::string(what) + " is not aligned in memory: copy it first";
  throw nb::value_error(message.c_str());
}

template <typename T>
void require_column(const In<T>& column, std::size_t expected, const char* what) {
  if (column.shape(0) != expected) {
    const std::string message = std::string(what) + " has " + std::to_string(column.shape(0)) +
                                " rows where " + std::to_string(expected) + " are expected";
    throw nb::value_error(message.c_str());
  }
  require_aligned(column, what);
}

// An uninitialised result of n rows. numpy owns it once array() is called.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t n) : data_(new T[n ? n : 1]), n_(n) {}
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return n_; }

  // Needs the GIL; the buffer is empty afterwards.
  Out<T> array() {
    T* raw = data_.get();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    data_.release();
    return Out<T>(raw, {n_}, owner);
  }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t n_;
};

template <typename T>
Out<T> to_array(const std::vector<T>& values) {
  Buffer<T> copy(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) copy[i] = values[i];
  return copy.array();
}

}  // namespace profd
