// Values that stand one after the other, moved to the rows that have one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#define PROFD_EXPAND_AT_ONCE 1
#endif

namespace profd {

// Rows of which each may have a value, by a bit of `marks`; others are `absent`. `from` are the values, at or behind `to`,
// and `last` the last of them: what is not taken yet is not overwritten. Returns where the next values are.
template <typename U>
const U* expand(U* to, const U* from, const U* last, std::uint64_t marks, std::size_t rows, U absent) {
  for (std::size_t i = 0; i < rows; ++i, marks >>= 1) {
    const U value = *std::min<const U*>(from, last);               // behind the last value there is none to look at
    const U given = static_cast<U>(U{0} - static_cast<U>(marks & 1));  // all bits, or none: no branch
    to[i] = static_cast<U>((value & given) | (absent & static_cast<U>(~given)));
    from += marks & 1;
  }
  return from;
}

#ifdef PROFD_EXPAND_AT_ONCE

// The same of 64 rows.
__attribute__((target("avx512f"))) inline const std::int64_t* expand_64(std::int64_t* to, const std::int64_t* from,
                                                                        std::uint64_t marks, std::int64_t absent) {
  const __m512i none = _mm512_set1_epi64(absent);
  for (int i = 0; i < 64; i += 8, marks >>= 8) {
    const auto has = static_cast<__mmask8>(marks);
    const int values = std::popcount(has);
    const __m512i some = _mm512_maskz_loadu_epi64(static_cast<__mmask8>((1U << values) - 1), from);
    _mm512_storeu_si512(to + i, _mm512_mask_expand_epi64(none, has, some));
    from += values;
  }
  return from;
}

__attribute__((target("avx512f"))) inline const std::int32_t* expand_64(std::int32_t* to, const std::int32_t* from,
                                                                        std::uint64_t marks, std::int32_t absent) {
  const __m512i none = _mm512_set1_epi32(absent);
  for (int i = 0; i < 64; i += 16, marks >>= 16) {
    const auto has = static_cast<__mmask16>(marks);
    const int values = std::popcount(has);
    const __m512i some = _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1U << values) - 1), from);
    _mm512_storeu_si512(to + i, _mm512_mask_expand_epi32(none, has, some));
    from += values;
  }
  return from;
}

inline const bool kExpandsAtOnce = __builtin_cpu_supports("avx512f");

#endif

// The next rows, at most 64; as `expand`.
template <typename U>
const U* expand_some(U* to, const U* from, const U* last, std::uint64_t marks, std::size_t rows, U absent) {
  if (rows == 64 && !~marks) {
    std::memmove(to, from, 64 * sizeof(U));
    return from + 64;
  }
#ifdef PROFD_EXPAND_AT_ONCE
  if constexpr (std::is_same_v<U, std::int64_t> || std::is_same_v<U, std::int32_t>) {
    if (rows == 64 && kExpandsAtOnce) return expand_64(to, from, marks, absent);
  }
#endif
  return expand(to, from, last, marks, rows, absent);
}

}  // namespace profd
