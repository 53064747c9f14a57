// Paddle's C interface of a device, filled with ours.
#pragma once

#include "module.h"
#include "paddle/phi/backends/device_ext.h"

namespace softipu {

void FillInterface(C_DeviceInterface* interface);
void FillCollectives(C_DeviceInterface* interface);

// The kernel library's functions, once it is loaded.
void UseModule(const SoftipuModule& module);

// Where the kernels count the time that they take on the calling thread's device.
std::atomic<uint64_t>* BusyCounterOfThread();

// Between the recordings of two events.
double ElapsedMilliseconds(C_Event start, C_Event end);

}  // namespace softipu
