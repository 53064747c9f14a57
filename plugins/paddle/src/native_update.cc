// What an optimiser's step does to every parameter: in one pass over memory, large ones in several
// threads.
#include <algorithm>
#include <string>

#include "native_ops.h"
#include "paddle/phi/common/int_array.h"
#include "paddle/phi/common/scalar.h"
#include "threads.h"
#include "vectorised.h"

namespace softipu {
namespace {

struct MomentumStep {
  float rate, momentum, decay;
  bool nesterov;
};

SOFTIPU_VECTORISED void Step(const MomentumStep& m, const float* parameter, const float* gradient,
                             const float* velocity, float* new_parameter, float* new_velocity,
                             int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float slope = parameter[i] * m.decay + gradient[i];
    const float faster = velocity[i] * m.momentum + slope;
    const float way = m.nesterov ? slope + faster * m.momentum : faster;
    new_velocity[i] = faster;
    new_parameter[i] = parameter[i] - way * m.rate;
  }
}

}  // namespace

bool Momentum(const phi::CPUContext& cpu, const Arguments& call) {
  const bool keeps_master = call.attribute<bool>(4);
  for (int i = 0; i < 4; ++i)
    if (call.inputs[i]->dtype() != phi::DataType::FLOAT32) return false;
  if (keeps_master) return false;
  const bool decays = call.attribute<std::string>(2) == "l2_decay";
  const MomentumStep settings = {*call.inputs[3]->data<float>(), call.attribute<float>(0),
                              decays ? call.attribute<float>(3) : 0, call.attribute<bool>(1)};
  const float *parameter = call.inputs[0]->data<float>(), *gradient = call.inputs[1]->data<float>();
  const float* velocity = call.inputs[2]->data<float>();
  float *new_parameter = Result(cpu, call.outputs[0]), *new_velocity = Result(cpu, call.outputs[1]);
  const int64_t count = call.inputs[0]->numel();
  InParts(count, 5 * count, [=](int64_t begin, int64_t end) {
    Step(settings, parameter + begin, gradient + begin, velocity + begin, new_parameter + begin,
         new_velocity + begin, end - begin);
  });
  return true;
}

bool Full(const phi::CPUContext& cpu, const Arguments& call) {
  phi::DenseTensor* out = call.outputs[0];
  const auto& shape = call.attribute<phi::IntArray>(0).GetData();
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  if (!PartsPay(count)) return false;
  const auto value = call.attribute<phi::Scalar>(1).to<float>();
  out->Resize(common::make_ddim(shape));
  float* values = Result(cpu, out);
  InParts(count, count,
          [=](int64_t begin, int64_t end) { std::fill(values + begin, values + end, value); });
  return true;
}

}  // namespace softipu
