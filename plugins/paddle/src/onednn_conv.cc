// Convolution and its gradients on oneDNN: conv2d and depthwise_conv2d, NCHW, any groups.
#include "native_ops.h"

#ifdef SOFTIPU_WITH_ONEDNN

#include <array>
#include <string>

#include "onednn.h"
#include "threads.h"

namespace softipu {
namespace {

using dnnl::memory;
using onednn::Operand;
using onednn::Operation;
using phi::DenseTensor;

struct Geometry {
  int64_t batch, channels, height, width;
  int64_t filters, channels_per_group, kernel_height, kernel_width, groups;
  int64_t out_height, out_width;
  memory::dims strides, dilations, padding_before, padding_after;

  int64_t work() const {  // multiply-adds
    return batch * filters * out_height * out_width * channels_per_group * kernel_height *
           kernel_width;
  }

  onednn::Key key(int64_t which, int64_t threads) const {
    return {which, threads, batch, channels, height, width, filters, channels_per_group,
            kernel_height, kernel_width, groups, strides[0], strides[1], dilations[0],
            dilations[1], padding_before[0], padding_before[1], padding_after[0],
            padding_after[1]};
  }
};

struct Settings {
  const std::vector<int>& strides;
  const std::vector<int>& paddings;
  const std::string& padding_algorithm;
  const std::vector<int>& dilations;
  int groups;
  const std::string& layout;
};

Settings SettingsOf(const Arguments& call) {
  using Ints = std::vector<int>;
  return {call.attribute<Ints>(0), call.attribute<Ints>(1), call.attribute<std::string>(2),
          call.attribute<Ints>(3), call.attribute<int>(4),  call.attribute<std::string>(5)};
}

Settings DepthwiseSettingsOf(const Arguments& call) {
  using Ints = std::vector<int>;
  return {call.attribute<Ints>(0), call.attribute<Ints>(1), call.attribute<std::string>(2),
          call.attribute<Ints>(4), call.attribute<int>(3),  call.attribute<std::string>(5)};
}

int64_t OutputSize(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                   int64_t padding) {
  return (size + padding - (dilation * (kernel - 1) + 1)) / stride + 1;
}

// A 1x1 convolution is a matrix product on NCHW as it is: the CPU's kernel does just that, while
// oneDNN's would cost two changes of layout.
bool IsMatrixProduct(const DenseTensor& filter, const Settings& settings) {
  const auto all = [](const std::vector<int>& values, int value) {
    for (int other : values)
      if (other != value) return false;
    return true;
  };
  return filter.dims()[2] == 1 && filter.dims()[3] == 1 && settings.groups == 1 &&
         all(settings.strides, 1) && all(settings.paddings, 0);
}

// Where oneDNN is faster nevertheless: MKL multiplies image by image, and small ones give several
// threads too little to do.
bool IsSmallPlane(const DenseTensor& input) {
  constexpr int64_t kFewPixels = 256;
  return MostThreads() > 1 && input.dims()[2] * input.dims()[3] < kFewPixels;
}

bool Fill(const DenseTensor& input, const DenseTensor& filter, const Settings& settings,
          Geometry* geometry) {
  const auto &in = input.dims(), &kernel = filter.dims();
  const auto& pad = settings.paddings;
  const bool ours = settings.layout == "NCHW" && settings.padding_algorithm == "EXPLICIT" &&
                    in.size() == 4 && kernel.size() == 4 && settings.strides.size() == 2 &&
                    settings.dilations.size() == 2 && (pad.size() == 2 || pad.size() == 4) &&
                    input.numel() > 0 && filter.numel() > 0;
  if (!ours || (IsMatrixProduct(filter, settings) && !IsSmallPlane(input))) return false;
  Geometry& g = *geometry;
  const bool per_side = pad.size() == 4;
  g.padding_before = {pad[0], per_side ? pad[2] : pad[1]};
  g.padding_after = {per_side ? pad[1] : pad[0], per_side ? pad[3] : pad[1]};
  g.batch = in[0], g.channels = in[1], g.height = in[2], g.width = in[3];
  g.filters = kernel[0], g.channels_per_group = kernel[1];
  g.kernel_height = kernel[2], g.kernel_width = kernel[3], g.groups = settings.groups;
  g.strides = {settings.strides[0], settings.strides[1]};
  g.dilations = {settings.dilations[0] - 1, settings.dilations[1] - 1};  // oneDNN counts gaps
  g.out_height = OutputSize(g.height, g.kernel_height, g.strides[0], settings.dilations[0],
                            g.padding_before[0] + g.padding_after[0]);
  g.out_width = OutputSize(g.width, g.kernel_width, g.strides[1], settings.dilations[1],
                           g.padding_before[1] + g.padding_after[1]);
  return true;
}

// Left alone, oneDNN would choose channels last, which costs more to change to and from NCHW than
// blocks of channels do.
bool BlocksPay(const Geometry& g) {
  static const bool wide_vectors =
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  return wide_vectors && g.groups == 1 && g.channels % 16 == 0 && g.filters % 16 == 0;
}

// The three tensors of a convolution, once as Paddle has them, once with oneDNN free to choose.
struct Descriptions {
  memory::desc plain_input, plain_filter, plain_output, input, filter, output;

