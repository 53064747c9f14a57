// What the plugin's runtime needs to know about kernels.
#pragma once

#include <string>

namespace softipu {

// Registers every op that Paddle has for the CPU for `device_type` too. Called once, at the end of
// InitPlugin: Paddle's own kernels are in its registry by then, and the device type gets its id
// here if it has none yet.
void RegisterKernels(const std::string& device_type);

// A table of the ops that ran so far: how often natively, wrapped, or cast around.
std::string KernelReport();

}  // namespace softipu

// For programs that look at the counters while they run (by dlsym): see CounterLines in counters.h.
// The text is the calling thread's until its next call.
extern "C" const char* SoftipuKernelCounts();
