#include "axpby.h"

#include <complex>
#include <cstdint>

#include "half_types.h"

namespace softipu {

namespace {

// Sums are the common case, and must be exact where a product with 1.0f would not be (int64).
template <typename Number>
void Exact(size_t count, float alpha, const void* from, float beta, void* to) {
  const auto* x = static_cast<const Number*>(from);
  auto* y = static_cast<Number*>(to);
  if (alpha == 1.0f && beta == 1.0f) {
    for (size_t n = 0; n < count; ++n) y[n] += x[n];
    return;
  }
  const auto a = static_cast<Number>(alpha), b = static_cast<Number>(beta);
  for (size_t n = 0; n < count; ++n) y[n] = a * x[n] + b * y[n];
}

// Half precision: computed in float32, rounded once.
template <typename Number>
void Half(size_t count, float alpha, const void* from, float beta, void* to) {
  const auto* x = static_cast<const Number*>(from);
  auto* y = static_cast<Number*>(to);
  for (size_t n = 0; n < count; ++n) {
    y[n] = Rounded<Number>(alpha * static_cast<float>(x[n]) + beta * static_cast<float>(y[n]));
  }
}

using Loop = void (*)(size_t, float, const void*, float, void*);

Loop LoopOf(C_DataType type) {
  switch (type) {
    case FLOAT32:
      return Exact<float>;
    case FLOAT64:
      return Exact<double>;
    case INT32:
      return Exact<int32_t>;
    case INT64:
      return Exact<int64_t>;
    case COMPLEX64:
      return Exact<std::complex<float>>;
    case COMPLEX128:
      return Exact<std::complex<double>>;
    case FLOAT16:
      return Half<Float16>;
    case BFLOAT16:
      return Half<Bfloat16>;
    default:
      return nullptr;
  }
}

}  // namespace

bool Axpby(C_DataType type, size_t count, float alpha, const void* x, float beta, void* y) {
  const Loop loop = LoopOf(type);
  if (loop == nullptr) return false;
  loop(count, alpha, x, beta, y);
  return true;
}

}  // namespace softipu
