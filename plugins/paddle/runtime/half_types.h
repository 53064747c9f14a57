// Half-precision numbers as they lie in tensors; arithmetic is done in float32 and rounded once.
#pragma once

#include <cstdint>
#include <cstring>

namespace softipu {

// IEEE's half precision. GCC knows _Float16 in C++ on aarch64 from version 13 on only.
#if defined(__aarch64__)
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif

// The upper half of a float32, rounded to nearest even.
struct Bfloat16 {
  uint16_t bits;

  operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }

  static Bfloat16 From(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    if (value != value) return {static_cast<uint16_t>((wide >> 16) | 0x40)};
    return {static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16)};
  }
};

template <typename Number>
Number Rounded(float value) {
  return static_cast<Number>(value);
}

template <>
inline Bfloat16 Rounded<Bfloat16>(float value) {
  return Bfloat16::From(value);
}

}  // namespace softipu
