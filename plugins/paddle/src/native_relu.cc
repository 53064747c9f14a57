// relu and its gradient in several threads, which the CPU's kernels don't use; small ones are left
// to them. The results are the same to the bit.
#include "native_ops.h"
#include "threads.h"
#include "vectorised.h"

namespace softipu {
namespace {

SOFTIPU_VECTORISED void ReluRow(const float* x, float* result, int64_t count) {
  for (int64_t i = 0; i < count; ++i) result[i] = x[i] > 0 ? x[i] : 0;
}

SOFTIPU_VECTORISED void ReluGradRow(const float* result, const float* result_grad, float* x_grad,
                                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) x_grad[i] = result_grad[i] * (result[i] > 0 ? 1.0f : 0.0f);
}

}  // namespace

bool Relu(const phi::CPUContext& cpu, const Arguments& call) {
  const auto* x = call.inputs[0];
  if (!PartsPay(2 * x->numel())) return false;
  const float* from = x->data<float>();
  auto* to = static_cast<float*>(cpu.Alloc(call.outputs[0], phi::DataType::FLOAT32));
  InParts(x->numel(), 2 * x->numel(),
          [=](int64_t begin, int64_t end) { ReluRow(from + begin, to + begin, end - begin); });
  return true;
}

bool ReluGrad(const phi::CPUContext& cpu, const Arguments& call) {
  const auto &result = *call.inputs[0], &result_grad = *call.inputs[1];
  if (!PartsPay(3 * result.numel()) || result.dims() != result_grad.dims()) return false;
  const float *at = result.data<float>(), *grad = result_grad.data<float>();
  auto* to = static_cast<float*>(cpu.Alloc(call.outputs[0], phi::DataType::FLOAT32));
  InParts(result.numel(), 3 * result.numel(), [=](int64_t begin, int64_t end) {
    ReluGradRow(at + begin, grad + begin, to + begin, end - begin);
  });
  return true;
}

}  // namespace softipu
