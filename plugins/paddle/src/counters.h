// How often each op ran, and how. Nothing runs unseen: SOFTIPU_PADDLE_REPORT=1 prints it at exit.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "flags.h"

namespace softipu {

struct OpCounter {
  std::atomic<uint64_t> native{0};   // by a kernel of ours
  std::atomic<uint64_t> wrapped{0};  // by the CPU's kernel, without copies
  std::atomic<uint64_t> cast{0};     // of those two, with half precision cast to float32 and back
  std::atomic<uint64_t> nanoseconds{0};  // in all; only counted for a report
};

inline void Count(std::atomic<uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}

// Counts the time from here to the end of the scope, if a report is wanted.
class Timed {
 public:
  explicit Timed(OpCounter* counter) : counter_(flags.report ? counter : nullptr) {
    if (counter_) start_ = std::chrono::steady_clock::now();
  }
  ~Timed() {
    if (!counter_) return;
    const auto spent = std::chrono::steady_clock::now() - start_;
    counter_->nanoseconds.fetch_add(
        std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count(),
        std::memory_order_relaxed);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  OpCounter* counter_;
  std::chrono::steady_clock::time_point start_;
};

// The one of this op, which lives as long as the process.
OpCounter* CounterOf(const std::string& op);

// An op that Paddle itself runs on the CPU if a program has one, since there is no way to call it
// for the device. Whether that happens is not seen here: Paddle then asks nobody.
void NoteWithoutKernel(const std::string& op, const std::string& why);

std::string CounterTable();
// The same for programs: every op that has a kernel, a line each of name, native, wrapped, cast.
std::string CounterLines();
void PrintTableAtExit();

}  // namespace softipu
