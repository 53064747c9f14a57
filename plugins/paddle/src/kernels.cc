#include "kernels.h"

#include <set>

#include "complex_gradients.h"
#include "counters.h"
#include "dispatch.h"
#include "half.h"
#include "paddle/common/flags.h"
#include "paddle/phi/core/enforce.h"

namespace softipu {
namespace {

using phi::Backend;
using phi::DataType;

// These move data between host and device: Paddle's own kernels do it through the runtime.
bool MovesData(const std::string& op) {
  static const std::set<std::string> ops = {
      "feed",       "fetch",      "fetch_v2",           "memcpy_d2h",
      "memcpy_h2d", "memcpy_d2h_multi_io", "memcpy_h2d_multi_io",
  };
  return ops.count(op) > 0;
}

// These compute with other processes: the CPU's go through its own backend, Gloo, or refuse. Paddle
// has kernels for all plugins' devices that use the plugin's collectives. (Of global_gather and
// global_scatter too, but those crash in Paddle 3.3: the CPU's at least say that they can't.)
bool Communicates(const std::string& op) {
  static const std::set<std::string> ops = {
      "all_gather", "all_reduce", "all_to_all", "barrier",          "c_concat",
      "c_identity", "c_split",    "reduce",     "mp_allreduce_sum", "c_softmax_with_cross_entropy",
  };
  return ops.count(op) > 0;
}

[[noreturn]] void Refuse(const std::string& op) {
  PADDLE_THROW(common::errors::Unimplemented(
      "SIPU-4201: the op %s has no kernel for ipu: Paddle would run it on the CPU, which "
      "SOFTIPU_PADDLE_STRICT=1 forbids. Unset it, or move the op's tensors to the CPU yourself.",
      op));
}

// A function that may be called with any arguments, since it looks at none of them.
void* RefusingEntry(const std::string* op) {
  static ffi_cif call = [] {
    ffi_cif made;
    ffi_prep_cif(&made, FFI_DEFAULT_ABI, 0, &ffi_type_void, nullptr);
    return made;
  }();
  void* entry = nullptr;
  auto* closure = static_cast<ffi_closure*>(ffi_closure_alloc(sizeof(ffi_closure), &entry));
  auto refuse = [](ffi_cif*, void*, void**, void* name) {
    Refuse(*static_cast<const std::string*>(name));
  };
  ffi_prep_closure_loc(closure, &call, refuse, const_cast<std::string*>(op), entry);
  return entry;
}

// Adds kernels of one op for one device type.
class Registrar {
 public:
  Registrar(const std::string& op, phi::KernelKeyMap* kernels, Backend device)
      : op_(op), kernels_(kernels), device_(device) {}

  void AddAll() {
    std::vector<phi::KernelKey> cpu;
    for (auto& entry : *kernels_)
      if (entry.first.backend() == Backend::CPU) cpu.push_back(entry.first);
    for (auto& key : cpu) Add(key, key.dtype());
    for (auto& key : cpu) {
      if (key.dtype() != DataType::FLOAT32) continue;
      Add(key, DataType::FLOAT16);
      Add(key, DataType::BFLOAT16);
    }
  }

 private:
  // A kernel for `type` from the CPU's kernel `cpu`, unless there is one.
  void Add(const phi::KernelKey& cpu, DataType type) {
    const phi::KernelKey key(device_, cpu.layout(), type);
    if (kernels_->count(key)) return;
    auto kernel = std::make_unique<WrappedKernel>();
    kernel->op = op_;
    kernel->cpu = kernels_->at(cpu);
    if (type != cpu.dtype()) kernel->narrow = type;
    kernel->is_float32 = cpu.dtype() == DataType::FLOAT32;
    kernel->master_input = MasterInputOf(op_);
    kernel->counter = CounterOf(op_);
    const bool callable = kernel->cpu.GetVariadicKernelFn<void*>() != nullptr;
    const std::string why = callable ? MakeEntry(kernel.get()) : "only static graphs can call it";
    if (why.empty()) return Register(key, kernel.release());
    NoteWithoutKernel(op_, why);
    if (flags.strict) RegisterRefusal(key, kernel->cpu.args_def());
  }

  void RegisterRefusal(const phi::KernelKey& key, const phi::KernelArgsDef& arguments) {
    auto* name = new std::string(op_);  // lives as long as the registry
    phi::Kernel kernel([name](phi::KernelContext*) { Refuse(*name); }, RefusingEntry(name));
    *kernel.mutable_args_def() = arguments;
    (*kernels_)[key] = kernel;
  }

  void Register(const phi::KernelKey& key, const WrappedKernel* wrapped) {
    phi::Kernel kernel([wrapped](phi::KernelContext* context) { RunStatic(context, *wrapped); },
                       wrapped->entry);
    *kernel.mutable_args_def() = wrapped->cpu.args_def();
    // Inputs on the CPU are as good as ours, and a copy would break in-place updates of them.
    for (auto& input : kernel.mutable_args_def()->input_defs())
      if (input.backend == Backend::CPU) input.SetBackend(Backend::ALL_BACKEND);
    for (auto& output : kernel.mutable_args_def()->output_defs())
      if (output.backend == Backend::CPU) output.SetBackend(device_);
    if (wrapped->narrow != DataType::UNDEFINED) Narrow(kernel.mutable_args_def(), wrapped->narrow);
    (*kernels_)[key] = kernel;
  }

  static void Narrow(phi::KernelArgsDef* arguments, DataType narrow) {
    for (auto& input : arguments->input_defs())
      if (input.dtype == DataType::FLOAT32) input.SetDataType(narrow);
    for (auto& output : arguments->output_defs())
      if (output.dtype == DataType::FLOAT32) output.SetDataType(narrow);
  }

  const std::string& op_;
  phi::KernelKeyMap* kernels_;
  const Backend device_;
};

}  // namespace

void RegisterKernels(const std::string& device_type) {
  const Backend device = phi::TransToPhiBackend(phi::CustomPlace(device_type, 0));
  for (auto& op : phi::KernelFactory::Instance().kernels())
    if (!MovesData(op.first) && !Communicates(op.first))
      Registrar(op.first, &op.second, device).AddAll();
  TakeRealPartsOnDevice();
  // Kernels that a program registers later can't be seen here; this flag is Paddle's own refusal.
  if (flags.strict) paddle::flags::SetFlagValue("enable_api_kernel_fallback", "false");
  if (flags.report) PrintTableAtExit();
}

std::string KernelReport() { return CounterTable(); }

}  // namespace softipu

extern "C" __attribute__((visibility("default"))) const char* SoftipuKernelCounts() {
  static thread_local std::string text;
  text = softipu::CounterLines();
  return text.c_str();
}
