#include "dispatch.h"

#include <new>
#include <optional>
#include <stdexcept>

#include "busy.h"
#include "device_memory.h"
#include "half.h"
#include "labels.h"
#include "paddle/phi/core/enforce.h"
#include "paddle/phi/core/kernel_context.h"
#include "threads.h"

namespace softipu {
namespace {

using phi::AttributeType;
using phi::DenseTensor;

bool PassedByReference(AttributeType type) {
  switch (type) {
    case AttributeType::BOOL:
    case AttributeType::INT32:
    case AttributeType::INT64:
    case AttributeType::FLOAT32:
    case AttributeType::FLOAT64:
    case AttributeType::DATA_TYPE:
    case AttributeType::DATA_LAYOUT:
    case AttributeType::PLACE: return false;
    default: return true;
  }
}

template <class T>
void LabelOutputs(LabelScope* scope, void* list) {
  for (auto* tensor : *static_cast<std::vector<T*>*>(list)) scope->Output(tensor);
}

void LabelOutput(LabelScope* scope, OutputKind kind, void* output) {
  switch (kind) {
    case OutputKind::kDense: return scope->Output(static_cast<DenseTensor*>(output));
    case OutputKind::kDenseList: return LabelOutputs<DenseTensor>(scope, output);
    case OutputKind::kRows: return scope->Output(static_cast<phi::SelectedRows*>(output));
    case OutputKind::kCoo: return scope->Output(static_cast<phi::SparseCooTensor*>(output));
    case OutputKind::kCooList: return LabelOutputs<phi::SparseCooTensor>(scope, output);
    case OutputKind::kCsr: return scope->Output(static_cast<phi::SparseCsrTensor*>(output));
    case OutputKind::kCsrList: return LabelOutputs<phi::SparseCsrTensor>(scope, output);
    case OutputKind::kStrings: return scope->Output(static_cast<phi::StringTensor*>(output));
    case OutputKind::kStringsList: return LabelOutputs<phi::StringTensor>(scope, output);
    case OutputKind::kArray: return scope->Output(static_cast<phi::TensorArray*>(output));
  }
}

template <class T>
const void* LabelOne(LabelScope* scope, const void* input) {
  return scope->Input(static_cast<const T*>(input));
}
template <class T>
using Optional = paddle::optional<T>;
template <class T>
using List = std::vector<const T*>;

const void* LabelInput(LabelScope* scope, InputKind kind, const void* input) {
  using namespace phi;  // NOLINT
  switch (kind) {
    case InputKind::kDense: return LabelOne<DenseTensor>(scope, input);
    case InputKind::kOptionalDense: return LabelOne<Optional<DenseTensor>>(scope, input);
    case InputKind::kDenseList: return LabelOne<List<DenseTensor>>(scope, input);
    case InputKind::kOptionalDenseList: return LabelOne<Optional<List<DenseTensor>>>(scope, input);
    case InputKind::kRows: return LabelOne<SelectedRows>(scope, input);
    case InputKind::kOptionalRows: return LabelOne<Optional<SelectedRows>>(scope, input);
    case InputKind::kRowsList: return LabelOne<List<SelectedRows>>(scope, input);
    case InputKind::kCoo: return LabelOne<SparseCooTensor>(scope, input);
    case InputKind::kOptionalCoo: return LabelOne<Optional<SparseCooTensor>>(scope, input);
    case InputKind::kCooList: return LabelOne<List<SparseCooTensor>>(scope, input);
    case InputKind::kCsr: return LabelOne<SparseCsrTensor>(scope, input);
    case InputKind::kOptionalCsr: return LabelOne<Optional<SparseCsrTensor>>(scope, input);
    case InputKind::kCsrList: return LabelOne<List<SparseCsrTensor>>(scope, input);
    case InputKind::kStrings: return LabelOne<StringTensor>(scope, input);
    case InputKind::kOptionalStrings: return LabelOne<Optional<StringTensor>>(scope, input);
    case InputKind::kStringsList: return LabelOne<List<StringTensor>>(scope, input);
    case InputKind::kArray: return LabelOne<TensorArray>(scope, input);
    case InputKind::kArrayList: return LabelOne<List<TensorArray>>(scope, input);
    case InputKind::kAnyList: return LabelOne<List<TensorBase>>(scope, input);
  }
  return input;
}

// Values as libffi has them: values[i] points to argument i.
Arguments DynamicArguments(const Signature& signature, void* const* values) {
  Arguments arguments;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const void* input = *static_cast<const void**>(values[1 + i]);
    if (signature.inputs[i] == InputKind::kOptionalDense) {
      auto& optional = *static_cast<const Optional<DenseTensor>*>(input);
      input = optional ? &*optional : nullptr;
    }
    arguments.inputs.push_back(static_cast<const DenseTensor*>(input));
  }
  for (size_t i = 0; i < signature.attributes.size(); ++i) {
    const void* value = values[signature.first_attribute() + i];
    if (PassedByReference(signature.attributes[i])) value = *static_cast<const void* const*>(value);
    arguments.attributes.push_back(value);
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i)
    arguments.outputs.push_back(*static_cast<DenseTensor**>(values[signature.first_output() + i]));
  return arguments;
}

// Paddle passes its own errors on to Python; one of the standard library would end the process.
[[noreturn]] void Rethrow(const std::string& op) {
  try {
    throw;
  } catch (const std::logic_error& error) {
    PADDLE_THROW(common::errors::InvalidArgument(
        "SIPU-4203: the kernel of %s failed: %s. Check the shapes and values of its inputs.", op,
        error.what()));
  } catch (const std::bad_alloc&) {
    PADDLE_THROW(common::errors::ResourceExhausted(
        "SIPU-4204: not enough host memory for %s. Smaller batches need less.", op));
  }
}

void Compute(const WrappedKernel& kernel, const phi::CPUContext& cpu, void** values) try {
  if (kernel.native && kernel.native(cpu, DynamicArguments(kernel.signature, values)))
    return Count(kernel.counter->native);
  Count(kernel.counter->wrapped);
  const ThreadScope scope(
      kernel.is_product ? ProductWork(DynamicArguments(kernel.signature, values)) : 0);
  ffi_call(const_cast<ffi_cif*>(&kernel.signature.call),
           FFI_FN(kernel.cpu.GetVariadicKernelFn<void (*)()>()), nullptr, values);
} catch (const std::exception&) {
  Rethrow(kernel.op);
}

// The parts of a call in half precision that labels don't do.
class HalfCall {
 public:
  HalfCall(const WrappedKernel& kernel, const phi::CPUContext& cpu, LabelScope* scope)
      : kernel_(kernel) {
    if (kernel.narrow == phi::DataType::UNDEFINED) return;
    Count(kernel.counter->cast);
    casts_.emplace(kernel.narrow, cpu);
    scope->CastWith(&*casts_);
  }

