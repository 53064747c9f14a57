// Which virtual IPUs this process may use: the rules of softipu.devices.source, as far as files and
// variables go. What needs a V-IPU server or its database comes from softipu's Python package.
#pragma once

#include <string>
#include <vector>

#include "home.h"
#include "systems.h"

namespace softipu {

struct Ipu {
  int id;  // number within the partition
  std::string host;
  int device_id;  // IPU# within the machine

  // The identity, usable as a file name.
  std::string Key() const;
};

// What a program attaches to: one IPU, or a whole partition that cannot be divided.
struct Device {
  int id;
  std::vector<Ipu> ipus;
};

struct Partition {
  std::string name;
  const System* system;
  bool reconfigurable = true;
  std::vector<Ipu> ipus;

  // The devices that Paddle sees, in the order of their ordinals.
  std::vector<Device> Devices() const;
};

// The partition that the environment asks for; an Error says what is wrong with it.
Partition ActivePartition(const Home& home);

// Every IPU of a system, in the order of their ids.
Partition WholeSystem(const System& system);

// The partition in an IPUoF configuration; `where` names it in errors.
Partition ParseIpuof(const std::string& text, const std::string& where, const std::string& name);

}  // namespace softipu
