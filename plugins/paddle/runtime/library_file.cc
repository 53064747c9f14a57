#include "library_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "home.h"

namespace softipu {

bool IsWholeLibrary(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (file.number() < 0 || fstat(file.number(), &found) != 0) return false;
  const auto size = static_cast<uint64_t>(found.st_size);
  Elf64_Ehdr header{};
  if (pread(file.number(), &header, sizeof header, 0) != sizeof header ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  const auto bytes = static_cast<ssize_t>(parts.size() * sizeof(Elf64_Phdr));
  if (pread(file.number(), parts.data(), static_cast<size_t>(bytes),
            static_cast<off_t>(header.e_phoff)) != bytes) {
    return false;
  }
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type == PT_LOAD && (part.p_filesz > size || part.p_offset > size - part.p_filesz)) {
      return false;
    }
  }
  return !parts.empty();
}

}  // namespace softipu