  void WidenTypeAttributes(void** values) {
    if (!casts_) return;
    const Signature& signature = kernel_.signature;
    for (size_t i = 0; i < signature.attributes.size(); ++i) {
      if (signature.attributes[i] != AttributeType::DATA_TYPE) continue;
      void*& value = values[signature.first_attribute() + i];
      types_[i] = casts_->Widened(*static_cast<phi::DataType*>(value));
      value = &types_[i];
    }
  }

  phi::Attribute Widened(const phi::Attribute& attribute) const {
    auto* type = paddle::get_if<phi::DataType>(&attribute);
    return type ? phi::Attribute(casts_->Widened(*type)) : attribute;
  }

  void UseMaster(const DenseTensor* parameter, const DenseTensor* master, DenseTensor* out) {
    if (master && out) casts_->UseMaster(parameter, master, out);
  }

  bool has_master() const { return casts_ && kernel_.master_input >= 0; }
  explicit operator bool() const { return casts_.has_value(); }
  void Finish() {
    if (casts_) casts_->Finish();
  }

 private:
  const WrappedKernel& kernel_;
  std::optional<HalfCasts> casts_;
  phi::DataType types_[kMostArguments];
};

void RunDynamic(ffi_cif*, void*, void** arguments, void* user) {
  const BusyScope busy;
  const auto& kernel = *static_cast<const WrappedKernel*>(user);
  const Timed timed(kernel.counter);
  const Signature& signature = kernel.signature;
  const phi::Place& device = (*static_cast<phi::DeviceContext**>(arguments[0]))->GetPlace();
  phi::CPUContext* cpu = &CpuContextOf(device);
  LabelScope scope(device);
  HalfCall half(kernel, *cpu, &scope);

  void* values[kMostArguments];
  const void* seen[kMostArguments];
  values[0] = &cpu;
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const size_t at = signature.first_output() + i;
    values[at] = arguments[at];
    LabelOutput(&scope, signature.outputs[i], *static_cast<void**>(arguments[at]));
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    seen[i] = LabelInput(&scope, signature.inputs[i], *static_cast<void**>(arguments[1 + i]));
    values[1 + i] = &seen[i];
  }
  for (size_t at = signature.first_attribute(); at < signature.first_output(); ++at)
    values[at] = arguments[at];
  half.WidenTypeAttributes(values);
  if (half.has_master()) {
    const Arguments all = DynamicArguments(signature, values);
    half.UseMaster(all.inputs[0], all.inputs[kernel.master_input], all.outputs[0]);
  }
  Compute(kernel, *cpu, values);
  half.Finish();
}

