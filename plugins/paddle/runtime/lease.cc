#include "lease.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>

#include "errors.h"
#include "json.h"
#include "settings.h"

namespace softipu {

namespace {

constexpr int kFormat = 1;
constexpr size_t kLargestRecord = 1 << 20;
// Somebody who holds the lock for longer than this without a record really holds it.
constexpr double kSettlingSeconds = 0.02;
// Monitors share the lock for microseconds; on a busy machine one may be put to sleep just then.
constexpr double kLookingSeconds = 5.0;

struct Holder {
  Identity who;
  std::string user, command;
  double since_boot;
};

// The record of an IPU; nothing if it is damaged, or left by a process now gone.
std::optional<Holder> LiveRecord(const Home& home, const Ipu& ipu) {
  std::string text;
  if (!ReadPlainFile(home.RecordOf(ipu.Key()), kLargestRecord, &text)) return std::nullopt;
  const std::optional<Json> record = Json::Parse(text);
  if (!record || record->Integer("format") != kFormat) return std::nullopt;
  const auto pid = record->Integer("pid"), ticks = record->Integer("start_ticks");
  const auto space = record->Integer("pid_namespace");
  const auto boot = record->Text("boot_id"), host = record->Text("host");
  const auto user = record->Text("user"), command = record->Text("command");
  const auto since = record->Number("since_boot");
  if (!pid || !ticks || !space || !boot || !host || !user || !command || !since) {
    return std::nullopt;
  }
  const Identity who{*pid, *ticks, *boot, *space, *host};
  Holder holder{who, Printable(*user), Printable(*command), *since};
  if (IsGone(holder.who)) return std::nullopt;
  return holder;
}

bool IsHeld(const Home& home, const Ipu& ipu) {
  const std::string path = home.LockOf(ipu.Key());
  const Descriptor lock(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return lock.number() >= 0 && flock(lock.number(), LOCK_SH | LOCK_NB) != 0 &&
         errno == EWOULDBLOCK;
}

void Unlock(int lock) {
  // A child that is about to exec may have a copy that a close would leave locked.
  flock(lock, LOCK_UN);
  close(lock);
}

// Whether the locked file still has its name; somebody may have deleted it under us.
bool IsStillNamed(int lock, const std::string& path) {
  struct stat named {}, mine {};
  if (lstat(path.c_str(), &named) != 0) {
    if (errno == ENOENT) return false;
    ThrowFileError(path, errno);
  }
  if (!S_ISREG(named.st_mode)) ThrowFileError(path, ELOOP);
  if (fstat(lock, &mine) != 0) ThrowFileError(path, errno);
  return mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

// The locked descriptor, or -1 if the IPU is held.
int LockOne(const Home& home, const Ipu& ipu) {
  const std::string path = home.LockOf(ipu.Key());
  const double began = BootSeconds();
  while (true) {
    const int lock = home.OpenLock(path);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
      const int problem = errno;
      const bool only_looked_at = problem == EWOULDBLOCK && flock(lock, LOCK_SH | LOCK_NB) == 0;
      close(lock);
      if (problem == EINTR) continue;
      if (problem != EWOULDBLOCK) ThrowFileError(path, problem);
      const double patience = only_looked_at ? kLookingSeconds : kSettlingSeconds;
      // Only a holder has a record, and shares its lock with nobody.
      const bool is_held = !only_looked_at && LiveRecord(home, ipu);
      if (is_held || BootSeconds() > began + patience) return -1;
      usleep(500);
      continue;
    }
    try {
      if (IsStillNamed(lock, path)) return lock;
    } catch (const Error&) {
      close(lock);
      throw;
    }
    close(lock);
  }
}

bool Monitoring() {
  if (FlagSetting("GCDA_MONITOR", false)) return true;
  const auto options = Setting("GCDA_OPTIONS");
  const auto parsed = options ? Json::Parse(*options) : std::nullopt;
  const Json* wanted = parsed ? parsed->Find("enableMonitoring") : nullptr;
  if (wanted == nullptr) return false;
  if (wanted->is(Json::Kind::kBool)) return wanted->boolean();
  if (wanted->is(Json::Kind::kInteger)) return wanted->integer() == 1;
  return wanted->text() == "true" || wanted->text() == "1" || wanted->text() == "True";
}

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  const auto two = [](int64_t many, const char* large, int64_t few, const char* small) {
    return std::to_string(many) + large + std::to_string(few) + small;
  };
  if (whole < 60) return std::to_string(whole) + "s";
  if (whole < 3600) return two(whole / 60, "m", whole % 60, "s");
  if (whole < 86400) return two(whole / 3600, "h", whole % 3600 / 60, "m");
  return two(whole / 86400, "d", whole % 86400 / 3600, "h");
}

std::string Listed(const std::vector<int>& ids) {
  std::string list = ids.size() > 1 ? "IPUs " : "IPU ";
  for (size_t n = 0; n < ids.size() && n < 8; ++n) {
    list += (n == 0 ? "" : ", ") + std::to_string(ids[n]);
  }
  if (ids.size() > 8) list += " and " + std::to_string(ids.size() - 8) + " more";
  return list;
}

}  // namespace

std::unique_ptr<Lease> Lease::TryAcquire(const Home& home, const Partition& partition,
                                         const Device& device) {
  std::vector<int> locks;
  const auto unlock_all = [&locks] { std::for_each(locks.begin(), locks.end(), Unlock); };
  try {
    for (const Ipu& ipu : device.ipus) {
      const int lock = LockOne(home, ipu);
      if (lock < 0) {
        unlock_all();
        return nullptr;
      }
      locks.push_back(lock);
    }
    std::unique_ptr<Lease> lease(new Lease(home, partition, device, locks));
    locks.clear();  // the lease has them now
    lease->WriteRecords();
    return lease;
  } catch (const Error&) {
    unlock_all();
    throw;
  }
}

Lease::Lease(const Home& home, const Partition& partition, const Device& device,
             std::vector<int> locks)
    : home_(home),
      device_(device),
      partition_(partition.name),
      locks_(std::move(locks)),
      holder_(ThisProcess()),
      user_(UserName()),
      command_(CommandName()),
      monitoring_(Monitoring()),
      since_(WallSeconds()),
      since_boot_(BootSeconds()),
      written_boot_(since_boot_) {}

Lease::~Lease() { Release(); }

void Lease::WriteRecords() const {
  std::vector<int> ids;
  for (const Ipu& ipu : device_.ipus) ids.push_back(ipu.id);
  const std::string text = JsonObject()
                               .Add("format", kFormat)
                               .Add("pid", holder_.pid)
                               .Add("start_ticks", holder_.start_ticks)
                               .Add("boot_id", holder_.boot_id)
                               .Add("pid_namespace", holder_.pid_namespace)
                               .Add("host", holder_.host)
                               .Add("uid", static_cast<int64_t>(getuid()))
                               .Add("user", user_)
                               .Add("command", command_)
                               .Add("since", since_)
                               .Add("since_boot", since_boot_)
                               .Add("partition", partition_)
                               .Add("device", device_.id)
                               .Add("ids", ids)
                               .Add("monitoring", monitoring_)
                               .Add("executable", "paddle")
                               .Add("memory_bytes", memory_bytes_)
                               .str();
  for (const Ipu& ipu : device_.ipus) home_.Write(home_.RecordOf(ipu.Key()), text);
}

void Lease::Update(uint64_t memory_bytes, const Counters& counters) {
  if (locks_.empty()) return;
  if (memory_bytes != memory_bytes_) {
    memory_bytes_ = memory_bytes;
    WriteRecords();
  }
  if (counters == written_) return;
  const double now = BootSeconds();
  const std::string text =
      JsonObject()
          .Add("format", kFormat)
          .Add("pid", holder_.pid)
          .Add("start_ticks", holder_.start_ticks)
          .Add("updated_boot", now)
          .Add("busy_seconds", counters.busy_seconds)
          .Add("cycles", 0)
          .Add("host_bytes_in", counters.host_bytes_in)
          .Add("host_bytes_out", counters.host_bytes_out)
          .Add("window_start_boot", written_boot_)
          .Add("window_busy_seconds",
               std::max(0.0, counters.busy_seconds - written_.busy_seconds))
          .str();
  for (const Ipu& ipu : device_.ipus) home_.Write(home_.CountersOf(ipu.Key()), text);
  written_ = counters;
  written_boot_ = now;
}

void Lease::Release() {
  if (locks_.empty()) return;
  // Records go before the locks: the next holder's record must never be deleted. A record that
  // cannot be deleted is recognised as stale.
  for (const Ipu& ipu : device_.ipus) {
    unlink(home_.RecordOf(ipu.Key()).c_str());
    unlink(home_.CountersOf(ipu.Key()).c_str());
  }
  std::for_each(locks_.begin(), locks_.end(), Unlock);
  locks_.clear();
}

void Lease::Abandon() {
  for (const int lock : locks_) close(lock);
  locks_.clear();
}

std::string Holders(const Home& home, const std::vector<Device>& devices) {
  struct Held {
    Holder holder;
    std::vector<int> ids;
  };
  std::map<std::pair<int64_t, int64_t>, Held> by_process;
  std::vector<int> unknown;
  for (const Device& device : devices) {
    for (const Ipu& ipu : device.ipus) {
      if (!IsHeld(home, ipu)) continue;
      const auto holder = LiveRecord(home, ipu);
      if (!holder) {
        unknown.push_back(ipu.id);
        continue;
      }
      const auto key = std::make_pair(holder->who.pid, holder->who.start_ticks);
      by_process.try_emplace(key, Held{*holder, {}}).first->second.ids.push_back(ipu.id);
    }
  }
  std::string phrases;
  const auto add = [&phrases](const std::string& phrase) {
    phrases += (phrases.empty() ? "" : "; ") + phrase;
  };
  for (const auto& [key, held] : by_process) {
    const std::string place = CanSee(held.holder.who) ? "" : " on " + held.holder.who.host;
    add("pid " + std::to_string(key.first) + place + " (" + held.holder.command + ", user " +
        held.holder.user + ", for " + Duration(BootSeconds() - held.holder.since_boot) + ") on " +
        Listed(held.ids));
  }
  if (!unknown.empty()) add("a process that left no readable record on " + Listed(unknown));
  return phrases;
}

}  // namespace softipu
