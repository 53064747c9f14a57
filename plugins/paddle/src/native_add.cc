// add with a tensor that is repeated along other dimensions (a bias), and its gradient.
//
// The CPU's kernels treat any broadcast alike, index by index. A bias repeats in one simple way:
// the larger tensor is [before, size, after], the smaller one [size].
#include <cstring>
#include <vector>

#include "native_ops.h"
#include "threads.h"
#include "vectorised.h"

namespace softipu {
namespace {

using phi::DenseTensor;

constexpr int kLanes = 16;

struct Repetition {
  int64_t before = 1, size = 1, after = 1;
};

// How `small` repeats in `large`, if it does so in the simple way.
bool Fill(const phi::DDim& large, const phi::DDim& small, Repetition* repetition) {
  if (small.size() > large.size() || large == small) return false;
  const int offset = large.size() - small.size();
  int first = 0, last = small.size();
  while (first < last && small[first] == 1) ++first;
  while (last > first && small[last - 1] == 1) --last;
  for (int i = first; i < last; ++i)
    if (small[i] != large[offset + i]) return false;
  for (int i = 0; i < large.size(); ++i) {
    const int64_t size = large[i];
    (i < offset + first ? repetition->before
                        : i < offset + last ? repetition->size : repetition->after) *= size;
  }
  return true;
}

SOFTIPU_VECTORISED void AddRow(const float* x, const float* y, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = x[i] + y[i];
}

SOFTIPU_VECTORISED void AddNumber(const float* x, float y, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = x[i] + y;
}

SOFTIPU_VECTORISED float Sum(const float* values, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  for (; i < count; ++i) sum += values[i];
  return sum;
}

void AddRepeated(const float* large, const float* small, const Repetition& r, float* sum) {
  for (int64_t before = 0; before < r.before; ++before) {
    const int64_t plane = before * r.size * r.after;
    if (r.after == 1) {
      AddRow(large + plane, small, sum + plane, r.size);
      continue;
    }
    for (int64_t i = 0; i < r.size; ++i) {
      const int64_t at = plane + i * r.after;
      AddNumber(large + at, small[i], sum + at, r.after);
    }
  }
}

void SumRepeated(const float* large, const Repetition& r, float* sums) {
  std::memset(sums, 0, r.size * sizeof(float));
  for (int64_t before = 0; before < r.before; ++before) {
    const float* plane = large + before * r.size * r.after;
    if (r.after == 1) {
      AddRow(sums, plane, sums, r.size);
      continue;
    }
    for (int64_t i = 0; i < r.size; ++i) sums[i] += Sum(plane + i * r.after, r.after);
  }
}

// Refuses numbers of another type, which a program may be fed with, as the CPU's kernels do.
const float* Floats(const DenseTensor& tensor) { return tensor.data<float>(); }

// Two of one shape: the CPU's kernel uses one thread, and for a few numbers it takes longer to call
// than to do.
void AddEqual(const float* left, const float* right, float* sum, int64_t count) {
  const int64_t values = 3 * count;
  if (!PartsPay(values)) return AddRow(left, right, sum, count);
  InParts(count, values, [=](int64_t begin, int64_t end) {
    AddRow(left + begin, right + begin, sum + begin, end - begin);
  });
}

}  // namespace

bool Add(const phi::CPUContext& cpu, const Arguments& call) {
  const auto &x = *call.inputs[0], &y = *call.inputs[1];
  Repetition repetition;
  if (x.numel() == 0 || y.numel() == 0 || y.dtype() != phi::DataType::FLOAT32) return false;
  if (x.dims() == y.dims()) {
    AddEqual(Floats(x), Floats(y), Result(cpu, call.outputs[0]), x.numel());
    return true;
  }
  const bool y_repeats = Fill(x.dims(), y.dims(), &repetition);
  if (!y_repeats && !Fill(y.dims(), x.dims(), &repetition)) return false;
  const auto &large = y_repeats ? x : y, &small = y_repeats ? y : x;
  AddRepeated(Floats(large), Floats(small), repetition, Result(cpu, call.outputs[0]));
  return true;
}

bool AddGrad(const phi::CPUContext& cpu, const Arguments& call) {
  const auto &x = *call.inputs[0], &y = *call.inputs[1], &sum_grad = *call.inputs[2];
  auto *x_grad = call.outputs[0], *y_grad = call.outputs[1];
  Repetition repetition;
  const bool ours = call.attribute<int>(0) == -1 && sum_grad.numel() > 0 &&
                    x.dims() == sum_grad.dims() && y.dtype() == phi::DataType::FLOAT32 &&
                    Fill(x.dims(), y.dims(), &repetition);
  if (!ours) return false;
  // The gradient of x may take over the memory of the sum's: y's comes first.
  if (y_grad) SumRepeated(Floats(sum_grad), repetition, Result(cpu, y_grad));
  if (x_grad) {
    float* result = Result(cpu, x_grad);
    if (result != Floats(sum_grad))
      std::memcpy(result, Floats(sum_grad), sum_grad.numel() * sizeof(float));
  }
  return true;
}

}  // namespace softipu
