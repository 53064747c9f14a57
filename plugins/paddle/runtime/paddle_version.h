// Which Paddle this process has loaded, found without a call into it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace softipu {

struct PaddleVersion {
  std::string version;  // 3.3.1
  std::string commit;   // full hash
  std::string where;    // the directory of the package
};

// Nothing if no Paddle is loaded, or it does not say.
std::optional<PaddleVersion> LoadedPaddle();

// The values in the text of paddle/version/__init__.py; empty ones where it does not have them.
PaddleVersion ParseVersionFile(const std::string& text);

// Paths of the loaded libraries whose file names begin so.
std::vector<std::string> LoadedLibraries(const std::string& beginning);

// Path of the library that this code is in.
std::string ThisLibrary();

}  // namespace softipu
