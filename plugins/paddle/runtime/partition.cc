#include "partition.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include "errors.h"
#include "json.h"
#include "settings.h"

namespace softipu {

namespace {

constexpr char kDefaultSystem[] = "bow-pod16";
constexpr char kDefaultPartition[] = "ipuof";
constexpr char kEmbedded[] = "embedded";
constexpr size_t kLargestFile = 4 << 20;
constexpr size_t kLongestText = 256;

// Where it takes Python to find the partition, the front end puts it here, as IPUoF configuration.
constexpr char kHandedOver[] = "SOFTIPU_PADDLE_PARTITION";

bool FileExists(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0;
}

bool IsPlainText(const Json& value) {
  if (!value.is(Json::Kind::kText) || value.text().size() > kLongestText) return false;
  return std::all_of(value.text().begin(), value.text().end(),
                     [](unsigned char letter) { return letter >= 0x20 && letter != 0x7f; });
}

bool IsHost(const std::string& text) {
  const auto allowed = [](unsigned char letter) {
    return std::isalnum(letter) || std::strchr(".:_-", letter) != nullptr;
  };
  return !text.empty() && text.size() <= 63 && std::isalnum(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), allowed);
}

[[noreturn]] void Malformed(const std::string& what) { throw Error(kIpuofFileMalformed, what); }

const System& SystemOf(const Json& attributes, const std::string& where) {
  if (const auto name = attributes.Text("softipu System")) return FindSystem(*name);
  const std::string version = attributes.Text("IPU version").value_or("ipu2");
  if (version != "ipu2" && version != "ipu21") {
    Malformed(where + ": unknown \"IPU version\" '" + version + "' (known: ipu2, ipu21).");
  }
  if (const auto wanted = Setting("SOFTIPU_SYSTEM")) {
    // Mk2 and Bow machines write the same version: the user may say which one it was.
    const System& system = FindSystem(*wanted);
    if (version == system.chip->architecture) return system;
  }
  return FindSystem(version == "ipu2" ? "m2000" : "c600");
}

Ipu ParseDevice(const Json& entry, int number, const std::string& where) {
  const std::string place = where + ": device " + std::to_string(number);
  if (!entry.is(Json::Kind::kObject)) Malformed(place + " is not an object.");
  const auto host = entry.Text("ip");
  if (!host || !IsHost(*host)) Malformed(place + ": \"ip\" is no address.");
  const auto device_id = entry.Integer("device_id");
  if (!device_id || *device_id < 0 || *device_id >= int64_t{1} << 31) {
    Malformed(place + ": \"device_id\" is not a number from 0.");
  }
  return {number, *host, static_cast<int>(*device_id)};
}

Partition FromFile(const std::string& path) {
  std::string text;
  if (!ReadPlainFile(path, kLargestFile + 1, &text)) {
    throw Error(kIpuofFileMissing, errno == ENOENT ? "The IPUoF file " + path + " does not exist."
                                                   : "The IPUoF file " + path +
                                                         " cannot be read: " +
                                                         std::strerror(errno) + ".");
  }
  if (text.size() > kLargestFile) Malformed(path + " is larger than any IPUoF file.");
  const size_t start = path.rfind('/') + 1;
  const size_t dot = path.rfind('.');
  const bool has_ending = dot != std::string::npos && dot > start;
  return ParseIpuof(text, path, path.substr(start, has_ending ? dot - start : dot));
}

// The files that apply when no variable says anything else, in their order.
std::vector<std::string> ConfigurationFiles() {
  std::vector<std::string> folders, files;
  if (const auto user = UserHome()) folders.push_back(*user + "/.ipuof.conf.d");
  folders.push_back("/etc/ipuof.conf.d");
  for (const std::string& folder : folders) {
    DIR* entries = opendir(folder.c_str());
    if (entries == nullptr) {
      if (errno != ENOENT && errno != ENOTDIR) {
        Warn(folder + " cannot be read (" + std::strerror(errno) + "): none of its files is used.");
      }
      continue;
    }
    std::set<std::string> names;
    while (const dirent* entry = readdir(entries)) {
      const std::string name = entry->d_name;
      if (name.size() >= 5 && name.compare(name.size() - 5, 5, ".conf") == 0) names.insert(name);
    }
    closedir(entries);
    for (const std::string& name : names) files.push_back(folder + "/" + name);
  }
  return files;
}

Partition Embedded(const Home& home) {
  const System& system = FindSystem(Setting("SOFTIPU_SYSTEM").value_or(kDefaultSystem));
  if (home.Exists() && FileExists(home.PartitionsOf(system.name))) {
    throw Error(kPartitionNotHandedOver, "The embedded system " + std::string(system.name) +
                                             " is managed with `vipu`, and this process does not "
                                             "know which of its partitions to use.");
  }
  const auto wanted = Setting("IPUOF_VIPU_API_PARTITION_ID");
  if (wanted && *wanted != kDefaultPartition) {
    throw Error(kUnknownPartition, "Partition '" + *wanted +
                                       "' (IPUOF_VIPU_API_PARTITION_ID) does not exist on the "
                                       "embedded system " +
                                       system.name + ", which has: " + kDefaultPartition + ".");
  }
  return WholeSystem(system);
}

}  // namespace

