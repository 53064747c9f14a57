#include "half.h"

#include <map>

#include "conversions.h"
#include "paddle/phi/core/tensor_utils.h"

namespace softipu {
namespace {

using phi::DataType;
using phi::DenseTensor;

phi::DenseTensorMeta* MetaOf(DenseTensor* tensor) {
  return phi::DenseTensorUtils::GetMutableMeta(tensor);
}

// False for tensors of which only the shape counts: their holder is null or an empty allocation.
bool HasValues(const DenseTensor& tensor) {
  const Buffer& holder = tensor.Holder();
  const size_t bytes = tensor.meta().offset + tensor.numel() * phi::SizeOf(tensor.dtype());
  return holder && holder->ptr() && tensor.numel() > 0 && holder->size() >= bytes;
}

const void* DataOf(const DenseTensor& tensor) {
  return static_cast<const char*>(tensor.Holder()->ptr()) + tensor.meta().offset;
}

}  // namespace

int MasterInputOf(const std::string& op) {
  static const std::map<std::string, int> masters = {
      {"adadelta", 5}, {"adagrad", 4},  {"adagrad_dense_param_sparse_grad", 4},
      {"adam", 8},     {"adam_dense_param_sparse_grad", 8},
      {"adamax", 6},   {"adamw", 8},    {"adamw_dense_param_sparse_grad", 8},
      {"asgd", 6},     {"lamb", 7},     {"lamb_sr", 7},
      {"momentum", 4}, {"momentum_dense_param_sparse_grad", 4},
      {"nadam", 8},    {"radam", 8},    {"rmsprop", 6},
      {"rmsprop_dense_param_sparse_grad", 6},
      {"rprop", 4},    {"sgd", 3},      {"sgd_dense_param_sparse_grad", 3},
  };
  auto found = masters.find(op);
  return found == masters.end() ? -1 : found->second;
}

DataType HalfCasts::Widened(DataType type) const {
  return type == narrow_ ? DataType::FLOAT32 : type;
}

Buffer HalfCasts::Widen(const DenseTensor& tensor) {
  const void* data = DataOf(tensor);
  for (auto& wide : wide_)
    if (wide.data == data && wide.buffer->size() >= tensor.numel() * sizeof(float))
      return wide.buffer;
  DenseTensor wide;
  wide.Resize(tensor.dims());
  cpu_.Alloc(&wide, DataType::FLOAT32);
  ToFloat(narrow_, data, static_cast<float*>(wide.data()), tensor.numel());
  wide_.push_back({data, wide.Holder()});
  return wide.Holder();
}

void HalfCasts::Output(DenseTensor* tensor) {
  results_.push_back({tensor, tensor->meta(), tensor->Holder()});
  if (!IsNarrow(*tensor)) return;
  MetaOf(tensor)->dtype = DataType::FLOAT32;
  MetaOf(tensor)->offset = 0;
  HolderOf(*tensor).reset();
}

void HalfCasts::Input(DenseTensor* tensor) {
  if (!IsNarrow(*tensor)) return;
  if (HasValues(*tensor)) {
    const Buffer wide = Widen(*tensor);
    for (auto& result : results_) {
      const bool in_place = result.meta.dtype == narrow_ && result.holder == tensor->Holder() &&
                            result.meta.offset == tensor->meta().offset;
      if (in_place) HolderOf(*result.tensor) = wide;
    }
    HolderOf(*tensor) = wide;
    MetaOf(tensor)->offset = 0;
  }
  MetaOf(tensor)->dtype = DataType::FLOAT32;
}

void HalfCasts::InputThatIsOutput(const DenseTensor* tensor) {
  for (auto& result : results_) {
    if (result.tensor != tensor || result.meta.dtype != narrow_ || !result.holder) continue;
    const DenseTensor before(result.holder, result.meta);
    if (HasValues(before)) HolderOf(*result.tensor) = Widen(before);
  }
}

void HalfCasts::SparseOutput(phi::SparseTensorMeta* meta) { sparse_results_.push_back(meta); }

void HalfCasts::SparseInput(DenseTensor* values, phi::SparseTensorMeta* meta) {
  Input(values);
  meta->dtype = Widened(meta->dtype);
}

void HalfCasts::UseMaster(const DenseTensor* parameter, const DenseTensor* master,
                          DenseTensor* parameter_out) {
  auto* seen = const_cast<DenseTensor*>(parameter);  // one of our copies, or the output itself
  HolderOf(*seen) = master->Holder();
  MetaOf(seen)->offset = master->meta().offset;
  HolderOf(*parameter_out) = master->Holder();
  MetaOf(parameter_out)->offset = master->meta().offset;
}

void HalfCasts::Round(const Result& result) {
  const bool was_narrow = result.meta.dtype == narrow_ || result.meta.dtype == DataType::UNDEFINED;
  DenseTensor* tensor = result.tensor;
  if (!was_narrow || tensor->dtype() != DataType::FLOAT32) return;
  if (!tensor->Holder()) {  // an output that the kernel left out
    HolderOf(*tensor) = result.holder;
    MetaOf(tensor)->dtype = result.meta.dtype;
    MetaOf(tensor)->offset = result.meta.offset;
    return;
  }
  const DenseTensor wide(*tensor);
  const bool reuse = result.meta.dtype == narrow_;
  HolderOf(*tensor) = reuse ? result.holder : nullptr;
  MetaOf(tensor)->offset = reuse ? result.meta.offset : 0;
  void* data = cpu_.Alloc(tensor, narrow_);
  if (wide.numel() > 0)
    FromFloat(narrow_, static_cast<const float*>(wide.data()), data, wide.numel());
}

void HalfCasts::Finish() {
  for (auto& result : results_) Round(result);
  for (auto* meta : sparse_results_)
    if (meta->dtype == DataType::FLOAT32) meta->dtype = narrow_;
  finished_ = true;
}

HalfCasts::~HalfCasts() {
  if (finished_) return;
  for (auto& result : results_) {
    HolderOf(*result.tensor) = result.holder;
    *MetaOf(result.tensor) = result.meta;
  }
}

}  // namespace softipu
