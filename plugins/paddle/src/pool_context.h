// Sums of sparse gradients: the one place where Paddle's autograd passes kernels by.
//
// When a parameter gets several gradients and one of them is SelectedRows, Paddle adds them with
// functions of its own. They take the context of the gradients' place from the pool and ask it to
// be a CPUContext; a device of a plugin has none, and they go on with a null pointer.
#pragma once

#include "paddle/phi/common/place.h"

namespace softipu {

// From now on the pool's context of this device can be had as a CPU context too, which computes on
// the device's memory. Called once for a device, by its first kernel: the pool doesn't exist yet when
// the plugin is loaded, and makes the context only then; later, other threads would read it.
void MakePoolServeSparseSums(const phi::Place& device);

}  // namespace softipu

// Whether that was done for a device; for tests.
extern "C" bool SoftipuPoolServesSparseSums(int device);
