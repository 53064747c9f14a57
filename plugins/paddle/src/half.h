// float16 and bfloat16 where Paddle's CPU has only float32: cast around the float32 kernel.
//
// Inputs become float32 copies, outputs are computed in float32 and rounded at the end. Whoever
// shared memory before the call shares it during the call and afterwards.
#pragma once

#include <string>

#include "labels.h"
#include "paddle/phi/core/device_context.h"
#include "paddle/phi/core/tensor_meta.h"

namespace softipu {

// Which input of an optimiser op is the float32 master copy of its first input, the parameter;
// -1 for other ops. The parameter's new value is output 0, the master copy's the last output.
int MasterInputOf(const std::string& op);

class HalfCasts {
 public:
  HalfCasts(phi::DataType narrow, const phi::DeviceContext& cpu) : narrow_(narrow), cpu_(cpu) {}
  ~HalfCasts();
  HalfCasts(const HalfCasts&) = delete;
  HalfCasts& operator=(const HalfCasts&) = delete;

  bool IsNarrow(const phi::DenseTensor& tensor) const { return tensor.dtype() == narrow_; }

  // Called by LabelScope once the tensor is labelled.
  void Output(phi::DenseTensor* tensor);
  void Input(phi::DenseTensor* tensor);
  void InputThatIsOutput(const phi::DenseTensor* tensor);
  void SparseOutput(phi::SparseTensorMeta* meta);
  void SparseInput(phi::DenseTensor* values, phi::SparseTensorMeta* meta);

  // The parameter of an optimiser is computed on its master copy instead.
  void UseMaster(const phi::DenseTensor* parameter, const phi::DenseTensor* master,
                 phi::DenseTensor* parameter_out);

  // float32 for the narrow type, other types as they are.
  phi::DataType Widened(phi::DataType type) const;

  // After the kernel: rounds what it computed. Without this call, everything is as it was.
  void Finish();

 private:
  struct Result {
    phi::DenseTensor* tensor;
    phi::DenseTensorMeta meta;  // as the caller gave it
    Buffer holder;
  };
  struct Wide {
    const void* data;  // of the narrow tensor
    Buffer buffer;
  };

  Buffer Widen(const phi::DenseTensor& tensor);
  void Round(const Result& result);

  const phi::DataType narrow_;
  const phi::DeviceContext& cpu_;
  bool finished_ = false;
  std::vector<Result> results_;
  std::vector<Wide> wide_;
  std::vector<phi::SparseTensorMeta*> sparse_results_;
};

}  // namespace softipu
