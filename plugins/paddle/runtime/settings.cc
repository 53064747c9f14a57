#include "settings.h"

#include <pwd.h>
#include <unistd.h>

#include <cctype>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "errors.h"

namespace softipu {

namespace {

std::optional<std::string> HomeOf(const std::string& user) {
  std::vector<char> room(1 << 16);
  passwd entry{};
  passwd* found = nullptr;
  if (user.empty()) {
    getpwuid_r(getuid(), &entry, room.data(), room.size(), &found);
  } else {
    getpwnam_r(user.c_str(), &entry, room.data(), room.size(), &found);
  }
  if (found == nullptr || found->pw_dir == nullptr) return std::nullopt;
  return std::string(found->pw_dir);
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

}  // namespace

std::optional<std::string> Setting(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

bool FlagSetting(const char* name, bool otherwise) {
  const std::optional<std::string> text = Setting(name);
  if (!text) return otherwise;
  std::string word = Trimmed(*text);
  for (char& letter : word) letter = static_cast<char>(std::tolower(letter));
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"0", "false", "no", "off", ""}) {
    if (word == no) return false;
  }
  throw Error(kInvalidSetting, std::string(name) + "='" + *text + "': expected 1 or 0");
}

double SecondsSetting(const char* name, double otherwise) {
  const std::optional<std::string> text = Setting(name);
  if (!text) return otherwise;
  const std::string word = Trimmed(*text);
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (!word.empty() && *end == '\0' && value > 0 && std::isfinite(value)) return value;
  throw Error(kInvalidSetting,
              std::string(name) + "='" + *text + "': expected a number of seconds above 0");
}

std::optional<std::string> UserHome() {
  if (const char* home = std::getenv("HOME")) return std::string(home);
  return HomeOf("");
}

std::optional<std::string> PathSetting(const char* name) {
  const std::optional<std::string> text = Setting(name);
  if (!text) return std::nullopt;
  std::string path = *text;
  if (path[0] == '~') {
    const size_t slash = path.find('/');
    const std::string user = path.substr(1, slash == std::string::npos ? slash : slash - 1);
    const std::optional<std::string> home = user.empty() ? UserHome() : HomeOf(user);
    if (!home) {
      throw Error(kInvalidSetting, std::string(name) + "='" + *text + "': there is no such user.");
    }
    path = *home + (slash == std::string::npos ? "" : path.substr(slash));
  }
  if (path[0] != '/') {
    char here[PATH_MAX];
    if (getcwd(here, sizeof here) != nullptr) path = std::string(here) + "/" + path;
  }
  return path;
}

}  // namespace softipu