// Where an attribute's value is, or null if it isn't of the declared type (then it is a tensor).
const void* ValueOf(const phi::Attribute& attribute, AttributeType type) {
  switch (type) {
    case AttributeType::BOOL: return paddle::get_if<bool>(&attribute);
    case AttributeType::INT32: return paddle::get_if<int>(&attribute);
    case AttributeType::INT64: return paddle::get_if<int64_t>(&attribute);
    case AttributeType::FLOAT32: return paddle::get_if<float>(&attribute);
    case AttributeType::FLOAT64: return paddle::get_if<double>(&attribute);
    case AttributeType::STRING: return paddle::get_if<std::string>(&attribute);
    case AttributeType::INT32S: return paddle::get_if<std::vector<int>>(&attribute);
    case AttributeType::INT64S: return paddle::get_if<std::vector<int64_t>>(&attribute);
    case AttributeType::SCALAR: return paddle::get_if<phi::Scalar>(&attribute);
    case AttributeType::INT_ARRAY: return paddle::get_if<phi::IntArray>(&attribute);
    case AttributeType::DATA_TYPE: return paddle::get_if<phi::DataType>(&attribute);
    default: return nullptr;
  }
}

std::optional<Arguments> StaticArguments(const Signature& signature, phi::KernelContext* context) {
  Arguments arguments;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    auto* tensor = context->MutableInputAt(context->InputRangeAt(i).first);
    arguments.inputs.push_back(static_cast<const DenseTensor*>(tensor));
  }
  for (size_t i = 0; i < signature.attributes.size(); ++i) {
    arguments.attributes.push_back(ValueOf(context->AttrAt(i), signature.attributes[i]));
    if (!arguments.attributes.back()) return std::nullopt;
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    auto* tensor = context->MutableOutputAt(context->OutputRangeAt(i).first);
    arguments.outputs.push_back(static_cast<DenseTensor*>(tensor));
  }
  return arguments;
}

void Compute(const WrappedKernel& kernel, const phi::CPUContext& cpu,
             phi::KernelContext* context) try {
  std::optional<Arguments> arguments;
  if (kernel.native || kernel.is_product) arguments = StaticArguments(kernel.signature, context);
  if (kernel.native && arguments && kernel.native(cpu, *arguments))
    return Count(kernel.counter->native);
  Count(kernel.counter->wrapped);
  const ThreadScope scope(kernel.is_product && arguments ? ProductWork(*arguments) : 0);
  kernel.cpu(context);
} catch (const std::exception&) {
  Rethrow(kernel.op);
}

