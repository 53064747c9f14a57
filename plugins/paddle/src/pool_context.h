// Sums of sparse gradients: the one place where Paddle's autograd passes kernels by.
//
// When a parameter gets several gradients and one of them is SelectedRows, Paddle adds them with
// functions of its own. They take the context of the gradients' place from the pool and ask it to
// be a CPUContext; a device of a plugin has none, and they go on with a null pointer.
#pragma once

#include "paddle/phi/common/place.h"

namespace softipu {

// From the first call on, the pool's context of this device can be had as a CPU context too, which
// computes on the device's memory. Called before a kernel can make SelectedRows there.
void MakePoolServeSparseSums(const phi::Place& device);

}  // namespace softipu
