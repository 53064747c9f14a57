// Kernels of ours for ops that decide how fast models are. Float32 only; half precision comes to
// them through casts.
#pragma once

#include <string>
#include <vector>

#include "paddle/phi/backends/cpu/cpu_context.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/kernel_factory.h"
#include "paddle/utils/small_vector.h"

namespace softipu {

// One call, in the order of the kernel's definition.
struct Arguments {
  paddle::small_vector<const phi::DenseTensor*, 8> inputs;  // null: an optional one, not given
  paddle::small_vector<const void*, 16> attributes;
  paddle::small_vector<phi::DenseTensor*, 8> outputs;  // null: not wanted

  template <class T>
  const T& attribute(size_t index) const {
    return *static_cast<const T*>(attributes[index]);
  }
};

// Memory for a result's values; null for one that is not wanted.
inline float* Result(const phi::CPUContext& cpu, phi::DenseTensor* tensor) {
  return tensor ? static_cast<float*>(cpu.Alloc(tensor, phi::DataType::FLOAT32)) : nullptr;
}

// Does the op, or returns false before it has touched anything: then the CPU's kernel does it.
using NativeKernel = bool (*)(const phi::CPUContext& cpu, const Arguments& arguments);

// Null where we have none for attributes of these types, or where SOFTIPU_PADDLE_ONEDNN=0 asks for
// the CPU's own arithmetic.
NativeKernel FindNative(const std::string& op, const std::vector<phi::AttributeType>& attributes);

// Whether MKL does the op as products of two matrices, so that it may use several threads, and how
// many multiply-adds they are.
bool IsProduct(const std::string& op);
int64_t ProductWork(const Arguments& arguments);

}  // namespace softipu
