#include "paddle_version.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>

#include "home.h"

namespace softipu {

namespace {

constexpr size_t kLargestVersionFile = 1 << 20;

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? path : std::string(resolved);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// What stands between quotes in the line `name = '…'`.
std::string Assigned(const std::string& text, const std::string& name) {
  size_t line = 0;
  while (line < text.size()) {
    const size_t end = text.find('\n', line);
    const std::string one = text.substr(line, end == std::string::npos ? end : end - line);
    const size_t equals = one.find('=');
    if (equals != std::string::npos &&
        one.substr(0, one.find_first_of(" =")) == name) {
      const size_t open = one.find_first_of("'\"", equals);
      const size_t close = open == std::string::npos ? open : one.find(one[open], open + 1);
      if (close != std::string::npos) return one.substr(open + 1, close - open - 1);
    }
    if (end == std::string::npos) break;
    line = end + 1;
  }
  return "";
}

struct Search {
  const std::string& beginning;
  std::vector<std::string> found;
};

int Look(dl_phdr_info* library, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  const std::string path = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  const size_t name = path.rfind('/') + 1;
  if (path.compare(name, search->beginning.size(), search->beginning) == 0) {
    search->found.push_back(RealPath(path));
  }
  return 0;
}

}  // namespace

std::vector<std::string> LoadedLibraries(const std::string& beginning) {
  Search search{beginning, {}};
  dl_iterate_phdr(Look, &search);
  return search.found;
}

std::string ThisLibrary() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&ThisLibrary), &here) == 0) return "";
  return RealPath(here.dli_fname);
}

PaddleVersion ParseVersionFile(const std::string& text) {
  return {Assigned(text, "full_version"), Assigned(text, "commit"), ""};
}

std::optional<PaddleVersion> LoadedPaddle() {
  for (const char* library : {"libphi_core.so", "libphi.so", "libpaddle.so", "libcommon.so"}) {
    for (const std::string& path : LoadedLibraries(library)) {
      const std::string package = FolderOf(FolderOf(path));  // of paddle/libs and paddle/base
      std::string text;
      if (!ReadPlainFile(package + "/version/__init__.py", kLargestVersionFile, &text)) continue;
      PaddleVersion version = ParseVersionFile(text);
      version.where = package;
      if (!version.version.empty()) return version;
    }
  }
  return std::nullopt;
}

}  // namespace softipu
