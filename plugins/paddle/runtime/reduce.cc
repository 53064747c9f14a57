#include "reduce.h"

#include <algorithm>
#include <cstdint>

#include "half_types.h"

namespace softipu {

namespace {

// In what a type computes: half precision in float32, all others in themselves.
template <typename Number>
struct Wide {
  using Type = Number;
  static Number Narrow(Number value) { return value; }
};

template <>
struct Wide<Float16> {
  using Type = float;
  static Float16 Narrow(float value) { return Rounded<Float16>(value); }
};

template <>
struct Wide<Bfloat16> {
  using Type = float;
  static Bfloat16 Narrow(float value) { return Rounded<Bfloat16>(value); }
};

template <typename Number, typename Operation>
void Each(size_t count, const void* from, void* to, const Operation& operation) {
  using Type = typename Wide<Number>::Type;
  const auto* x = static_cast<const Number*>(from);
  auto* y = static_cast<Number*>(to);
  for (size_t n = 0; n < count; ++n) {
    y[n] = Wide<Number>::Narrow(operation(static_cast<Type>(y[n]), static_cast<Type>(x[n])));
  }
}

struct CombineLoop {
  C_CCLReduceOp op;
  const void* from;
  void* to;

  template <typename Number>
  void Run(size_t count) const {
    using Type = typename Wide<Number>::Type;
    const auto result = [](auto value) { return static_cast<Type>(value); };
    switch (op) {
      case MAX:
        return Each<Number>(count, from, to, [](Type a, Type b) { return std::max(a, b); });
      case MIN:
        return Each<Number>(count, from, to, [](Type a, Type b) { return std::min(a, b); });
      case PRODUCT:
        return Each<Number>(count, from, to, [&](Type a, Type b) { return result(a * b); });
      default:
        return Each<Number>(count, from, to, [&](Type a, Type b) { return result(a + b); });
    }
  }
};

struct DivideLoop {
  size_t by;
  void* numbers;

  template <typename Number>
  void Run(size_t count) const {
    using Type = typename Wide<Number>::Type;
    const auto divisor = static_cast<Type>(by);
    Each<Number>(count, numbers, numbers,
                 [divisor](Type a, Type) { return static_cast<Type>(a / divisor); });
  }
};

// Runs a loop with the C++ type that stands for a tensor's; false if there is none.
template <typename Loop>
bool WithType(C_DataType type, size_t count, const Loop& loop) {
  switch (type) {
    case FLOAT32:
      loop.template Run<float>(count);
      return true;
    case FLOAT64:
      loop.template Run<double>(count);
      return true;
    case FLOAT16:
      loop.template Run<Float16>(count);
      return true;
    case BFLOAT16:
      loop.template Run<Bfloat16>(count);
      return true;
    case INT64:
      loop.template Run<int64_t>(count);
      return true;
    case INT32:
      loop.template Run<int32_t>(count);
      return true;
    case INT16:
      loop.template Run<int16_t>(count);
      return true;
    case INT8:
      loop.template Run<int8_t>(count);
      return true;
    case UINT8:
    case BOOL:
      loop.template Run<uint8_t>(count);
      return true;
    default:
      return false;
  }
}

}  // namespace

size_t SizeOf(C_DataType type) {
  switch (type) {
    case BOOL:
    case UINT8:
    case INT8:
      return 1;
    case INT16:
    case FLOAT16:
    case BFLOAT16:
      return 2;
    case INT32:
    case FLOAT32:
      return 4;
    case INT64:
    case FLOAT64:
      return 8;
    default:
      return 0;
  }
}

void Combine(C_DataType type, C_CCLReduceOp op, size_t count, const void* from, void* to) {
  WithType(type, count, CombineLoop{op, from, to});
}

void Divide(C_DataType type, size_t count, size_t by, void* numbers) {
  WithType(type, count, DivideLoop{by, numbers});
}

}  // namespace softipu
