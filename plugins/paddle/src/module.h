// What the runtime (libpaddle-custom-ipu.so) and the kernels (libsoftipu-paddle-kernels.so) know
// of each other. Plain C on purpose: the runtime may refuse before any Paddle class is used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

extern "C" {

// Both libraries come from one build; a change of this file counts up.
#define SOFTIPU_MODULE_FORMAT 2
#define SOFTIPU_MODULE_ENTRY "SoftipuLoadKernels"

// What Paddle asks of a device besides memory and streams.
struct SoftipuProperties {
  const char* name;
  int major;
  int minor;
  size_t total_memory;
  int tiles;
};

struct SoftipuModule {
  int format;                                   // the runtime's; the module refuses another
  const char* device_type;                      // "ipu"
  std::atomic<uint64_t>* (*busy_counter)();     // of the calling thread's device
  bool report, strict, native;                  // the user's switches: flags.h
  // Filled by the module:
  void (*describe)(const SoftipuProperties*, void* device_properties);
  void (*raise)(const char* text);              // throws Paddle's exception, which Python gets
  char error[1024];                             // why loading failed; empty if it did not
};

// False: not loaded, and `error` says why. Throws nothing.
typedef bool (*SoftipuLoadKernelsFn)(SoftipuModule*);
}
