// matmul and its gradient on oneDNN's sgemm. The CPU's kernel calls MKL, which leaves the wide
// vectors of some processors unused.
#include "native_ops.h"

#ifdef SOFTIPU_WITH_ONEDNN

#include <oneapi/dnnl/dnnl.h>

#include "paddle/phi/core/enforce.h"
#include "threads.h"

namespace softipu {
namespace {

using phi::DDim;
using phi::DenseTensor;

// A matrix for each of a batch, or one for all of them (then `step` is 0).
struct Matrices {
  const float* data;
  int64_t step;
  bool transposed;
};

// rows x depth times depth x columns, for each of a batch. With `sums`, all go into one result.
struct Product {
  int64_t batch, rows, columns, depth;
  Matrices left, right;
  float* result;
  bool sums = false;

  int64_t work() const { return rows * columns * depth; }  // multiply-adds of one
};

void Multiply(const Product& p, int64_t index) {
  const int64_t left_row = p.left.transposed ? p.rows : p.depth;
  const int64_t right_row = p.right.transposed ? p.depth : p.columns;
  const auto letter = [](const Matrices& side) { return side.transposed ? 'T' : 'N'; };
  const auto status = dnnl_sgemm(
      letter(p.left), letter(p.right), p.rows, p.columns, p.depth, 1.0f,
      p.left.data + index * p.left.step, left_row, p.right.data + index * p.right.step, right_row,
      p.sums && index > 0 ? 1.0f : 0.0f,
      p.result + (p.sums ? 0 : index * p.rows * p.columns), p.columns);
  if (status == dnnl_success) return;
  PADDLE_THROW(common::errors::External(
      "SIPU-4202: oneDNN failed: sgemm (status %d). SOFTIPU_PADDLE_ONEDNN=0 does without it.",
      static_cast<int>(status)));
}

// Matrices that lie on top of each other are one: fewer, larger products take less time.
Product Folded(Product p) {
  const bool rows_stack = !p.sums && !p.left.transposed && p.right.step == 0;
  const bool depths_stack = p.sums && p.left.transposed && !p.right.transposed &&
                            p.left.step != 0 && p.right.step != 0;
  if (rows_stack && p.left.step != 0) p.rows *= p.batch;
  if (depths_stack) p.depth *= p.batch;
  if ((rows_stack && p.left.step != 0) || depths_stack) p.batch = 1;
  return p;
}

void Multiply(const Product& given) {
  const Product p = Folded(given);
  if (p.batch >= MostThreads() && p.batch > 1 && !p.sums) {
    constexpr int64_t kWorkOfValue = 32;  // what threads.cc takes for equally long
    return InParts(p.batch, p.batch * p.work() / kWorkOfValue, [&](int64_t begin, int64_t end) {
      for (int64_t index = begin; index < end; ++index) Multiply(p, index);
    });
  }
  const ThreadScope scope(p.work());
  for (int64_t index = 0; index < p.batch; ++index) Multiply(p, index);
}

struct Shapes {
  int64_t batch = 1, rows, columns, depth;
  bool left_repeats = false, right_repeats = false;
};

int64_t BatchOf(const DDim& dims) {
  int64_t batch = 1;
  for (int i = 0; i < dims.size() - 2; ++i) batch *= dims[i];
  return batch;
}

bool SameBatch(const DDim& left, const DDim& right) {
  if (left.size() != right.size()) return false;
  for (int i = 0; i < left.size() - 2; ++i)
    if (left[i] != right[i]) return false;
  return true;
}

// False for vectors, nothing at all, and batches that repeat in parts.
bool Fill(const DenseTensor& left, const DenseTensor& right, bool turn_left, bool turn_right,
          Shapes* shapes) {
  const auto &x = left.dims(), &y = right.dims();
  const int a = x.size(), b = y.size();
  if (a < 2 || b < 2 || left.numel() == 0 || right.numel() == 0) return false;
  if (left.dtype() != phi::DataType::FLOAT32 || right.dtype() != left.dtype()) return false;
  const int64_t left_batch = BatchOf(x), right_batch = BatchOf(y);
  if (!SameBatch(x, y)) {
    shapes->left_repeats = left_batch == 1;
    shapes->right_repeats = right_batch == 1;
    if (!shapes->left_repeats && !shapes->right_repeats) return false;
  }
  shapes->batch = shapes->left_repeats ? right_batch : left_batch;
  shapes->rows = x[turn_left ? a - 1 : a - 2];
  shapes->depth = x[turn_left ? a - 2 : a - 1];
  shapes->columns = y[turn_right ? b - 2 : b - 1];
  return shapes->depth == y[turn_right ? b - 1 : b - 2];
}

}  // namespace

bool Matmul(const phi::CPUContext& cpu, const Arguments& call) {
  const auto &x = *call.inputs[0], &y = *call.inputs[1];
  const bool turn_x = call.attribute<bool>(0), turn_y = call.attribute<bool>(1);
  Shapes s;
  if (!Fill(x, y, turn_x, turn_y, &s)) return false;
  if (call.outputs[0]->numel() != s.batch * s.rows * s.columns) return false;
  const Matrices left{x.data<float>(), s.left_repeats ? 0 : s.rows * s.depth, turn_x};
  const Matrices right{y.data<float>(), s.right_repeats ? 0 : s.depth * s.columns, turn_y};
  Multiply({s.batch, s.rows, s.columns, s.depth, left, right, Result(cpu, call.outputs[0])});
  return true;
}

bool MatmulGrad(const phi::CPUContext& cpu, const Arguments& call) {
  const auto &x = *call.inputs[0], &y = *call.inputs[1], &out_grad = *call.inputs[2];
  const bool turn_x = call.attribute<bool>(0), turn_y = call.attribute<bool>(1);
  Shapes s;
  if (!Fill(x, y, turn_x, turn_y, &s)) return false;
  const bool fits = out_grad.dtype() == phi::DataType::FLOAT32 &&
                    out_grad.numel() == s.batch * s.rows * s.columns;
  if (!fits) return false;
  const auto left = [&](bool turned) {
    return Matrices{x.data<float>(), s.left_repeats ? 0 : s.rows * s.depth, turned};
  };
  const auto right = [&](bool turned) {
    return Matrices{y.data<float>(), s.right_repeats ? 0 : s.depth * s.columns, turned};
  };
  const auto out = [&](bool turned) {
    return Matrices{out_grad.data<float>(), s.rows * s.columns, turned};
  };
  if (float* to = Result(cpu, call.outputs[0])) {
    const bool sums = s.left_repeats && s.batch > 1;
    if (turn_x) {
      Multiply({s.batch, s.depth, s.rows, s.columns, right(turn_y), out(true), to, sums});
    } else {
      Multiply({s.batch, s.rows, s.depth, s.columns, out(false), right(!turn_y), to, sums});
    }
  }
  if (float* to = Result(cpu, call.outputs[1])) {
    const bool sums = s.right_repeats && s.batch > 1;
    if (turn_y) {
      Multiply({s.batch, s.columns, s.depth, s.rows, out(true), left(turn_x), to, sums});
    } else {
      Multiply({s.batch, s.depth, s.columns, s.rows, left(!turn_x), out(false), to, sums});
    }
  }
  return true;
}

}  // namespace softipu

#endif  // SOFTIPU_WITH_ONEDNN
