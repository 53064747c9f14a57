// Tensors of the device shown to CPU kernels as CPU tensors, without copies.
//
// Device memory is host memory here, so a CPU kernel can work on it. What it must not see is the
// device's place: kernels ask for it and choose their path by it. So for the time of one call each
// buffer gets a label: the same bytes under the CPU's place. Afterwards outputs get the device's
// place back, also when the kernel throws.
#pragma once

#include <memory>
#include <vector>

#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/selected_rows.h"
#include "paddle/phi/core/sparse_coo_tensor.h"
#include "paddle/phi/core/sparse_csr_tensor.h"
#include "paddle/phi/core/string_tensor.h"
#include "paddle/phi/core/tensor_array.h"
#include "paddle/utils/optional.h"
#include "paddle/utils/small_vector.h"

namespace softipu {

class HalfCasts;
class InputCopies;

using Buffer = std::shared_ptr<phi::Allocation>;

// Making a place takes a lock and a look into a table of names; this one is made once.
const phi::Place& CpuPlace();

// The bytes of another allocation, which it keeps alive, under another place.
class Label final : public phi::Allocation {
 public:
  Label(Buffer owner, const phi::Place& place)
      : phi::Allocation(owner->ptr(), owner->size(), place), owner_(std::move(owner)) {}

  const Buffer& owner() const { return owner_; }

 private:
  Buffer owner_;
};

// The holder of a tensor, for writing: DenseTensor's is protected, StringTensor's private.
Buffer& HolderOf(phi::DenseTensor& tensor);
Buffer& HolderOf(phi::StringTensor& tensor);

// The labels of one kernel call. Outputs must be announced before inputs: what is both is labelled
// once, in place.
class LabelScope {
 public:
  explicit LabelScope(const phi::Place& device);
  ~LabelScope();
  LabelScope(const LabelScope&) = delete;
  LabelScope& operator=(const LabelScope&) = delete;

  // From now on half-precision tensors become float32 ones too. `casts` must end before this scope.
  void CastWith(HalfCasts* casts) { casts_ = casts; }

  void Output(phi::DenseTensor* tensor);
  void Output(phi::SelectedRows* tensor);
  void Output(phi::SparseCooTensor* tensor);
  void Output(phi::SparseCsrTensor* tensor);
  void Output(phi::TensorArray* array);
  void Output(phi::StringTensor* tensor);
  void OutputOfAnyKind(phi::TensorBase* tensor);

  // Each returns what the kernel shall see instead of its argument.
  const phi::DenseTensor* Input(const phi::DenseTensor* tensor);
  const phi::SelectedRows* Input(const phi::SelectedRows* tensor);
  const phi::SparseCooTensor* Input(const phi::SparseCooTensor* tensor);
  const phi::SparseCsrTensor* Input(const phi::SparseCsrTensor* tensor);
  const phi::TensorArray* Input(const phi::TensorArray* array);
  const phi::StringTensor* Input(const phi::StringTensor* tensor);
  const phi::TensorBase* Input(const phi::TensorBase* tensor);

  template <class T>
  const paddle::optional<T>* Input(const paddle::optional<T>* tensor) {
    if (!*tensor) return tensor;
    const T* seen = Input(&**tensor);
    return seen == &**tensor ? tensor : Keep(paddle::optional<T>(*seen));
  }

  template <class T>
  const std::vector<const T*>* Input(const std::vector<const T*>* tensors) {
    auto* seen = Keep(std::vector<const T*>(*tensors));
    for (auto& tensor : *seen) tensor = Input(tensor);
    return seen;
  }

  template <class T>
  const paddle::optional<std::vector<const T*>>* Input(
      const paddle::optional<std::vector<const T*>>* tensors) {
    return *tensors ? Keep(paddle::optional<std::vector<const T*>>(*Input(&**tensors))) : tensors;
  }

 private:
  struct Pair {
    Buffer cpu;
    Buffer device;
  };

  Buffer OnCpu(const Buffer& buffer);
  void BackOnDevice(Buffer& buffer) const;
  bool IsOutput(const void* tensor) const;
  void LabelInPlace(phi::DenseTensor* tensor);
  void StayOnCpu(const Buffer& buffer);

  template <class T>
  T* Keep(T object) {
    auto kept = std::make_shared<T>(std::move(object));
    kept_.push_back(kept);
    return kept.get();
  }

  const phi::Place& device_;
  HalfCasts* casts_ = nullptr;
  InputCopies& copies_;
  const size_t borrowed_before_;
  // One label per buffer: tensors that share memory still share it, for the kernel and afterwards.
  paddle::small_vector<Pair, 12> pairs_;
  paddle::small_vector<phi::DenseTensor*, 12> outputs_;
  paddle::small_vector<const void*, 4> composite_outputs_;
  paddle::small_vector<phi::TensorArray*, 1> array_outputs_;
  paddle::small_vector<phi::StringTensor*, 1> string_outputs_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace softipu
