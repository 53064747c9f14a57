#include "process.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <sstream>
#include <vector>

#include "home.h"

namespace softipu {

namespace {

constexpr size_t kLongestText = 4096;

std::string SmallFile(const std::string& path) {
  std::string text;
  return ReadSystemFile(path, &text) ? text : "";
}

// When a process started; -1 if there is no such process.
int64_t StartTicks(int64_t pid) {
  const std::string text = SmallFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t bracket = text.rfind(')');  // the command may hold spaces and brackets
  if (bracket == std::string::npos) return -1;
  std::istringstream fields(text.substr(bracket + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return -1;
  for (int skipped = 0; skipped < 19; ++skipped) fields >> field;
  return fields ? std::stoll(field) : -1;
}

std::string BootId() {
  std::string text = SmallFile("/proc/sys/kernel/random/boot_id");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

int64_t PidNamespace() {
  struct stat found {};
  return stat("/proc/self/ns/pid", &found) == 0 ? static_cast<int64_t>(found.st_ino) : 0;
}

std::string HostName() {
  utsname name{};
  return uname(&name) == 0 ? Printable(name.nodename) : "";
}

double Clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

Identity ThisProcess() {
  const int64_t pid = getpid();
  const int64_t ticks = StartTicks(pid);
  return {pid, ticks < 0 ? 0 : ticks, BootId(), PidNamespace(), HostName()};
}

bool CanSee(const Identity& who) {
  return who.boot_id == BootId() && who.pid_namespace == PidNamespace();
}

bool IsGone(const Identity& who) {
  if (!CanSee(who)) return who.host == HostName() && who.boot_id != BootId();  // an earlier boot
  if (who.start_ticks == 0) return kill(static_cast<pid_t>(who.pid), 0) != 0 && errno == ESRCH;
  return StartTicks(who.pid) != who.start_ticks;
}

double BootSeconds() { return Clock(CLOCK_BOOTTIME); }
double WallSeconds() { return Clock(CLOCK_REALTIME); }

std::string CommandName() {
  std::string command = SmallFile("/proc/self/cmdline");
  command = command.substr(0, command.find('\0'));
  const size_t slash = command.rfind('/');
  if (slash != std::string::npos) command = command.substr(slash + 1);
  return command.empty() ? "unknown" : Printable(command);
}

std::string UserName() {
  std::vector<char> room(1 << 16);
  passwd entry{};
  passwd* found = nullptr;
  getpwuid_r(getuid(), &entry, room.data(), room.size(), &found);
  return found == nullptr ? std::to_string(getuid()) : Printable(found->pw_name);
}

std::string Printable(const std::string& text) {
  std::string printable;
  for (const char letter : text.substr(0, kLongestText)) {
    printable += letter >= 0x20 && letter < 0x7f ? letter : '?';
  }
  return printable;
}

}  // namespace softipu
