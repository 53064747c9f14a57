#include "conversions.h"

#include <cstring>

#include "paddle/phi/common/float16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace softipu {
namespace {

using phi::dtype::float16;

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

void HalfToFloatPlain(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<float>(phi::dtype::raw_uint16_to_float16(from[i]));
}

void HalfFromFloatPlain(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = float16(from[i]).x;
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void HalfToFloatF16c(const uint16_t* from, float* to,
                                                          int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
  }
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i]);
}

__attribute__((target("avx,f16c"))) void HalfFromFloatF16c(const float* from, uint16_t* to,
                                                            int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
  }
  for (; i < count; ++i) to[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}

bool HasF16c() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
#endif

void HalfToFloat(const uint16_t* from, float* to, int64_t count) {
#if defined(__x86_64__)
  if (HasF16c()) return HalfToFloatF16c(from, to, count);
#endif
  HalfToFloatPlain(from, to, count);
}

void HalfFromFloat(const float* from, uint16_t* to, int64_t count) {
#if defined(__x86_64__)
  if (HasF16c()) return HalfFromFloatF16c(from, to, count);
#endif
  HalfFromFloatPlain(from, to, count);
}

void BrainToFloat(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void BrainFromFloat(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = Bits(from[i]);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    to[i] = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40 : rounded);
  }
}

}  // namespace

void ToFloat(phi::DataType type, const void* from, float* to, int64_t count) {
  auto* bits = static_cast<const uint16_t*>(from);
  type == phi::DataType::FLOAT16 ? HalfToFloat(bits, to, count) : BrainToFloat(bits, to, count);
}

void FromFloat(phi::DataType type, const float* from, void* to, int64_t count) {
  auto* bits = static_cast<uint16_t*>(to);
  type == phi::DataType::FLOAT16 ? HalfFromFloat(from, bits, count)
                                 : BrainFromFloat(from, bits, count);
}

}  // namespace softipu
