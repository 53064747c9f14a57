// The door of the kernel library: the runtime comes in here after it has checked Paddle's version.
#include "module.h"

#include <cstdio>
#include <exception>

#include "busy.h"
#include "flags.h"
#include "kernels.h"
#include "paddle/phi/backends/device_base.h"
#include "paddle/phi/core/enforce.h"

namespace {

void Describe(const SoftipuProperties* from, void* device_properties) {
  auto* to = static_cast<phi::DeviceProp*>(device_properties);
  *to = phi::DeviceProp(from->name, from->major, from->minor, from->total_memory, from->tiles,
                        /*isMultiGpuBoard=*/false, /*integrated=*/true);
}

void Raise(const char* text) { PADDLE_THROW(common::errors::Unavailable("%s", text)); }

}  // namespace

extern "C" __attribute__((visibility("default"))) bool SoftipuLoadKernels(SoftipuModule* module) {
  if (module->format != SOFTIPU_MODULE_FORMAT) {
    std::snprintf(module->error, sizeof module->error,
                  "the runtime and the kernels are of different builds");
    return false;
  }
  softipu::flags = {module->report, module->strict, module->native};
  try {
    softipu::RegisterKernels(module->device_type);
  } catch (const std::exception& problem) {
    std::snprintf(module->error, sizeof module->error, "%s", problem.what());
    return false;
  }
  module->describe = Describe;
  module->raise = Raise;
  softipu::busy_counter = module->busy_counter;
  return true;
}
