// How a kernel is called, taken from the argument definitions that Paddle keeps beside it.
//
// Dynamic graphs call kernels through an untyped pointer. The definitions name every argument's
// C++ type, which is enough to describe the call to libffi: tensors and whatever else is passed by
// reference are pointers, numbers and enums are values, a Place is a 16-byte struct by value.
#pragma once

#include <ffi.h>

#include <string>
#include <vector>

#include "paddle/phi/core/kernel_factory.h"

namespace softipu {

enum class InputKind : uint8_t {
  kDense, kOptionalDense, kDenseList, kOptionalDenseList,
  kRows, kOptionalRows, kRowsList,
  kCoo, kOptionalCoo, kCooList,
  kCsr, kOptionalCsr, kCsrList,
  kStrings, kOptionalStrings, kStringsList,
  kArray, kArrayList, kAnyList,
};

enum class OutputKind : uint8_t {
  kDense, kDenseList, kRows, kCoo, kCooList, kCsr, kCsrList, kStrings, kStringsList, kArray,
};

struct Signature {
  std::vector<InputKind> inputs;
  std::vector<phi::AttributeType> attributes;
  std::vector<OutputKind> outputs;
  std::vector<ffi_type*> types;  // of the call, the device context included
  ffi_cif call;

  size_t first_attribute() const { return 1 + inputs.size(); }
  size_t first_output() const { return first_attribute() + attributes.size(); }
  size_t size() const { return types.size(); }
};

constexpr size_t kMostArguments = 96;

// Fills `signature`, which must stay where it is. Returns why it can't, or an empty string.
std::string Describe(const phi::KernelArgsDef& arguments, Signature* signature);

}  // namespace softipu
