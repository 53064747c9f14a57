// Inputs and outputs of a predictor, with the names that Paddle Inference gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "paddle_infer_declare.h"

namespace paddle_infer {
inline namespace softipu_api {

// Everything that goes wrong: a wrong option, a missing file, a shape that does not fit. The text
// begins with a code such as SIPU-4120, and says cause and way out.
class PD_INFER_DECL Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
  ~Error() override;
};

// The bits of a half precision number, for CopyFromCpu, CopyToCpu and their kin.
struct float16 {
  std::uint16_t bits;
};

using Strings = std::vector<std::string>;
using CallbackFunc = void (*)(void*);

enum DataType { FLOAT32, INT64, INT32, UINT8, INT8, FLOAT16, BOOL, FLOAT64, BFLOAT16 };

enum class PlaceType { kUNK = -1, kCPU, kGPU, kXPU, kIPU, kCUSTOM };

enum class DataLayout { kUNK = -1, kAny, kNHWC, kNCHW };

class Predictor;

// An input or output. Element types: float, double, float16, int64_t, int32_t, uint8_t, int8_t and
// bool; the one that is used must be the tensor's own.
class PD_INFER_DECL Tensor {
 public:
  struct State;

  ~Tensor();
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  // Inputs: to be called before the data of a new shape arrive.
  void Reshape(const std::vector<int>& shape);
  void ReshapeStrings(const std::size_t& count);

  // Inputs: memory to write to. What it holds when Run() is called counts, also for later runs.
  template <typename T>
  T* mutable_data(PlaceType place);

  // Memory to read from. That of an output is valid until the next run.
  template <typename T>
  T* data(PlaceType* place, int* size) const;

  template <typename T>
  void CopyFromCpu(const T* data);

  // Inputs: the caller's memory, which must stay valid, is read at every Run().
  template <typename T>
  void ShareExternalData(const T* data, const std::vector<int>& shape, PlaceType place,
                         DataLayout layout = DataLayout::kNCHW);

  void CopyStringsFromCpu(const Strings* data);

  template <typename T>
  void CopyToCpu(T* data) const;

  // Nothing is asynchronous on this device: the copy is made, then `cb` is called.
  template <typename T>
  void CopyToCpuAsync(T* data, void* exec_stream) const;
  template <typename T>
  void CopyToCpuAsync(T* data, CallbackFunc cb, void* cb_params) const;

  std::vector<int> shape() const;
  void SetLoD(const std::vector<std::vector<std::size_t>>& lod);
  std::vector<std::vector<std::size_t>> lod() const;
  const std::string& name() const;
  DataType type() const;
  PlaceType place() const;

 private:
  friend class Predictor;
  explicit Tensor(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace softipu_api
}  // namespace paddle_infer
