// Maximum pooling of large images and its gradient, plane by plane in several threads. The results
// are those of the CPU's kernels to the bit; what is rarer than NCHW with plain windows is theirs.
#include <algorithm>
#include <cfloat>
#include <string>

#include "native_ops.h"
#include "paddle/phi/common/int_array.h"
#include "threads.h"

namespace softipu {
namespace {

using phi::DenseTensor;

// Windows along one of a plane's two sides.
struct Side {
  int64_t size, windows, window, stride, padding;

  int64_t begin(int64_t at) const { return std::max<int64_t>(at * stride - padding, 0); }
  int64_t end(int64_t at) const { return std::min(at * stride - padding + window, size); }
};

struct Windows {
  Side rows, columns;
  int64_t planes;

  int64_t in_size() const { return rows.size * columns.size; }
  int64_t out_size() const { return rows.windows * columns.windows; }
};

// The attributes of pool2d and pool2d_grad.
enum { kWindow, kStrides, kPaddings, kCeil, kExclusive, kLayout, kKind, kGlobal, kAdaptive, kRule };

bool Fill(const Arguments& call, const DenseTensor& x, const DenseTensor& out, Windows* windows) {
  const bool is_plain = call.attribute<std::string>(kKind) == "max" &&
                        call.attribute<std::string>(kLayout) == "NCHW" &&
                        call.attribute<std::string>(kRule) == "EXPLICIT" &&
                        !call.attribute<bool>(kGlobal) && !call.attribute<bool>(kAdaptive);
  const auto& strides = call.attribute<std::vector<int64_t>>(kStrides);
  const auto& paddings = call.attribute<std::vector<int64_t>>(kPaddings);
  if (!is_plain || x.dims().size() != 4 || !PartsPay(2 * x.numel()) || strides.size() != 2 ||
      paddings.size() != 2)
    return false;
  const auto& window = call.attribute<phi::IntArray>(kWindow).GetData();
  if (window.size() != 2) return false;
  windows->rows = {x.dims()[2], out.dims()[2], window[0], strides[0], paddings[0]};
  windows->columns = {x.dims()[3], out.dims()[3], window[1], strides[1], paddings[1]};
  windows->planes = x.dims()[0] * x.dims()[1];
  return true;
}

void PoolPlane(const Windows& w, const float* x, float* out) {
  for (int64_t row = 0; row < w.rows.windows; ++row) {
    const int64_t top = w.rows.begin(row), bottom = w.rows.end(row);
    for (int64_t column = 0; column < w.columns.windows; ++column) {
      const int64_t left = w.columns.begin(column), right = w.columns.end(column);
      float most = -FLT_MAX;
      for (int64_t i = top; i < bottom; ++i)
        for (int64_t j = left; j < right; ++j)
          most = most > x[i * w.columns.size + j] ? most : x[i * w.columns.size + j];
      *out++ = most;
    }
  }
}

// Where in a plane a window's maximum is: the first of equals. -1 if it has none (not a number).
int64_t PlaceOf(float most, const Windows& w, int64_t row, int64_t column, const float* x) {
  const int64_t left = w.columns.begin(column), right = w.columns.end(column);
  for (int64_t i = w.rows.begin(row); i < w.rows.end(row); ++i)
    for (int64_t j = left; j < right; ++j)
      if (x[i * w.columns.size + j] == most) return i * w.columns.size + j;
  return -1;
}

void PoolPlaneGrad(const Windows& w, const float* x, const float* out, const float* out_grad,
                   float* x_grad) {
  std::fill(x_grad, x_grad + w.in_size(), 0.0f);
  for (int64_t row = 0; row < w.rows.windows; ++row)
    for (int64_t column = 0; column < w.columns.windows; ++column) {
      const int64_t place = PlaceOf(*out++, w, row, column, x);
      if (place >= 0) x_grad[place] += *out_grad;
      ++out_grad;
    }
}

}  // namespace

bool Pool2d(const phi::CPUContext& cpu, const Arguments& call) {
  const DenseTensor& x = *call.inputs[0];
  Windows w;
  if (!Fill(call, x, *call.outputs[0], &w)) return false;
  const float* from = x.data<float>();
  float* to = Result(cpu, call.outputs[0]);
  InParts(w.planes, 2 * x.numel(), [=](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      PoolPlane(w, from + plane * w.in_size(), to + plane * w.out_size());
  });
  return true;
}

bool Pool2dGrad(const phi::CPUContext& cpu, const Arguments& call) {
  const DenseTensor &x = *call.inputs[0], &out = *call.inputs[1];
  Windows w;
  if (!call.outputs[0] || !Fill(call, x, out, &w)) return false;
  const float *from = x.data<float>(), *most = out.data<float>();
  const float* grad = call.inputs[2]->data<float>();
  float* to = Result(cpu, call.outputs[0]);
  InParts(w.planes, 2 * x.numel(), [=](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t in = plane * w.in_size(), at = plane * w.out_size();
      PoolPlaneGrad(w, from + in, most + at, grad + at, to + in);
    }
  });
  return true;
}

}  // namespace softipu
