#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

#include "home.h"

namespace softipu {

namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = 2 << 20;
// Smaller ones are not worth asking the system about.
constexpr size_t kWorthChecking = 16 << 20;

// A limit of the control group that has no limit, or the lack of one.
constexpr uint64_t kUnlimited = UINT64_MAX;

uint64_t NumberIn(const std::string& path) {
  std::string text;
  if (!ReadSystemFile(path, &text) || text.empty() || text[0] < '0' || text[0] > '9') {
    return kUnlimited;
  }
  return std::strtoull(text.c_str(), nullptr, 10);
}

uint64_t LeftInControlGroup() {
  const uint64_t limit = NumberIn("/sys/fs/cgroup/memory.max");
  const uint64_t used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  // Pages of files count as used, but go when memory is wanted.
  uint64_t files = 0;
  std::string text, name;
  if (ReadSystemFile("/sys/fs/cgroup/memory.stat", &text)) {
    std::istringstream lines(text);
    uint64_t value = 0;
    while (lines >> name >> value) {
      if (name == "inactive_file" || name == "active_file") files += value;
    }
  }
  const uint64_t needed = used - std::min(used, files);
  return limit - std::min(limit, needed);
}

uint64_t LeftOnHost() {
  std::string text, name, unit;
  if (!ReadSystemFile("/proc/meminfo", &text)) return kUnlimited;
  std::istringstream lines(text);
  uint64_t kibibytes = 0;
  while (lines >> name >> kibibytes) {
    if (name == "MemAvailable:") return kibibytes * 1024;
    std::getline(lines, unit);
  }
  return kUnlimited;
}

}  // namespace

uint64_t AvailableMemory() { return std::min(LeftOnHost(), LeftInControlGroup()); }

void* AllocateMemory(size_t size) {
  if (size >= kWorthChecking && size > AvailableMemory()) return nullptr;
  const bool large = size >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, large ? kHugePage : kCacheLine, std::max<size_t>(size, 1)) != 0) {
    return nullptr;
  }
  // Advice: where the system has no huge pages it changes nothing.
  if (large) madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

void FreeMemory(void* memory) { std::free(memory); }

}  // namespace softipu
