#include "partition.h"

#include <sys/stat.h>

#include <cstdlib>

#include "check.h"

using softipu::ActivePartition;
using softipu::Home;
using softipu::Partition;

static const char kTwoIpus[] = R"({
  "devices": [{"ip": "10.1.5.1", "device_id": 3}, {"ip": "10.1.5.1", "device_id": 2}],
  "attributes": {"Fabric Reconfigurable": "%s", "IPU version": "ipu2", "Partition Id": "mine"}
})";

static std::string TwoIpus(const char* reconfigurable) {
  char text[512];
  std::snprintf(text, sizeof text, kTwoIpus, reconfigurable);
  return text;
}

TEST("without any configuration there is the whole default system") {
  const Partition partition = ActivePartition(Home());
  CHECK_EQUAL(partition.name, "ipuof");
  CHECK_EQUAL(partition.ipus.size(), 16u);
  CHECK_EQUAL(partition.ipus[0].Key(), "198.19.16.1-3");
  CHECK_EQUAL(partition.Devices()[15].id, 15);
}

TEST("SOFTIPU_SYSTEM names another system") {
  setenv("SOFTIPU_SYSTEM", "c600", 1);
  CHECK_EQUAL(ActivePartition(Home()).ipus[0].Key(), "0000_35_00.0-0");
  setenv("SOFTIPU_SYSTEM", "pod17", 1);
  CHECK_CONTAINS(check::ThrownBy([] { ActivePartition(Home()); }), "no system named 'pod17'");
}

TEST("an IPUoF file describes the partition") {
  const std::string path = check::Folder() + "/two.conf";
  check::WriteFile(path, TwoIpus("true"));
  setenv("IPUOF_CONFIG_PATH", path.c_str(), 1);
  const Partition partition = ActivePartition(Home());
  CHECK_EQUAL(partition.name, "mine");
  CHECK_EQUAL(partition.ipus[1].Key(), "10.1.5.1-2");
  CHECK_EQUAL(std::string(partition.system->name), "m2000");
  CHECK_EQUAL(partition.Devices().size(), 2u);
}

TEST("a partition that cannot be divided is one device") {
  const Partition partition = softipu::ParseIpuof(TwoIpus("false"), "here", "name");
  CHECK_EQUAL(partition.Devices().size(), 1u);
  CHECK_EQUAL(partition.Devices()[0].id, 2);
  CHECK_EQUAL(partition.Devices()[0].ipus.size(), 2u);
}

TEST("files in the user's folder come before the default, after SOFTIPU_SYSTEM") {
  const std::string folder = std::string(getenv("HOME")) + "/.ipuof.conf.d";
  mkdir(folder.c_str(), 0700);
  check::WriteFile(folder + "/b.conf", "not read");
  check::WriteFile(folder + "/a.conf", TwoIpus("true"));
  CHECK_EQUAL(ActivePartition(Home()).name, "mine");
  setenv("SOFTIPU_SYSTEM", "pod4", 1);
  CHECK_EQUAL(ActivePartition(Home()).name, "ipuof");
}

TEST("IPUoF files that are missing or malformed are named") {
  setenv("IPUOF_CONFIG_PATH", "/nowhere/at.conf", 1);
  CHECK_CONTAINS(check::ThrownBy([] { ActivePartition(Home()); }), "/nowhere/at.conf");
  setenv("IPUOF_CONFIG_PATH", check::Folder().c_str(), 1);
  CHECK_CONTAINS(check::ThrownBy([] { ActivePartition(Home()); }), "SIPU-1102");
  for (const char* text :
       {"", "{}", "[]", "{\"devices\": [1]}",
        "{\"devices\": [{\"ip\": \"a b\", \"device_id\": 0}]}",
        "{\"devices\": [{\"ip\": \"a\", \"device_id\": -1}]}",
        "{\"devices\": [{\"ip\": \"a\", \"device_id\": true}]}",
        "{\"devices\": [{\"ip\": \"a\", \"device_id\": 0}], \"attributes\": {\"a\": 1}}",
        "{\"devices\": [{\"ip\": \"a\", \"device_id\": 0}, {\"ip\": \"a\", \"device_id\": 0}]}",
        "{\"devices\": [{\"ip\": \"a\", \"device_id\": 0}], "
        "\"attributes\": {\"IPU version\": \"ipu9\"}}"}) {
    CHECK_CONTAINS(check::ThrownBy([&] { softipu::ParseIpuof(text, "here", "name"); }),
                   "SIPU-1103");
  }
}

TEST("a partition that Python found is handed over in a variable") {
  setenv("IPUOF_VIPU_API_HOST", "server", 1);
  CHECK_CONTAINS(check::ThrownBy([] { ActivePartition(Home()); }), "SIPU-4213");
  setenv("SOFTIPU_PADDLE_PARTITION", TwoIpus("true").c_str(), 1);
  CHECK_EQUAL(ActivePartition(Home()).name, "mine");
}

TEST("partitions made with vipu need Python; the default partition may be named") {
  Home home;
  setenv("IPUOF_VIPU_API_PARTITION_ID", "ipuof", 1);
  CHECK_EQUAL(ActivePartition(home).name, "ipuof");
  setenv("IPUOF_VIPU_API_PARTITION_ID", "other", 1);
  CHECK_CONTAINS(check::ThrownBy([&] { ActivePartition(home); }), "SIPU-1401");
  home.Prepare();
  check::WriteFile(home.PartitionsOf("bow-pod16"), "a database");
  CHECK_CONTAINS(check::ThrownBy([&] { ActivePartition(home); }), "SIPU-4213");
}
