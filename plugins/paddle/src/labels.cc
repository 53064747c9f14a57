#include "labels.h"

#include <typeinfo>

#include "half.h"
#include "paddle/phi/core/tensor_utils.h"

namespace softipu {
namespace {

using phi::AllocationType;
using phi::DenseTensor;

const Label* AsLabel(const Buffer& buffer) {
  return typeid(*buffer) == typeid(Label) ? static_cast<const Label*>(buffer.get()) : nullptr;
}

struct DenseAccess : DenseTensor {
  static constexpr Buffer DenseTensor::*kHolder = &DenseAccess::holder_;
};

// A private member may be named in an explicit instantiation: the one legal way to it.
template <Buffer phi::StringTensor::*kHolder>
struct StringAccess {
  friend Buffer& StringHolder(phi::StringTensor& tensor) { return tensor.*kHolder; }
};
Buffer& StringHolder(phi::StringTensor& tensor);
template struct StringAccess<&phi::StringTensor::holder_>;

}  // namespace

const phi::Place& CpuPlace() {
  static const phi::Place place = phi::CPUPlace();
  return place;
}

Buffer& HolderOf(DenseTensor& tensor) { return tensor.*DenseAccess::kHolder; }
Buffer& HolderOf(phi::StringTensor& tensor) { return StringHolder(tensor); }

// Shallow copies for inputs. A tensor object is costly to make, so each thread keeps its own.
class InputCopies {
 public:
  static InputCopies& OfThisThread() {
    static thread_local InputCopies copies;
    return copies;
  }

  DenseTensor* Borrow() {
    if (borrowed_ == tensors_.size()) tensors_.push_back(std::make_unique<DenseTensor>());
    return tensors_[borrowed_++].get();
  }

  size_t borrowed() const { return borrowed_; }

  void GiveBack(size_t borrowed_before) {
    while (borrowed_ > borrowed_before) HolderOf(*tensors_[--borrowed_]).reset();
  }

