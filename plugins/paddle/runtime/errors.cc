#include "errors.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace softipu {

const ErrorKind kUnknownSystem{
    1002, "No chip or system of that name is described in softipu.arch.",
    "Choose one of the names listed (the default system is bow-pod16)."};
const ErrorKind kInvalidSetting{
    1101, "An environment variable or option has a value of the wrong type or range.",
    "Correct or unset it; docs/environment.md lists every variable and its values."};
const ErrorKind kIpuofFileMissing{
    1102, "IPUOF_CONFIG_PATH names a file that does not exist or cannot be read.",
    "Write it with `vipu get partition NAME --ipuof-configs > FILE`, or unset "
    "IPUOF_CONFIG_PATH to use the embedded system."};
const ErrorKind kIpuofFileMalformed{
    1103, "The IPUoF configuration is not JSON of the documented form.",
    "Write it anew with `vipu get partition NAME --ipuof-configs > FILE`."};
const ErrorKind kNoSuchDevice{1201, "The partition has no device with that id.",
                              "`gc-info -l` lists the device ids of the active partition."};
const ErrorKind kDevicesBusy{
    1203, "Other processes hold the IPUs.",
    "Wait for them (attach with a time-out), end them, or use another partition."};
const ErrorKind kStateReadOnly{
    1301, "The state directory or a file in it may not be written by this user.",
    "Set SOFTIPU_HOME to a directory you own, or correct the permissions."};
const ErrorKind kStateFull{
    1302, "The disk or the quota of the state directory is used up.",
    "Free some space, or set SOFTIPU_HOME to a directory on another disk."};
const ErrorKind kStateForeign{1303, "The directory holds files that softipu did not make.",
                              "Set SOFTIPU_HOME to a new or empty directory."};
const ErrorKind kStateFormat{
    1304, "The state directory was made by a newer softipu, or its marker file is damaged.",
    "Upgrade softipu, or set SOFTIPU_HOME to a new directory."};
const ErrorKind kStateUnusable{
    1305, "The file system refused an operation that softipu needs (locks, links, renames).",
    "Set SOFTIPU_HOME to a directory on a local disk."};
const ErrorKind kUnknownPartition{
    1401, "No partition of that name exists there.",
    "`vipu list partitions` lists them; `vipu create partition NAME --size N` makes one."};
const ErrorKind kPluginVersion{
    4210, "The plugin calls into Paddle's C++ classes, which differ between versions.",
    "Build it again for this Paddle: `pip install --force-reinstall ./plugins/paddle`."};
const ErrorKind kPluginTwice{
    4211, "The plugin lies in two directories, and Paddle was told to load both.",
    "Remove one of them, or set CUSTOM_DEVICE_ROOT to the one that you mean."};
const ErrorKind kPluginKernels{
    4212, "The plugin's kernel library is missing, damaged or built for another Paddle.",
    "Install the plugin again: `pip install --force-reinstall ./plugins/paddle`."};
const ErrorKind kPartitionNotHandedOver{
    4213,
    "Partitions made with `vipu`, here or on a V-IPU server, are read by softipu's Python package, "
    "which hands them to the plugin; it is not active in this process.",
    "Install softipu beside Paddle and unset SOFTIPU_DISABLE_HOOKS, or name the partition's file "
    "in IPUOF_CONFIG_PATH (`vipu get partition NAME --ipuof-configs > FILE`)."};
const ErrorKind kCollective{
    4214, "Processes that compute together must all live, on one host with enough shared memory.",
    "Look at the output of the other processes, and at `df /dev/shm`."};

namespace {

std::string Told(const ErrorKind& kind, const std::string& what, const std::string& cause,
                 const std::string& remedy) {
  return "SIPU-" + std::to_string(kind.code) + ": " + what +
         "\n  Cause: " + (cause.empty() ? kind.cause : cause) +
         "\n  Way out: " + (remedy.empty() ? kind.remedy : remedy);
}

}  // namespace

Error::Error(const ErrorKind& kind, const std::string& what, const std::string& cause,
             const std::string& remedy)
    : std::runtime_error(Told(kind, what, cause, remedy)), code_(kind.code) {}

void ThrowFileError(const std::string& path, int error_number) {
  const ErrorKind* kind = &kStateUnusable;
  if (error_number == EROFS || error_number == EACCES || error_number == EPERM) {
    kind = &kStateReadOnly;
  } else if (error_number == ENOSPC || error_number == EDQUOT) {
    kind = &kStateFull;
  }
  throw Error(*kind, path + ": " + std::strerror(error_number) + ".");
}

void Warn(const std::string& text) { std::fprintf(stderr, "softipu: warning: %s\n", text.c_str()); }

}  // namespace softipu
