// The systems of softipu.arch, as far as a device needs to know them. A test compares the table
// with the TOML files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace softipu {

struct Chip {
  const char* name;
  const char* product;
  const char* architecture;  // ipu2, ipu21
  int major, minor;          // the architecture as Paddle's "compute capability"
  int tiles;
  int worker_contexts;
  uint64_t tile_memory;  // bytes of one tile
};

struct System {
  const char* name;
  const Chip* chip;
  int machines;
  int ipus_per_machine;
  const char* subnet;         // of the made-up addresses; empty for PCIe cards
  uint64_t streaming_memory;  // bytes of one machine

  // What one IPU can address: its tiles' memory and its share of the machine's streaming memory.
  uint64_t MemoryOfIpu() const;
  // The address of a machine, counted from 0.
  std::string Host(int machine) const;
};

// The system of that name; kUnknownSystem lists the names when there is none.
const System& FindSystem(const std::string& name);

const std::vector<System>& AllSystems();

}  // namespace softipu