std::string Ipu::Key() const {
  std::string key = host + "-" + std::to_string(device_id);
  std::replace(key.begin(), key.end(), ':', '_');
  return key;
}

std::vector<Device> Partition::Devices() const {
  std::vector<Device> devices;
  if (!reconfigurable && ipus.size() > 1) {
    // The only device that may be attached has all IPUs; its id follows those of the IPUs.
    return {{static_cast<int>(ipus.size()), ipus}};
  }
  for (const Ipu& ipu : ipus) devices.push_back({ipu.id, {ipu}});
  return devices;
}

Partition WholeSystem(const System& system) {
  Partition partition{kDefaultPartition, &system, true, {}};
  for (int machine = 0; machine < system.machines; ++machine) {
    // IPU# counts down, as on the real machines.
    for (int device_id = system.ipus_per_machine - 1; device_id >= 0; --device_id) {
      partition.ipus.push_back(
          {static_cast<int>(partition.ipus.size()), system.Host(machine), device_id});
    }
  }
  return partition;
}

Partition ParseIpuof(const std::string& text, const std::string& where, const std::string& name) {
  const std::optional<Json> parsed = Json::Parse(text);
  if (!parsed) Malformed(where + " is not JSON.");
  static const Json kNoAttributes = *Json::Parse("{}");
  const bool bare_list = parsed->is(Json::Kind::kList);  // files of the first SDKs
  const Json* devices = bare_list ? &*parsed : parsed->Find("devices");
  const Json* found = parsed->Find("attributes");
  const Json& attributes = found == nullptr ? kNoAttributes : *found;
  if (devices == nullptr || !devices->is(Json::Kind::kList)) {
    Malformed(where + ": expected an object with a list \"devices\".");
  }
  if (!attributes.is(Json::Kind::kObject) ||
      !std::all_of(attributes.members().begin(), attributes.members().end(),
                   [](const auto& member) { return IsPlainText(member.second); })) {
    Malformed(where + ": \"attributes\" must be an object of short texts.");
  }
  if (devices->items().empty()) Malformed(where + ": the list of devices is empty.");

  std::string reconfigurable = attributes.Text("Fabric Reconfigurable").value_or("true");
  for (char& letter : reconfigurable) letter = static_cast<char>(std::tolower(letter));
  Partition partition{attributes.Text("Partition Id").value_or(name), &SystemOf(attributes, where),
                      reconfigurable == "true", {}};
  if (partition.name.empty()) Malformed(where + ": a partition must have a name.");
  std::set<std::string> seen;
  for (const Json& entry : devices->items()) {
    partition.ipus.push_back(ParseDevice(entry, static_cast<int>(partition.ipus.size()), where));
    const std::string key = partition.ipus.back().Key();
    if (!seen.insert(key).second) Malformed(where + ": device " + key + " is listed twice.");
  }
  return partition;
}

Partition ActivePartition(const Home& home) {
  if (const auto handed = Setting(kHandedOver)) {
    return ParseIpuof(*handed, kHandedOver, kDefaultPartition);
  }
  if (const auto file = PathSetting("IPUOF_CONFIG_PATH")) return FromFile(*file);
  if (const auto server = Setting("IPUOF_VIPU_API_HOST"); server && *server != kEmbedded) {
    throw Error(kPartitionNotHandedOver, "IPUOF_VIPU_API_HOST names the V-IPU server " + *server +
                                             ", which this process has not asked.");
  }
  if (Setting("IPUOF_VIPU_API_PARTITION_ID") || Setting("SOFTIPU_SYSTEM")) return Embedded(home);
  const std::vector<std::string> files = ConfigurationFiles();
  return files.empty() ? Embedded(home) : FromFile(files.front());
}

}  // namespace softipu
