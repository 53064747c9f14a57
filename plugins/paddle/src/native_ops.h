// The kernels of ours, one function per op; native.cc lists which op they are for.
#pragma once

#include "native.h"

namespace softipu {

bool Add(const phi::CPUContext& cpu, const Arguments& call);
bool AddGrad(const phi::CPUContext& cpu, const Arguments& call);
bool BatchNorm(const phi::CPUContext& cpu, const Arguments& call);
bool BatchNormGrad(const phi::CPUContext& cpu, const Arguments& call);
bool Full(const phi::CPUContext& cpu, const Arguments& call);
bool Momentum(const phi::CPUContext& cpu, const Arguments& call);
bool Pool2d(const phi::CPUContext& cpu, const Arguments& call);
bool Pool2dGrad(const phi::CPUContext& cpu, const Arguments& call);
bool Relu(const phi::CPUContext& cpu, const Arguments& call);
bool ReluGrad(const phi::CPUContext& cpu, const Arguments& call);

#ifdef SOFTIPU_WITH_ONEDNN
bool Conv2d(const phi::CPUContext& cpu, const Arguments& call);
bool Conv2dGrad(const phi::CPUContext& cpu, const Arguments& call);
bool DepthwiseConv2d(const phi::CPUContext& cpu, const Arguments& call);
bool DepthwiseConv2dGrad(const phi::CPUContext& cpu, const Arguments& call);
bool Matmul(const phi::CPUContext& cpu, const Arguments& call);
bool MatmulGrad(const phi::CPUContext& cpu, const Arguments& call);
#endif

}  // namespace softipu
