// A CPU context whose memory is the device's: what kernels allocate counts as device memory.
#pragma once

#include "paddle/phi/backends/cpu/cpu_context.h"

namespace softipu {

// One per device, made when it is first asked for; lives as long as the process.
phi::CPUContext& CpuContextOf(const phi::Place& device);

}  // namespace softipu
