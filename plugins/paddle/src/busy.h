// Time spent in kernels, for gc-monitor. Dispatch opens a scope around each kernel it runs; only
// the outermost scope of a thread counts, so kernels that call kernels are not counted twice.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace softipu {

// Gives the counter of the device that the calling thread works on.
using BusyCounter = std::atomic<uint64_t>* (*)();

// Set by the runtime when it loads the kernels; until then scopes count nothing.
inline std::atomic<BusyCounter> busy_counter{nullptr};

class BusyScope {
 public:
  BusyScope() : outermost_(depth_++ == 0) {
    if (outermost_) start_ = std::chrono::steady_clock::now();
  }
  ~BusyScope() {
    --depth_;
    if (!outermost_) return;
    const BusyCounter counter = busy_counter.load(std::memory_order_relaxed);
    if (counter == nullptr) return;
    const auto spent = std::chrono::steady_clock::now() - start_;
    counter()->fetch_add(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count(),
                         std::memory_order_relaxed);
  }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  static inline thread_local int depth_ = 0;
  bool outermost_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace softipu
