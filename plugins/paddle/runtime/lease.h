// Leases: a process holds virtual IPUs for as long as it keeps their lock files locked. The lock is
// the truth and the kernel keeps it; the record beside it only describes the holder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "partition.h"
#include "process.h"

namespace softipu {

// What an IPU did since its lease began.
struct Counters {
  double busy_seconds = 0;
  uint64_t host_bytes_in = 0;
  uint64_t host_bytes_out = 0;
  bool operator==(const Counters& other) const {
    return busy_seconds == other.busy_seconds && host_bytes_in == other.host_bytes_in &&
           host_bytes_out == other.host_bytes_out;
  }
};

// Not for several threads at once: its owner has the mutex.
class Lease {
 public:
  // Null if somebody holds one of the device's IPUs.
  static std::unique_ptr<Lease> TryAcquire(const Home& home, const Partition& partition,
                                           const Device& device);
  // Releases, unless it was abandoned.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const Device& device() const { return device_; }

  // Writes what changed since the last call: memory in the record, the counters.
  void Update(uint64_t memory_bytes, const Counters& counters);

  // Gives the IPUs back. May be called twice.
  void Release();

  // In a forked child: closes its copies of the locks, which leaves the parent's locked.
  void Abandon();

 private:
  Lease(const Home& home, const Partition& partition, const Device& device,
        std::vector<int> locks);
  void WriteRecords() const;

  const Home& home_;
  Device device_;
  std::string partition_;
  std::vector<int> locks_;
  Identity holder_;
  std::string user_, command_;
  bool monitoring_;
  double since_, since_boot_;
  uint64_t memory_bytes_ = 0;
  Counters written_;
  double written_boot_;
};

// Who holds any of these IPUs, one phrase for each process; empty if nobody does.
std::string Holders(const Home& home, const std::vector<Device>& devices);

}  // namespace softipu
