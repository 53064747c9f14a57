// The state directory: found, made, checked and written to by the rules of docs/lease-format.md.
#pragma once

#include <sys/types.h>

#include <string>

namespace softipu {

class Home {
 public:
  // The directory that the environment names; nothing is touched.
  Home();

  const std::string& path() const { return path_; }
  std::string LockOf(const std::string& key) const { return path_ + "/ipus/" + key + ".lock"; }
  std::string RecordOf(const std::string& key) const { return path_ + "/ipus/" + key + ".json"; }
  std::string CountersOf(const std::string& key) const {
    return path_ + "/ipus/" + key + ".telemetry.json";
  }
  std::string PartitionsOf(const std::string& system) const {
    return path_ + "/vipu/" + system + ".sqlite";
  }

  // Whether there is state to read; a directory that is not ours is an error.
  bool Exists() const;

  // Makes the directory, private to the user unless it exists with wider permissions.
  void Prepare();

  // Opens a lock file, which is made if it is missing and never removed.
  int OpenLock(const std::string& path) const;

  // Replaces a file whole: readers see the old text or the new one, never a part.
  void Write(const std::string& path, const std::string& text) const;

 private:
  void CheckMarker() const;
  // Gives a new file the directory's permissions and, if root made it, its owner.
  void Adjust(int file, const std::string& path) const;
  void WriteDraft(const std::string& draft, const std::string& path, const std::string& text) const;

  std::string path_;
  mode_t file_mode_ = 0600;
  uid_t owner_ = 0;  // 0: files stay with whom they are made by
  gid_t group_ = 0;
  bool prepared_ = false;
};

// The text of a regular file of at most `most` bytes. False: missing, not to be read, or a pipe or
// device, which would block.
bool ReadPlainFile(const std::string& path, size_t most, std::string* text);

// The same for files of /proc and /sys, which have no size.
bool ReadSystemFile(const std::string& path, std::string* text);

// Closes a file descriptor at the end of a block.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace softipu
