// How errors of ours reach the program.
#pragma once

#include "errors.h"
#include "paddle/phi/backends/device_ext.h"

namespace softipu {

// Throws Paddle's exception with this text, if the kernel library is there to do it.
void RaiseInPaddle(const Error& problem);

// Runs a deed for Paddle. It ends the process at exceptions that it does not know, so ours become
// its own; of a status it would tell only the number.
template <typename Deed>
C_Status Telling(const Deed& deed) {
  try {
    deed();
  } catch (const Error& problem) {
    RaiseInPaddle(problem);
    throw;
  }
  return C_SUCCESS;
}

}  // namespace softipu
