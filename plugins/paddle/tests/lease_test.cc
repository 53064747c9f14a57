#include "lease.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "check.h"
#include "devices.h"
#include "json.h"

using softipu::Counters;
using softipu::Device;
using softipu::Devices;
using softipu::Home;
using softipu::Json;
using softipu::Lease;
using softipu::Partition;

static bool IsLocked(const std::string& path) {
  const softipu::Descriptor lock(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return lock.number() >= 0 && flock(lock.number(), LOCK_SH | LOCK_NB) != 0;
}

struct Place {
  Home home;
  Partition partition = softipu::WholeSystem(softipu::FindSystem("pod4"));
  Device device = partition.Devices()[0];
  Place() { home.Prepare(); }
  std::string Lock() const { return home.LockOf(device.ipus[0].Key()); }
  std::string Record() const { return home.RecordOf(device.ipus[0].Key()); }
};

TEST("a lease locks its IPU and describes its holder") {
  Place place;
  const auto lease = Lease::TryAcquire(place.home, place.partition, place.device);
  CHECK(lease != nullptr);
  CHECK(IsLocked(place.Lock()));
  const auto record = Json::Parse(check::ReadFile(place.Record()));
  CHECK_EQUAL(*record->Integer("pid"), getpid());
  CHECK_EQUAL(*record->Text("partition"), "ipuof");
  CHECK_EQUAL(record->Find("ids")->items().size(), 1u);
  CHECK(*record->Number("since_boot") <= softipu::BootSeconds());
  CHECK_CONTAINS(softipu::Holders(place.home, place.partition.Devices()),
                 "pid " + std::to_string(getpid()));
}

TEST("a held IPU is not given twice, and is free after its release") {
  Place place;
  auto lease = Lease::TryAcquire(place.home, place.partition, place.device);
  CHECK(Lease::TryAcquire(place.home, place.partition, place.device) == nullptr);
  lease->Release();
  lease->Release();
  CHECK(!IsLocked(place.Lock()));
  CHECK(!check::Exists(place.Record()));
  CHECK(check::Exists(place.Lock()));
  CHECK(Lease::TryAcquire(place.home, place.partition, place.device) != nullptr);
}

TEST("a group is held whole or not at all") {
  Place place;
  const auto first = Lease::TryAcquire(place.home, place.partition, place.partition.Devices()[1]);
  const Device pair{4, {place.partition.ipus[0], place.partition.ipus[1]}};
  CHECK(Lease::TryAcquire(place.home, place.partition, pair) == nullptr);
  CHECK(!IsLocked(place.Lock()));
}

TEST("a monitor that sleeps while it looks does not keep a program out") {
  Place place;
  Lease::TryAcquire(place.home, place.partition, place.device);  // makes the lock file
  const int look = open(place.Lock().c_str(), O_RDONLY | O_CLOEXEC);
  flock(look, LOCK_SH);
  std::thread monitor([look] {
    usleep(300000);
    close(look);
  });
  const auto lease = Lease::TryAcquire(place.home, place.partition, place.device);
  monitor.join();
  CHECK(lease != nullptr);
}

TEST("a record without its process is not believed") {
  Place place;
  check::WriteFile(place.Record(), "{\"format\": 1, \"pid\": 1}");
  CHECK(Lease::TryAcquire(place.home, place.partition, place.device) != nullptr);
}

TEST("counters and memory are written when they change") {
  Place place;
  const auto lease = Lease::TryAcquire(place.home, place.partition, place.device);
  const std::string path = place.home.CountersOf(place.device.ipus[0].Key());
  lease->Update(0, Counters{});
  CHECK(!check::Exists(path));
  lease->Update(4096, Counters{0.5, 10, 20});
  const auto counters = Json::Parse(check::ReadFile(path));
  CHECK_EQUAL(*counters->Number("busy_seconds"), 0.5);
  CHECK_EQUAL(*counters->Number("window_busy_seconds"), 0.5);
  CHECK_EQUAL(*counters->Integer("host_bytes_in"), 10);
  CHECK_EQUAL(*Json::Parse(check::ReadFile(place.Record()))->Integer("memory_bytes"), 4096);
}

TEST("a killed holder leaves its IPU free") {
  Place place;
  int ready[2];
  CHECK(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lease = Lease::TryAcquire(place.home, place.partition, place.device);
    const char done = lease ? 'y' : 'n';
    if (write(ready[1], &done, 1) != 1) _exit(1);
    pause();
  }
  char done = 'n';
  CHECK(read(ready[0], &done, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  CHECK_EQUAL(done, 'y');
  CHECK(Lease::TryAcquire(place.home, place.partition, place.device) == nullptr);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(Lease::TryAcquire(place.home, place.partition, place.device) != nullptr);
}

TEST("devices take the IPU of their own number, or the next free one") {
  setenv("SOFTIPU_SYSTEM", "pod4", 1);
  Devices mine, others;
  CHECK_EQUAL(mine.count(), 4u);
  others.Use(0);
  mine.Use(0);
  mine.Use(1);
  const Home home;
  CHECK(IsLocked(home.LockOf("198.18.4.1-3")));
  CHECK(IsLocked(home.LockOf("198.18.4.1-2")));
  CHECK(IsLocked(home.LockOf("198.18.4.1-1")));
  CHECK(!IsLocked(home.LockOf("198.18.4.1-0")));
  mine.Use(0);  // has one already
  CHECK(!IsLocked(home.LockOf("198.18.4.1-0")));
}

TEST("with all IPUs held, the error names the holders") {
  setenv("SOFTIPU_SYSTEM", "c600", 1);
  Devices first, second;
  first.Use(0);
  const std::string text = check::ThrownBy([&] { second.Use(0); });
  CHECK_CONTAINS(text, "SIPU-1203: No free device of 1 IPU in partition ipuof");
  CHECK_CONTAINS(text, "held by pid " + std::to_string(getpid()));
  first.Close();
  second.Use(0);
}

TEST("an unknown device is an error that says which there are") {
  setenv("SOFTIPU_SYSTEM", "pod4", 1);
  Devices devices;
  CHECK_CONTAINS(check::ThrownBy([&] { devices.Use(4); }), "ipu:0 to ipu:3");
  CHECK_CONTAINS(check::ThrownBy([&] { devices.Attach(-1); }), "SIPU-1201");
}

TEST("what is wrong with the environment is told at the first use") {
  setenv("SOFTIPU_SYSTEM", "nonsense", 1);
  Devices devices;
  CHECK_EQUAL(devices.count(), 1u);
  CHECK_CONTAINS(check::ThrownBy([&] { devices.Use(0); }), "SIPU-1002");
}

TEST("counters reach the files by themselves") {
  setenv("SOFTIPU_SYSTEM", "c600", 1);
  Devices devices;
  devices.Use(0);
  devices.ActivityOf(0).busy_nanoseconds += 100'000'000;
  devices.ActivityOf(0).memory_bytes += 123;
  const std::string path = Home().CountersOf("0000_35_00.0-0");
  for (int waited = 0; waited < 200 && !check::Exists(path); ++waited) usleep(10'000);
  CHECK_EQUAL(*Json::Parse(check::ReadFile(path))->Number("busy_seconds"), 0.1);
  devices.Close();
  CHECK(!check::Exists(path));
}

TEST("a forked child holds nothing of its parent's, and can attach on its own") {
  setenv("SOFTIPU_SYSTEM", "pod4", 1);
  // The devices of the process, as only they know of forks; in a child, so that other tests are
  // not disturbed by them.
  const int status = check::InChild([] {
    Devices& devices = Devices::OfProcess();
    devices.Use(0);
    const Home home;
    const std::string mine = home.LockOf("198.18.4.1-3"), childs = home.LockOf("198.18.4.1-2");
    const int inner = check::InChild([&] {
      devices.Use(0);
      const bool both = IsLocked(mine) && IsLocked(childs);
      devices.Close();
      const bool untouched = IsLocked(mine) && check::Exists(home.RecordOf("198.18.4.1-3"));
      return both && untouched && !IsLocked(childs) ? 0 : 1;
    });
    devices.Close();
    return inner == 0 && !IsLocked(mine) ? 0 : 2;
  });
  CHECK_EQUAL(status, 0);
}

TEST("nothing is attached after the end") {
  setenv("SOFTIPU_SYSTEM", "c600", 1);
  Devices devices;
  devices.Close();
  devices.Use(0);
  CHECK(!check::Exists(Home().RecordOf("0000_35_00.0-0")));
}
