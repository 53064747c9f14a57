// The devices that Paddle sees: which virtual IPU stands behind each, held from the first use to
// the end of the process, and what it does, for gc-monitor.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "errors.h"
#include "lease.h"

namespace softipu {

// What one device counts; written by any thread.
struct Activity {
  std::atomic<uint64_t> busy_nanoseconds{0};
  std::atomic<uint64_t> host_bytes_in{0};
  std::atomic<uint64_t> host_bytes_out{0};
  std::atomic<uint64_t> memory_bytes{0};
};

class Devices {
 public:
  // Looks at the environment; what is wrong there is told at the first use, not before: importing
  // Paddle must go on for those who never use the device.
  Devices();
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // The devices of this process; never destroyed, as Paddle frees memory while the process ends.
  static Devices& OfProcess();

  size_t count() const { return slots_.size(); }
  const System& system() const;

  // Makes a device the calling thread's own, with an IPU behind it.
  void Use(int ordinal);
  // The calling thread's device, or the one last used by any thread.
  int Current() const;
  // Leases an IPU for a device, unless that was done before.
  void Attach(int ordinal);

  Activity& ActivityOf(int ordinal);

  // Gives all IPUs back; nothing is attached after that.
  void Close();

 private:
  struct Slot {
    Activity activity;
    std::atomic<bool> attached{false};
    std::unique_ptr<Lease> lease;
    Counters before;  // what had been counted when the lease began
  };

  Slot& Checked(int ordinal);
  void AttachLocked(Slot* slot, size_t ordinal);
  std::unique_ptr<Lease> FirstFree(size_t preferred);
  void Report();
  void StartWriter();
  static void* WriteForEver(void* devices);
  static Counters Counted(const Activity& activity);

  static void BeforeFork();
  static void AfterForkInParent();
  static void AfterForkInChild();

  std::optional<Error> problem_;  // why there is no partition
  std::optional<Home> home_;
  Partition partition_;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<Slot>> slots_;

  std::mutex mutex_;  // also keeps forks away while locks are opened
  std::condition_variable closing_;
  // Not a std::thread: a forked child must forget the thread that it does not have.
  std::optional<pthread_t> writer_;
  bool closed_ = false;
  bool complained_ = false;
  std::atomic<int> last_used_{0};
};

}  // namespace softipu