// Gives the caller's context its own inputs and device back.
class Restore {
 public:
  explicit Restore(phi::KernelContext* context)
      : context_(context),
        device_(const_cast<phi::DeviceContext*>(&context->GetDeviceContext<phi::DeviceContext>())) {
    for (size_t i = 0; i < context->InputsSize(); ++i)
      inputs_.push_back(context->MutableInputAt(i));
  }
  ~Restore() {
    context_->SetDeviceContext(device_);
    for (size_t i = 0; i < inputs_.size(); ++i) context_->UpdataInput(i, inputs_[i]);
  }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  phi::KernelContext* context_;
  phi::DeviceContext* device_;
  paddle::small_vector<const phi::TensorBase*, 16> inputs_;
};

// The same call with float32 where an attribute names the narrow type.
phi::KernelContext WithWideAttributes(phi::KernelContext* context, const WrappedKernel& kernel,
                                      const HalfCall& half, phi::CPUContext* cpu) {
  phi::KernelContext wide(cpu);
  for (size_t i = 0; i < context->InputsSize(); ++i)
    wide.EmplaceBackInputWithoutSetRange(context->MutableInputAt(i));
  for (size_t i = 0; i < kernel.signature.inputs.size(); ++i)
    wide.AssignInputRange(std::pair<int, int>(context->InputRangeAt(i)), i);
  for (size_t i = 0; i < context->OutputsSize(); ++i)
    wide.EmplaceBackOutputWithoutSetRange(context->MutableOutputAt(i));
  for (size_t i = 0; i < kernel.signature.outputs.size(); ++i)
    wide.AssignOutputRange(std::pair<int, int>(context->OutputRangeAt(i)), i);
  for (size_t i = 0; i < context->AttrsSize(); ++i)
    wide.EmplaceBackAttr(half.Widened(context->AttrAt(i)));
  return wide;
}

bool AllDense(const Signature& signature) {
  for (auto kind : signature.inputs)
    if (kind != InputKind::kDense && kind != InputKind::kOptionalDense) return false;
  for (auto kind : signature.outputs)
    if (kind != OutputKind::kDense) return false;
  return true;
}

}  // namespace

std::string MakeEntry(WrappedKernel* kernel) {
  const std::string why = Describe(kernel->cpu.args_def(), &kernel->signature);
  if (!why.empty()) return why;
  if (kernel->is_float32 && AllDense(kernel->signature)) {
    kernel->native = FindNative(kernel->op, kernel->signature.attributes);
    kernel->is_product = IsProduct(kernel->op);
  }
  auto* closure = static_cast<ffi_closure*>(ffi_closure_alloc(sizeof(ffi_closure), &kernel->entry));
  const bool made = closure && ffi_prep_closure_loc(closure, &kernel->signature.call, RunDynamic,
                                                    kernel, kernel->entry) == FFI_OK;
  return made ? "" : "libffi can't make a function for it";
}

void RunStatic(phi::KernelContext* context, const WrappedKernel& kernel) {
  const BusyScope busy;
  const Timed timed(kernel.counter);
  const phi::Place& device = context->GetDeviceContext<phi::DeviceContext>().GetPlace();
  phi::CPUContext& cpu = CpuContextOf(device);
  LabelScope scope(device);
  const Restore restore(context);
  HalfCall half(kernel, cpu, &scope);
  for (size_t i = 0; i < context->OutputsSize(); ++i)
    scope.OutputOfAnyKind(context->MutableOutputAt(i));
  for (size_t i = 0; i < context->InputsSize(); ++i)
    context->UpdataInput(i, scope.Input(context->MutableInputAt(i)));
  context->SetDeviceContext(&cpu);
  if (!half) return Compute(kernel, cpu, context);

  phi::KernelContext wide = WithWideAttributes(context, kernel, half, &cpu);
  if (half.has_master()) {
    auto* parameter = wide.MutableInputAt(wide.InputRangeAt(0).first);
    auto* master = wide.MutableInputAt(wide.InputRangeAt(kernel.master_input).first);
    half.UseMaster(static_cast<const DenseTensor*>(parameter),
                   static_cast<const DenseTensor*>(master),
                   wide.MutableOutputAt<DenseTensor>(wide.OutputRangeAt(0).first));
  }
  Compute(kernel, cpu, &wide);
  half.Finish();
}

}  // namespace softipu