  explicit Descriptions(const Geometry& g) {
    const auto f32 = memory::data_type::f32;
    const auto any = memory::format_tag::any;
    const memory::dims in = {g.batch, g.channels, g.height, g.width};
    const memory::dims out = {g.batch, g.filters, g.out_height, g.out_width};
    const bool grouped = g.groups > 1;
    const memory::dims kernel =
        grouped ? memory::dims{g.groups, g.filters / g.groups, g.channels_per_group,
                               g.kernel_height, g.kernel_width}
                : memory::dims{g.filters, g.channels_per_group, g.kernel_height, g.kernel_width};
    plain_input = {in, f32, memory::format_tag::nchw};
    plain_output = {out, f32, memory::format_tag::nchw};
    plain_filter = {kernel, f32, grouped ? memory::format_tag::goihw : memory::format_tag::oihw};
    const auto chosen = BlocksPay(g) ? memory::format_tag::nChw16c : any;
    input = {in, f32, chosen};
    filter = {kernel, f32, any};
    output = {out, f32, chosen};
  }
};

dnnl::convolution_forward::primitive_desc Forward(const Geometry& g, const Descriptions& d,
                                                  dnnl::prop_kind kind) {
  return {onednn::Engine(), kind,        dnnl::algorithm::convolution_direct,
          d.input,          d.filter,    d.output,
          g.strides,        g.dilations, g.padding_before,
          g.padding_after,  onednn::OwnWorkspace()};
}

Operation MakeForward(const Geometry& g) {
  const Descriptions d(g);
  const auto forward = Forward(g, d, dnnl::prop_kind::forward_inference);
  return {dnnl::convolution_forward(forward), forward.scratchpad_desc(),
          {Operand(DNNL_ARG_SRC, d.plain_input, forward.src_desc(), false),
           Operand(DNNL_ARG_WEIGHTS, d.plain_filter, forward.weights_desc(), false),
           Operand(DNNL_ARG_DST, d.plain_output, forward.dst_desc(), true)}};
}

Operation MakeInputGradient(const Geometry& g) {
  const Descriptions d(g);
  const dnnl::convolution_backward_data::primitive_desc backward(
      onednn::Engine(), dnnl::algorithm::convolution_direct, d.input, d.filter, d.output, g.strides,
      g.dilations, g.padding_before, g.padding_after,
      Forward(g, d, dnnl::prop_kind::forward_training), onednn::OwnWorkspace());
  return {dnnl::convolution_backward_data(backward), backward.scratchpad_desc(),
          {Operand(DNNL_ARG_WEIGHTS, d.plain_filter, backward.weights_desc(), false),
           Operand(DNNL_ARG_DIFF_DST, d.plain_output, backward.diff_dst_desc(), false),
           Operand(DNNL_ARG_DIFF_SRC, d.plain_input, backward.diff_src_desc(), true)}};
}

Operation MakeFilterGradient(const Geometry& g) {
  const Descriptions d(g);
  const dnnl::convolution_backward_weights::primitive_desc backward(
      onednn::Engine(), dnnl::algorithm::convolution_direct, d.input, d.filter, d.output, g.strides,
      g.dilations, g.padding_before, g.padding_after,
      Forward(g, d, dnnl::prop_kind::forward_training), onednn::OwnWorkspace());
  return {dnnl::convolution_backward_weights(backward), backward.scratchpad_desc(),
          {Operand(DNNL_ARG_SRC, d.plain_input, backward.src_desc(), false),
           Operand(DNNL_ARG_DIFF_DST, d.plain_output, backward.diff_dst_desc(), false),
           Operand(DNNL_ARG_DIFF_WEIGHTS, d.plain_filter, backward.diff_weights_desc(), true)}};
}

enum Which : int64_t { kForward, kInputGradient, kFilterGradient };

// oneDNN divides the work when it makes a primitive: for as many threads as will run it.
std::shared_ptr<const Operation> Get(Which which, const Geometry& geometry,
                                     const ThreadScope& scope) {
  return onednn::Cache().Get(geometry.key(which, scope.threads()), [&] {
    switch (which) {
      case kForward: return MakeForward(geometry);
      case kInputGradient: return MakeInputGradient(geometry);
      default: return MakeFilterGradient(geometry);
    }
  });
}

// Refuses numbers of another type, which a program may be fed with, as the CPU's kernels do.
void* Data(const DenseTensor& tensor) { return const_cast<float*>(tensor.data<float>()); }

bool Compute(const phi::CPUContext& cpu, const Arguments& call, const Settings& settings) {
  const auto &input = *call.inputs[0], &filter = *call.inputs[1];
  Geometry geometry;
  if (!Fill(input, filter, settings, &geometry)) return false;
  const ThreadScope scope(geometry.work());
  const auto convolution = Get(kForward, geometry, scope);
  if (!convolution) return false;
  void* output = cpu.Alloc(call.outputs[0], phi::DataType::FLOAT32);
  convolution->Run({Data(input), Data(filter), output});
  return true;
}

bool ComputeGradients(const phi::CPUContext& cpu, const Arguments& call, const Settings& settings) {
  const auto &input = *call.inputs[0], &filter = *call.inputs[1], &output_grad = *call.inputs[2];
  auto *input_grad = call.outputs[0], *filter_grad = call.outputs[1];
  Geometry geometry;
  if (!Fill(input, filter, settings, &geometry)) return false;
  const ThreadScope scope(geometry.work());
  const auto for_filter = filter_grad ? Get(kFilterGradient, geometry, scope) : nullptr;
  const auto for_input = input_grad ? Get(kInputGradient, geometry, scope) : nullptr;
  if ((filter_grad && !for_filter) || (input_grad && !for_input)) return false;
  if (for_filter) {
    void* result = cpu.Alloc(filter_grad, phi::DataType::FLOAT32);
    for_filter->Run({Data(input), Data(output_grad), result});
  }
  if (for_input) {
    void* result = cpu.Alloc(input_grad, phi::DataType::FLOAT32);
    constexpr int kOutputGradient = 1;  // both have it there, often in the same layout
    const bool is_ready = for_filter && for_input->operands[kOutputGradient].HasLayoutsOf(
                                            for_filter->operands[kOutputGradient]);
    for_input->Run({Data(filter), Data(output_grad), result}, is_ready ? kOutputGradient : -1);
  }
  return true;
}

}  // namespace

bool Conv2d(const phi::CPUContext& cpu, const Arguments& call) {
  return Compute(cpu, call, SettingsOf(call));
}

bool Conv2dGrad(const phi::CPUContext& cpu, const Arguments& call) {
  return ComputeGradients(cpu, call, SettingsOf(call));
}

bool DepthwiseConv2d(const phi::CPUContext& cpu, const Arguments& call) {
  return Compute(cpu, call, DepthwiseSettingsOf(call));
}

bool DepthwiseConv2dGrad(const phi::CPUContext& cpu, const Arguments& call) {
  return ComputeGradients(cpu, call, DepthwiseSettingsOf(call));
}

}  // namespace softipu

#endif  // SOFTIPU_WITH_ONEDNN
