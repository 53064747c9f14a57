// batch_norm and its gradient for images, NCHW: channel by channel, so that what one pass has read is
// still in the cache for the next, and large ones in several threads.
#include <cmath>
#include <string>

#include "native_ops.h"
#include "threads.h"
#include "vectorised.h"

namespace softipu {
namespace {

using phi::DenseTensor;

constexpr int kLanes = 16;
constexpr int64_t kLeastValues = 1 << 14;  // below, the CPU's kernel is as good

// A tensor of images: a plane for each channel of each.
struct Planes {
  int64_t batch = 0, channels = 0, size = 0;

  int64_t at(int64_t image, int64_t channel) const { return (image * channels + channel) * size; }
  double count() const { return static_cast<double>(batch) * size; }
  int64_t numel() const { return batch * channels * size; }
};

// What a channel's values are multiplied by and what is added then.
struct Line {
  float factor, offset;
};

struct GradSums {
  double grad = 0, grad_times_centred = 0;
};

SOFTIPU_VECTORISED double Sum(const float* x, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  for (; i < count; ++i) sum += x[i];
  return sum;
}

SOFTIPU_VECTORISED double SumOfSquares(const float* x, float mean, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[lane] += (x[i + lane] - mean) * (x[i + lane] - mean);
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  for (; i < count; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

SOFTIPU_VECTORISED double SumOfProducts(const float* x, float mean, const float* grad,
                                        int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[lane] += (x[i + lane] - mean) * grad[i + lane];
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  for (; i < count; ++i) sum += (x[i] - mean) * grad[i];
  return sum;
}

SOFTIPU_VECTORISED void Apply(Line line, const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * line.factor + line.offset;
}

// factor * (grad - mean_grad - (x - mean) * slope)
SOFTIPU_VECTORISED void ApplyGrad(float factor, float mean_grad, float mean, float slope,
                                  const float* x, const float* grad, float* x_grad,
                                  int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    x_grad[i] = factor * (grad[i] - mean_grad - (x[i] - mean) * slope);
}

bool Fill(const DenseTensor& x, const std::string& layout, Planes* planes) {
  const auto& dims = x.dims();
  if (layout != "NCHW" || dims.size() < 3 || dims.size() > 5 || x.numel() < kLeastValues)
    return false;
  planes->batch = dims[0], planes->channels = dims[1];
  planes->size = x.numel() / (dims[0] * dims[1]);
  return planes->batch * planes->size > 1;  // of a single value there is no variance
}

const float* Floats(const DenseTensor* tensor) { return tensor ? tensor->data<float>() : nullptr; }

double MeanOf(const float* x, const Planes& planes, int64_t channel) {
  double sum = 0;
  for (int64_t n = 0; n < planes.batch; ++n) sum += Sum(x + planes.at(n, channel), planes.size);
  return sum / planes.count();
}

double VarianceOf(const float* x, const Planes& planes, int64_t channel, float mean) {
  double sum = 0;
  for (int64_t n = 0; n < planes.batch; ++n)
    sum += SumOfSquares(x + planes.at(n, channel), mean, planes.size);
  return sum / planes.count();
}

GradSums GradSumsOf(const float* x, const float* grad, const Planes& planes, int64_t channel,
                    float mean) {
  GradSums sums;
  for (int64_t n = 0; n < planes.batch; ++n) {
    const int64_t at = planes.at(n, channel);
    sums.grad += Sum(grad + at, planes.size);
    sums.grad_times_centred += SumOfProducts(x + at, mean, grad + at, planes.size);
  }
  return sums;
}

}  // namespace

bool BatchNorm(const phi::CPUContext& cpu, const Arguments& call) {
  const auto& x = *call.inputs[0];
  const bool is_test = call.attribute<bool>(0), trainable = call.attribute<bool>(5);
  const float momentum = call.attribute<float>(1), epsilon = call.attribute<float>(2);
  const bool given = (is_test && !trainable) || call.attribute<bool>(4);
  Planes planes;
  for (int i = 0; i < 5; ++i)
    if (!call.outputs[i]) return false;
  if (!Fill(x, call.attribute<std::string>(3), &planes)) return false;

  const float *from = Floats(&x), *old_mean = Floats(call.inputs[1]);
  const float* old_variance = Floats(call.inputs[2]);
  const float *scale = Floats(call.inputs[3]), *bias = Floats(call.inputs[4]);
  float *y = Result(cpu, call.outputs[0]), *new_mean = Result(cpu, call.outputs[1]);
  float* new_variance = Result(cpu, call.outputs[2]);
  float *saved_mean = Result(cpu, call.outputs[3]), *saved_inverse = Result(cpu, call.outputs[4]);
  if (auto* reserve = call.outputs[5]) {
    reserve->Resize({0});
    Result(cpu, reserve);
  }
  InParts(planes.channels, 2 * planes.numel(), [=](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      float mean = old_mean[c], variance = old_variance[c];
      if (!given) {
        mean = MeanOf(from, planes, c);
        variance = VarianceOf(from, planes, c, mean);
        new_mean[c] = old_mean[c] * momentum + mean * (1 - momentum);
        new_variance[c] = old_variance[c] * momentum + variance * (1 - momentum);
      }
      const float inverse = 1 / std::sqrt(variance + epsilon);
      if (!given) saved_mean[c] = mean, saved_inverse[c] = inverse;
      const float factor = scale ? inverse * scale[c] : inverse;
      const Line line = {factor, (bias ? bias[c] : 0) - mean * factor};
      for (int64_t n = 0; n < planes.batch; ++n)
        Apply(line, from + planes.at(n, c), y + planes.at(n, c), planes.size);
    }
  });
  return true;
}

bool BatchNormGrad(const phi::CPUContext& cpu, const Arguments& call) {
  const auto& x = *call.inputs[0];
  const bool given = call.attribute<bool>(3) || call.attribute<bool>(4);
  Planes planes;
  if (given || !Fill(x, call.attribute<std::string>(2), &planes)) return false;

  const float *from = Floats(&x), *scale = Floats(call.inputs[1]);
  const float *means = Floats(call.inputs[5]), *inverses = Floats(call.inputs[6]);
  const float* y_grad = Floats(call.inputs[8]);
  float *x_grad = Result(cpu, call.outputs[0]), *scale_grad = Result(cpu, call.outputs[1]);
  float* bias_grad = Result(cpu, call.outputs[2]);
  InParts(planes.channels, 3 * planes.numel(), [=](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const float mean = means[c], inverse = inverses[c];
      const GradSums sums = GradSumsOf(from, y_grad, planes, c, mean);
      if (bias_grad) bias_grad[c] = sums.grad;
      if (scale_grad) scale_grad[c] = sums.grad_times_centred * inverse;
      if (!x_grad) continue;
      const float factor = scale ? inverse * scale[c] : inverse;
      const float slope = sums.grad_times_centred * inverse * inverse / planes.count();
      for (int64_t n = 0; n < planes.batch; ++n) {
        const int64_t at = planes.at(n, c);
        ApplyGrad(factor, sums.grad / planes.count(), mean, slope, from + at, y_grad + at,
                  x_grad + at, planes.size);
      }
    }
  });
  return true;
}

}  // namespace softipu