 private:
  std::vector<std::unique_ptr<DenseTensor>> tensors_;
  size_t borrowed_ = 0;
};

LabelScope::LabelScope(const phi::Place& device)
    : device_(device),
      copies_(InputCopies::OfThisThread()),
      borrowed_before_(copies_.borrowed()) {}

LabelScope::~LabelScope() {
  for (auto* tensor : outputs_) BackOnDevice(HolderOf(*tensor));
  for (auto* array : array_outputs_)
    for (auto& tensor : *array) BackOnDevice(HolderOf(tensor));
  for (auto* tensor : string_outputs_) BackOnDevice(HolderOf(*tensor));
  copies_.GiveBack(borrowed_before_);
}

Buffer LabelScope::OnCpu(const Buffer& buffer) {
  if (!buffer || buffer->place().GetType() != AllocationType::CUSTOM) return buffer;
  for (auto& pair : pairs_)
    if (pair.device == buffer) return pair.cpu;
  const Label* label = AsLabel(buffer);
  pairs_.push_back({label ? label->owner() : std::make_shared<Label>(buffer, CpuPlace()), buffer});
  return pairs_.back().cpu;
}

void LabelScope::BackOnDevice(Buffer& buffer) const {
  if (!buffer || buffer->place().GetType() != AllocationType::CPU) return;
  for (auto& pair : pairs_) {
    if (pair.cpu != buffer) continue;
    buffer = pair.device;
    return;
  }
  const Label* label = AsLabel(buffer);
  buffer = label ? label->owner() : std::make_shared<Label>(buffer, device_);
}

bool LabelScope::IsOutput(const void* tensor) const {
  for (auto* output : outputs_)
    if (output == tensor) return true;
  for (auto* output : composite_outputs_)
    if (output == tensor) return true;
  return false;
}

void LabelScope::LabelInPlace(DenseTensor* tensor) {
  Buffer& holder = HolderOf(*tensor);
  holder = OnCpu(holder);
}

void LabelScope::Output(DenseTensor* tensor) {
  if (!tensor) return;
  for (auto* output : outputs_)
    if (output == tensor) return;
  if (tensor->Holder()) LabelInPlace(tensor);
  outputs_.push_back(tensor);
  if (casts_) casts_->Output(tensor);
}

void LabelScope::Output(phi::SelectedRows* tensor) {
  if (!tensor) return;
  composite_outputs_.push_back(tensor);
  Output(tensor->mutable_value());
}

void LabelScope::Output(phi::SparseCooTensor* tensor) {
  if (!tensor) return;
  composite_outputs_.push_back(tensor);
  Output(tensor->mutable_indices());
  Output(tensor->mutable_values());
  if (casts_) casts_->SparseOutput(phi::DenseTensorUtils::GetMutableMeta(tensor));
}

void LabelScope::Output(phi::SparseCsrTensor* tensor) {
  if (!tensor) return;
  composite_outputs_.push_back(tensor);
  Output(tensor->mutable_crows());
  Output(tensor->mutable_cols());
  Output(tensor->mutable_values());
  if (casts_) casts_->SparseOutput(phi::DenseTensorUtils::GetMutableMeta(tensor));
}

void LabelScope::Output(phi::TensorArray* array) {
  if (!array) return;
  composite_outputs_.push_back(array);
  for (auto& tensor : *array) LabelInPlace(&tensor);
  array_outputs_.push_back(array);
}

void LabelScope::Output(phi::StringTensor* tensor) {
  if (!tensor) return;
  composite_outputs_.push_back(tensor);
  Buffer& holder = HolderOf(*tensor);
  holder = OnCpu(holder);
  string_outputs_.push_back(tensor);
}

void LabelScope::OutputOfAnyKind(phi::TensorBase* tensor) {
  if (!tensor) return;
  if (auto* dense = dynamic_cast<DenseTensor*>(tensor)) return Output(dense);
  if (auto* rows = dynamic_cast<phi::SelectedRows*>(tensor)) return Output(rows);
  if (auto* coo = dynamic_cast<phi::SparseCooTensor*>(tensor)) return Output(coo);
  if (auto* csr = dynamic_cast<phi::SparseCsrTensor*>(tensor)) return Output(csr);
  if (auto* array = dynamic_cast<phi::TensorArray*>(tensor)) return Output(array);
  if (auto* strings = dynamic_cast<phi::StringTensor*>(tensor)) return Output(strings);
}

// An output that the caller keeps on the CPU and also reads (Adam's powers of beta) stays there.
void LabelScope::StayOnCpu(const Buffer& buffer) {
  for (auto& pair : pairs_)
    if (pair.cpu == buffer) return;
  for (auto* output : outputs_) {
    if (output->Holder() != buffer) continue;
    pairs_.push_back({buffer, buffer});
    return;
  }
}

const DenseTensor* LabelScope::Input(const DenseTensor* tensor) {
  if (!tensor) return tensor;
  const Buffer& holder = tensor->Holder();
  const bool on_device = holder && holder->place().GetType() == AllocationType::CUSTOM;
  if (holder && !on_device) StayOnCpu(holder);
  if (IsOutput(tensor)) {
    if (casts_) casts_->InputThatIsOutput(tensor);
    return tensor;
  }
  if (!on_device && !(casts_ && casts_->IsNarrow(*tensor))) return tensor;
  DenseTensor* copy = copies_.Borrow();
  *copy = *tensor;
  HolderOf(*copy) = OnCpu(holder);
  if (casts_) casts_->Input(copy);
  return copy;
}

const phi::SelectedRows* LabelScope::Input(const phi::SelectedRows* tensor) {
  if (!tensor || IsOutput(tensor)) return tensor;
  auto copy = std::make_shared<phi::SelectedRows>(tensor->rows(), tensor->height());
  kept_.push_back(copy);
  *copy->mutable_value() = tensor->value();
  LabelInPlace(copy->mutable_value());
  if (casts_) casts_->Input(copy->mutable_value());
  return copy.get();
}

const phi::SparseCooTensor* LabelScope::Input(const phi::SparseCooTensor* tensor) {
  if (!tensor || IsOutput(tensor)) return tensor;
  auto* copy = Keep(*tensor);
  LabelInPlace(copy->mutable_indices());
  LabelInPlace(copy->mutable_values());
  if (casts_)
    casts_->SparseInput(copy->mutable_values(), phi::DenseTensorUtils::GetMutableMeta(copy));
  return copy;
}

const phi::SparseCsrTensor* LabelScope::Input(const phi::SparseCsrTensor* tensor) {
  if (!tensor || IsOutput(tensor)) return tensor;
  auto* copy = Keep(*tensor);
  LabelInPlace(copy->mutable_crows());
  LabelInPlace(copy->mutable_cols());
  LabelInPlace(copy->mutable_values());
  if (casts_)
    casts_->SparseInput(copy->mutable_values(), phi::DenseTensorUtils::GetMutableMeta(copy));
  return copy;
}

const phi::TensorArray* LabelScope::Input(const phi::TensorArray* array) {
  if (!array || IsOutput(array)) return array;
  auto* copy = Keep(*array);
  for (auto& tensor : *copy) {
    LabelInPlace(&tensor);
    if (casts_) casts_->Input(&tensor);
  }
  return copy;
}

const phi::StringTensor* LabelScope::Input(const phi::StringTensor* tensor) {
  if (!tensor || IsOutput(tensor)) return tensor;
  auto* copy = Keep(*tensor);
  Buffer& holder = HolderOf(*copy);
  holder = OnCpu(holder);
  return copy;
}

const phi::TensorBase* LabelScope::Input(const phi::TensorBase* tensor) {
  if (!tensor) return tensor;
  if (auto* dense = dynamic_cast<const DenseTensor*>(tensor)) return Input(dense);
  if (auto* rows = dynamic_cast<const phi::SelectedRows*>(tensor)) return Input(rows);
  if (auto* coo = dynamic_cast<const phi::SparseCooTensor*>(tensor)) return Input(coo);
  if (auto* csr = dynamic_cast<const phi::SparseCsrTensor*>(tensor)) return Input(csr);
  if (auto* array = dynamic_cast<const phi::TensorArray*>(tensor)) return Input(array);
  if (auto* strings = dynamic_cast<const phi::StringTensor*>(tensor)) return Input(strings);
  return tensor;
}

}  // namespace softipu
