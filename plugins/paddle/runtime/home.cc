#include "home.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <sstream>

#include "errors.h"
#include "json.h"
#include "settings.h"

namespace softipu {

namespace {

constexpr char kMarker[] = "softipu-state.json";
constexpr char kDraft[] = ".softipu-";
constexpr int kFormat = 1;
constexpr size_t kLargestRecord = 1 << 20;

std::string DefaultPath() {
  if (const auto configured = PathSetting("SOFTIPU_HOME")) return *configured;
  const auto base = Setting("XDG_STATE_HOME");
  if (base && (*base)[0] == '/') return *base + "/softipu";
  const auto user = UserHome();
  if (!user) {
    throw Error(kStateUnusable, "There is no home directory to keep state in.",
                "HOME is not set, and the system does not know this user.",
                "Set SOFTIPU_HOME (or HOME) to a directory of yours.");
  }
  return *user + "/.local/state/softipu";
}

void MakeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (mkdir(parent.c_str(), 0777) != 0 && errno != EEXIST) ThrowFileError(parent, errno);
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) ThrowFileError(path, errno);
}

bool ReadAll(int file, size_t most, std::string* text) {
  char part[4096];
  while (text->size() < most) {
    const ssize_t count = read(file, part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;
    text->append(part, static_cast<size_t>(count));
  }
  return true;
}

void WriteAll(int file, const std::string& path, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowFileError(path, errno);
    done += static_cast<size_t>(count);
  }
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

bool ReadPlainFile(const std::string& path, size_t most, std::string* text) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (file.number() < 0 || fstat(file.number(), &found) != 0) return false;
  if (!S_ISREG(found.st_mode)) {
    errno = EINVAL;
    return false;
  }
  return ReadAll(file.number(), most, text);
}

bool ReadSystemFile(const std::string& path, std::string* text) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.number() >= 0 && ReadAll(file.number(), kLargestRecord, text);
}

Home::Home() : path_(DefaultPath()) {}

bool Home::Exists() const {
  DIR* folder = opendir(path_.c_str());
  if (folder == nullptr) {
    if (errno == ENOENT) return false;
    if (errno == ENOTDIR) throw Error(kStateForeign, path_ + " is a file, not a directory.");
    ThrowFileError(path_, errno);
  }
  bool others = false, marker = false;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name == kMarker) marker = true;
    if (name != "." && name != ".." && name.rfind(kDraft, 0) != 0) others = true;
  }
  closedir(folder);
  // Asked for after the list was read: another process may be preparing the directory, and a list
  // read meanwhile can hold what it made last and lack the marker, made first.
  const std::string path = path_ + "/" + kMarker;
  if (marker || (others && access(path.c_str(), F_OK) == 0)) {
    CheckMarker();
    return true;
  }
  if (others) throw Error(kStateForeign, path_ + " has files in it, but none of softipu's.");
  return false;
}

void Home::CheckMarker() const {
  const std::string path = path_ + "/" + kMarker;
  std::string text;
  if (!ReadPlainFile(path, kLargestRecord, &text)) ThrowFileError(path, errno);
  const std::optional<Json> marker = Json::Parse(text);
  if (!marker || marker->Integer("format") != kFormat) {
    throw Error(kStateFormat, path + " does not say format 1, the one this softipu knows.");
  }
}

void Home::Prepare() {
  if (prepared_) return;
  const bool exists = Exists();
  if (!exists) MakeDirectories(path_);
  struct stat found {};
  if (stat(path_.c_str(), &found) != 0) ThrowFileError(path_, errno);
  const mode_t mode = found.st_mode & 07777;
  // A directory shared on purpose (group or world may write) gets files to share.
  file_mode_ = 0600 | ((mode & 0022) ? (mode & 0066) : 0);
  // Root in a container, or by sudo: files left with root would lock the user out of his own IPUs.
  if (geteuid() == 0) {
    owner_ = found.st_uid;
    group_ = found.st_gid;
  }
  if (!exists) {
    // Several threads and processes may be the first at once, each with its own draft.
    std::ostringstream draft;
    draft << path_ << "/" << kDraft << kMarker << "." << getpid() << "." << pthread_self();
    WriteDraft(draft.str(), path_ + "/" + kMarker,
               JsonObject().Add("format", kFormat).Add("made_by", "paddle-custom-ipu").str());
  }
  for (const char* name : {"/ipus", "/vipu"}) {
    const std::string folder = path_ + name;
    if (mkdir(folder.c_str(), 0777) == 0) {
      if (chmod(folder.c_str(), mode) != 0) ThrowFileError(folder, errno);
      if (owner_ != 0 && chown(folder.c_str(), owner_, group_) != 0) ThrowFileError(folder, errno);
    } else if (errno != EEXIST) {
      ThrowFileError(folder, errno);
    }
  }
  prepared_ = true;
}

int Home::OpenLock(const std::string& path) const {
  while (true) {
    const int lock = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (lock >= 0) return lock;
    if (errno != ENOENT) ThrowFileError(path, errno);
    const Descriptor made(
        open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, file_mode_));
    if (made.number() < 0) {
      struct stat found {};
      if (errno != EEXIST) ThrowFileError(path, errno);
      // A link to nowhere: we must not make a file there.
      if (lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode)) ThrowFileError(path, ELOOP);
    } else {
      Adjust(made.number(), path);
    }
  }
}

void Home::Adjust(int file, const std::string& path) const {
  if (file_mode_ != 0600 && fchmod(file, file_mode_) != 0) ThrowFileError(path, errno);
  if (owner_ != 0 && fchown(file, owner_, group_) != 0) ThrowFileError(path, errno);
}

void Home::Write(const std::string& path, const std::string& text) const {
  // The draft's name is fixed, as only the holder of a lock writes beside it: what a killed writer
  // leaves is overwritten by the next one.
  const size_t slash = path.rfind('/') + 1;
  WriteDraft(path.substr(0, slash) + kDraft + path.substr(slash), path, text);
}

void Home::WriteDraft(const std::string& draft, const std::string& path,
                      const std::string& text) const {
  try {
    const Descriptor file(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                               file_mode_));
    if (file.number() < 0) ThrowFileError(draft, errno);
    Adjust(file.number(), draft);
    WriteAll(file.number(), draft, text);
    if (rename(draft.c_str(), path.c_str()) != 0) ThrowFileError(path, errno);
  } catch (const Error&) {
    unlink(draft.c_str());
    throw;
  }
}

}  // namespace softipu
