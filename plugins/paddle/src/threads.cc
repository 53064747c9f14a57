#include "threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "paddle/phi/core/enforce.h"

namespace softipu {
namespace {

constexpr int64_t kLeastWork = int64_t{1} << 25;    // about half a millisecond of one core
constexpr int64_t kLeastValues = int64_t{1} << 20;  // the same
constexpr int kMostThreads = 4096;

// The OpenMP library of Paddle's wheel, which oneDNN and MKL use too.
struct OpenMp {
  int (*threads)() = nullptr;
  void (*set_threads)(int) = nullptr;
  int (*in_parallel)() = nullptr;
  int (*thread)() = nullptr;
  int (*team)() = nullptr;
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;

  OpenMp() {
    void* library = dlopen("libiomp5.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return;
    Find(library, "omp_get_max_threads", &threads);
    Find(library, "omp_set_num_threads", &set_threads);
    Find(library, "omp_in_parallel", &in_parallel);
    Find(library, "omp_get_thread_num", &thread);
    Find(library, "omp_get_num_threads", &team);
    Find(library, "GOMP_parallel", &parallel);
  }
  explicit operator bool() const {
    return threads && set_threads && in_parallel && thread && team && parallel;
  }

 private:
  template <class Function>
  static void Find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
  }
};

// A child has none of its parent's threads, and the locks that they held stay locked.
bool is_forked_child = false;

const OpenMp& TheOpenMp() {
  static const OpenMp openmp;
  return openmp;
}

int AllowedCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

int NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return 0;
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  // OpenMP's variable may be a list, of which the first number counts.
  if (end == text || (*end && *end != ',') || number < 0 || number > kMostThreads)
    PADDLE_THROW(common::errors::InvalidArgument(
        "SIPU-1101: %s='%s': expected a number of threads, or 0 for one per core", variable, text));
  return static_cast<int>(number);
}

int WantedThreads() {
  const char* ours = std::getenv("SOFTIPU_PADDLE_THREADS");
  const int wanted = NumberIn(ours && *ours ? "SOFTIPU_PADDLE_THREADS" : "OMP_NUM_THREADS");
  if (ours && *ours ? wanted > 0 : wanted > 1) return wanted;
  // The processes of a distributed program share the cores.
  return std::max(1, AllowedCores() / std::max(1, NumberIn("PADDLE_LOCAL_SIZE")));
}

struct Parts {
  int64_t count;
  const std::function<void(int64_t, int64_t)>& part;
};

void DoMyPart(void* data) {
  const auto& parts = *static_cast<const Parts*>(data);
  const int64_t thread = TheOpenMp().thread(), team = TheOpenMp().team();
  const int64_t begin = parts.count * thread / team, end = parts.count * (thread + 1) / team;
  if (begin < end) parts.part(begin, end);
}

}  // namespace

int MostThreads() {
  static const int threads = TheOpenMp() ? WantedThreads() : 1;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
  return registered == 0 && !is_forked_child ? threads : 1;
}

ThreadScope::ThreadScope(int64_t work) {
  if (work < kLeastWork || MostThreads() == 1 || TheOpenMp().in_parallel()) return;
  const OpenMp& openmp = TheOpenMp();
  threads_ = MostThreads();
  threads_before_ = openmp.threads();
  openmp.set_threads(threads_);
}

ThreadScope::~ThreadScope() {
  if (threads_before_ != 0) TheOpenMp().set_threads(threads_before_);
}

bool PartsPay(int64_t values) { return values >= kLeastValues && MostThreads() > 1; }

void InParts(int64_t count, int64_t values, const std::function<void(int64_t, int64_t)>& part) {
  const ThreadScope scope(PartsPay(values) ? kLeastWork : 0);
  if (scope.threads() == 1) return part(0, count);
  Parts parts{count, part};
  TheOpenMp().parallel(DoMyPart, &parts, scope.threads(), 0);
}

}  // namespace softipu

extern "C" int SoftipuKernelThreads() { return softipu::MostThreads(); }
