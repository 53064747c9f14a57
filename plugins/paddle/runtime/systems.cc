#include "systems.h"

#include <cstdio>

#include "errors.h"

namespace softipu {

namespace {

constexpr uint64_t kTileMemory = 638976;
constexpr uint64_t kStreamingMemory = 256'000'000'000;

const Chip kMk2{"mk2", "GC200", "ipu2", 2, 0, 1472, 6, kTileMemory};
const Chip kC600{"c600", "C600", "ipu21", 2, 1, 1472, 6, kTileMemory};
const Chip kBow{"bow", "Bow", "ipu2", 2, 0, 1472, 6, kTileMemory};

}  // namespace

const std::vector<System>& AllSystems() {
  static const std::vector<System> kSystems = {
      {"m2000", &kMk2, 1, 4, "198.18.1", kStreamingMemory},
      {"bow-2000", &kBow, 1, 4, "198.19.1", kStreamingMemory},
      {"c600", &kC600, 1, 1, "", 0},
      {"pod4", &kMk2, 1, 4, "198.18.4", kStreamingMemory},
      {"pod16", &kMk2, 4, 4, "198.18.16", kStreamingMemory},
      {"pod64", &kMk2, 16, 4, "198.18.64", kStreamingMemory},
      {"pod128", &kMk2, 32, 4, "198.18.128", kStreamingMemory},
      {"pod256", &kMk2, 64, 4, "198.18.255", kStreamingMemory},
      {"bow-pod4", &kBow, 1, 4, "198.19.4", kStreamingMemory},
      {"bow-pod16", &kBow, 4, 4, "198.19.16", kStreamingMemory},
      {"bow-pod64", &kBow, 16, 4, "198.19.64", kStreamingMemory},
      {"bow-pod128", &kBow, 32, 4, "198.19.128", kStreamingMemory},
      {"bow-pod256", &kBow, 64, 4, "198.19.255", kStreamingMemory},
  };
  return kSystems;
}

uint64_t System::MemoryOfIpu() const {
  return chip->tile_memory * chip->tiles + streaming_memory / ipus_per_machine;
}

std::string System::Host(int machine) const {
  char host[32];
  if (*subnet == '\0') {
    std::snprintf(host, sizeof host, "0000:%02x:00.0", 0x35 + machine);
  } else {
    std::snprintf(host, sizeof host, "%s.%d", subnet, machine + 1);
  }
  return host;
}

const System& FindSystem(const std::string& name) {
  std::string known;
  for (const System& system : AllSystems()) {
    if (name == system.name) return system;
    known += (known.empty() ? "" : ", ") + std::string(system.name);
  }
  throw Error(kUnknownSystem, "There is no system named '" + name + "'. Known: " + known + ".");
}

}  // namespace softipu
