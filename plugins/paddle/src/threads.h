// How many threads one op computes with. Paddle's own setting is one: its OMP_NUM_THREADS=1.
#pragma once

#include <cstdint>
#include <functional>

namespace softipu {

// SOFTIPU_PADDLE_THREADS; by default OMP_NUM_THREADS if above one, else a thread for each core that
// the process may run on. One in a forked child.
int MostThreads();

// Gives the libraries that the calling thread enters (oneDNN, MKL) that many threads for an op of
// `work` multiply-adds, and one for a small op, which is done before others have woken up.
// Other threads have settings of their own.
class ThreadScope {
 public:
  explicit ThreadScope(int64_t work);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

  int threads() const { return threads_; }

 private:
  int threads_ = 1;
  int threads_before_ = 0;  // 0: nothing was changed
};

// Whether several threads are worth while for that many numbers read or written.
bool PartsPay(int64_t values);

// Calls `part(begin, end)` for parts of 0 … count - 1, in several threads if that pays. `part` must
// not throw.
void InParts(int64_t count, int64_t values, const std::function<void(int64_t, int64_t)>& part);

}  // namespace softipu

// For programs that want to know (by dlsym): how many threads a large op gets.
extern "C" int SoftipuKernelThreads();
