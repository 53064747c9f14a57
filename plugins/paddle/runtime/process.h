// Who a process is, in a way that survives reused pids and changed clocks (docs/lease-format.md).
#pragma once

#include <cstdint>
#include <string>

namespace softipu {

struct Identity {
  int64_t pid = 0;
  int64_t start_ticks = 0;  // 0 where the system does not tell
  std::string boot_id;
  int64_t pid_namespace = 0;  // 0 where the system does not tell
  std::string host;
};

// This process. Not cached: a forked child is another one.
Identity ThisProcess();

// Whether that process is in sight at all: same boot of the same machine, same pid namespace.
bool CanSee(const Identity& who);

// Whether that process surely does not exist; of one out of sight, nobody can tell.
bool IsGone(const Identity& who);

// Seconds since boot: unlike the wall clock, it never goes backwards.
double BootSeconds();
double WallSeconds();

// The executable's name as the tools show it (python3, not the script).
std::string CommandName();
std::string UserName();

// A text as records allow it: printable, of bounded length.
std::string Printable(const std::string& text);

}  // namespace softipu
