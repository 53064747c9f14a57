// What the user's switches say. The runtime reads them by the rules of softipu.settings, since it
// can tell the user of a wrong value, and hands them over before any kernel is registered.
#pragma once

namespace softipu {

struct Flags {
  bool report = false;  // SOFTIPU_PADDLE_REPORT: say at exit what ran how
  bool strict = false;  // SOFTIPU_PADDLE_STRICT: refuse ops that Paddle would run on the CPU
  bool native = true;   // SOFTIPU_PADDLE_ONEDNN=0: the CPU's own arithmetic, no kernels of ours
};

inline Flags flags;

}  // namespace softipu
