// What Paddle calls when it finds the library: checks first, then the interface and the kernels.
//
// This library uses no class of Paddle. The kernels do, and are in a library of their own, which is
// opened only if the Paddle in this process is the one they were built for.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "errors.h"
#include "interface.h"
#include "library_file.h"
#include "module.h"
#include "paddle_version.h"
#include "settings.h"

#define SOFTIPU_EXPORT extern "C" __attribute__((visibility("default")))

// Whether this copy of the plugin serves the process; other copies look here.
SOFTIPU_EXPORT bool SoftipuPluginIsActive;
bool SoftipuPluginIsActive = false;

namespace softipu {

namespace {

constexpr char kDeviceType[] = "ipu";
constexpr char kSubType[] = "softipu";
constexpr char kPlugin[] = "libpaddle-custom-ipu";  // however the copy is called
constexpr char kKernels[] = "softipu/libsoftipu-paddle-kernels.so";

void RefuseOtherInterface(const CustomRuntimeParams& params) {
  // An older Paddle has a smaller structure: filling ours in would write beyond its end.
  if (params.size == sizeof(CustomRuntimeParams) &&
      params.interface->size == sizeof(C_DeviceInterface)) {
    return;
  }
  throw Error(kPluginVersion,
              "This plugin was built for Paddle " SOFTIPU_PADDLE_VERSION
              ", whose device interface differs from the one of the Paddle that loads it.");
}

void RefuseOtherPaddle() {
  const auto loaded = LoadedPaddle();
  if (!loaded) {
    throw Error(kPluginVersion, "This plugin was built for Paddle " SOFTIPU_PADDLE_VERSION
                                ", and the Paddle that loads it does not tell its version.");
  }
  const bool same_version = loaded->version == SOFTIPU_PADDLE_VERSION;
  const bool same_commit = loaded->commit == SOFTIPU_PADDLE_COMMIT;
  if (same_version && same_commit) return;
  const auto named = [&](const std::string& version, const std::string& commit) {
    return same_version ? version + " (" + commit.substr(0, 12) + ")" : version;
  };
  throw Error(kPluginVersion, "This plugin was built for Paddle " +
                                  named(SOFTIPU_PADDLE_VERSION, SOFTIPU_PADDLE_COMMIT) +
                                  ", but Paddle " + named(loaded->version, loaded->commit) +
                                  " loads it (" + loaded->where + ").");
}

bool IsActive(const std::string& copy) {
  void* library = dlopen(copy.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const void* active = dlsym(library, "SoftipuPluginIsActive");
  const bool is_active = active != nullptr && *static_cast<const bool*>(active);
  dlclose(library);
  return is_active;
}

void RefuseSecondCopy() {
  const std::string here = ThisLibrary();
  for (const std::string& copy : LoadedLibraries(kPlugin)) {
    if (!IsActive(copy)) continue;
    throw Error(kPluginTwice, "The device `ipu` comes from " + copy +
                                  (copy == here ? ", which was loaded before."
                                                : "; " + here + " is left alone."));
  }
}

std::string KernelLibrary() {
  const std::string here = ThisLibrary();
  const std::string folder = here.substr(0, here.rfind('/') + 1);
  // The copy for older Paddles, in paddle-plugins/, shares the kernels with its neighbour.
  for (const char* place : {"", "../paddle_custom_device/"}) {
    const std::string path = folder + place + kKernels;
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  throw Error(kPluginKernels, folder + kKernels + " is missing.");
}

int OpenFlags() {
  int flags = RTLD_NOW | RTLD_LOCAL;
#ifndef __SANITIZE_ADDRESS__
  // TensorFlow shows its own copies of libraries that Paddle has too (oneDNN, protobuf …) to
  // everybody: the kernels must prefer Paddle's.
  for (const char* name : {"libtensorflow", "_pywrap_tensorflow"}) {
    if (!LoadedLibraries(name).empty()) return flags | RTLD_DEEPBIND;
  }
#endif
  return flags;
}

void LoadKernels() {
  const std::string path = KernelLibrary();
  if (!IsWholeLibrary(path)) throw Error(kPluginKernels, path + " is no library, or cut short.");
  void* library = dlopen(path.c_str(), OpenFlags());
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(kPluginKernels, path + " cannot be opened: " + (reason ? reason : "no reason"));
  }
  const auto load =
      reinterpret_cast<SoftipuLoadKernelsFn>(dlsym(library, SOFTIPU_MODULE_ENTRY));
  if (load == nullptr) throw Error(kPluginKernels, path + " is not the plugin's kernel library.");
  SoftipuModule module{};
  module.format = SOFTIPU_MODULE_FORMAT;
  module.device_type = kDeviceType;
  module.busy_counter = BusyCounterOfThread;
  module.report = FlagSetting("SOFTIPU_PADDLE_REPORT", false);
  module.strict = FlagSetting("SOFTIPU_PADDLE_STRICT", false);
  module.native = FlagSetting("SOFTIPU_PADDLE_ONEDNN", true);
  if (!load(&module)) throw Error(kPluginKernels, path + ": " + module.error + ".");
  UseModule(module);
}

void Load(CustomRuntimeParams* params) {
  RefuseOtherInterface(*params);
  RefuseOtherPaddle();
  RefuseSecondCopy();
  LoadKernels();
  FillInterface(params->interface);
  params->version = {PADDLE_CUSTOM_RUNTIME_MAJOR_VERSION, PADDLE_CUSTOM_RUNTIME_MINOR_VERSION,
                     PADDLE_CUSTOM_RUNTIME_PATCH_VERSION};
  // Paddle only reads them; it declares them as it does for C's sake.
  params->device_type = const_cast<char*>(kDeviceType);
  params->sub_device_type = const_cast<char*>(kSubType);
  SoftipuPluginIsActive = true;
}

}  // namespace
}  // namespace softipu

// Paddle skips a library that names no device type, and goes on without it.
SOFTIPU_EXPORT void InitPlugin(CustomRuntimeParams* params) {
  try {
    softipu::Load(params);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "softipu: the Paddle plugin is not loaded. %s\n", problem.what());
  }
}

// Paddle's interface has no question for the time between two events, so Python asks here, with the
// `raw_event` of both.
SOFTIPU_EXPORT double SoftipuElapsedMilliseconds(C_Event start, C_Event end) {
  return softipu::ElapsedMilliseconds(start, end);
}
