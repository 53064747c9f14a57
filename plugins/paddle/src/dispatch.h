// Runs a CPU kernel for the device: from dynamic graphs by an untyped call, from static graphs by a
// KernelContext.
#pragma once

#include <memory>
#include <string>

#include "counters.h"
#include "native.h"
#include "paddle/phi/core/kernel_factory.h"
#include "signature.h"

namespace softipu {

struct WrappedKernel {
  std::string op;
  phi::Kernel cpu;  // as Paddle registered it
  bool is_float32 = false;
  phi::DataType narrow = phi::DataType::UNDEFINED;  // what float32 stands in for, if anything
  int master_input = -1;                            // see half.h
  NativeKernel native = nullptr;
  bool is_product = false;  // see native.h
  OpCounter* counter = nullptr;
  Signature signature;
  void* entry = nullptr;  // what dynamic graphs call
};

// Returns why it can't, or an empty string. `kernel` must live as long as the process.
std::string MakeEntry(WrappedKernel* kernel);

void RunStatic(phi::KernelContext* context, const WrappedKernel& kernel);

}  // namespace softipu
