// Failures in the words of softipu.errors: a code, what happened, the cause, the way out.
#pragma once

#include <stdexcept>
#include <string>

namespace softipu {

// One row for each code that the runtime can report; the texts are those of softipu.errors.
struct ErrorKind {
  int code;
  const char* cause;
  const char* remedy;
};

extern const ErrorKind kUnknownSystem;
extern const ErrorKind kInvalidSetting;
extern const ErrorKind kIpuofFileMissing;
extern const ErrorKind kIpuofFileMalformed;
extern const ErrorKind kNoSuchDevice;
extern const ErrorKind kDevicesBusy;
extern const ErrorKind kUnknownPartition;
extern const ErrorKind kStateReadOnly;
extern const ErrorKind kStateFull;
extern const ErrorKind kStateForeign;
extern const ErrorKind kStateFormat;
extern const ErrorKind kStateUnusable;
extern const ErrorKind kPluginVersion;
extern const ErrorKind kPluginTwice;
extern const ErrorKind kPluginKernels;
extern const ErrorKind kPartitionNotHandedOver;
extern const ErrorKind kCollective;

class Error : public std::runtime_error {
 public:
  explicit Error(const ErrorKind& kind, const std::string& what, const std::string& cause = "",
                 const std::string& remedy = "");
  int code() const { return code_; }

 private:
  int code_;
};

// An error of the file system about `path`, told by errno.
[[noreturn]] void ThrowFileError(const std::string& path, int error_number);

// One line on stderr, for what concerns the person at the terminal but stops nothing.
void Warn(const std::string& text);

}  // namespace softipu
