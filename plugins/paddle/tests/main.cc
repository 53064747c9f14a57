// runtime_tests [PART OF A NAME]   runs the tests
// runtime_tests --systems         the table of systems, which a Python test compares with the data
// runtime_tests --partition       what this environment gives, compared with softipu.devices
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include "check.h"
#include "errors.h"
#include "partition.h"

namespace check {

namespace {

std::string folder;

void CleanEnvironment(int number) {
  for (const char* name :
       {"SOFTIPU_SYSTEM", "SOFTIPU_PADDLE_PARTITION", "IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_HOST",
        "IPUOF_VIPU_API_PARTITION_ID", "GCDA_MONITOR", "GCDA_OPTIONS", "XDG_STATE_HOME"}) {
    unsetenv(name);
  }
  const std::string user = folder + "/user" + std::to_string(number);
  mkdir(user.c_str(), 0700);
  setenv("HOME", user.c_str(), 1);
  setenv("SOFTIPU_HOME", (folder + "/state" + std::to_string(number)).c_str(), 1);
}

}  // namespace

const std::string& Folder() { return folder; }

std::string ThrownBy(const std::function<void()>& deed) {
  try {
    deed();
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
  throw Failure("nothing was thrown");
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file) throw Failure("cannot write " + path);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

int InChild(const std::function<int()>& deed) {
  const pid_t child = fork();
  if (child == 0) {
    int status = 99;
    try {
      status = deed();
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "in the child: %s\n", thrown.what());
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int RunAll(const std::string& part) {
  char name[] = "/tmp/softipu-tests.XXXXXX";
  folder = mkdtemp(name);
  int number = 0, failed = 0, ran = 0;
  for (const Test& test : All()) {
    if (std::string(test.name).find(part) == std::string::npos) continue;
    CleanEnvironment(++number);
    ++ran;
    try {
      test.body();
      std::cout << "ok      " << test.name << std::endl;
    } catch (const std::exception& thrown) {
      ++failed;
      std::cout << "FAILED  " << test.name << "\n        " << thrown.what() << std::endl;
    }
  }
  std::cout << ran << " tests, " << failed << " failed" << std::endl;
  const std::string remove = "rm -rf " + folder;
  if (std::system(remove.c_str()) != 0) std::cout << folder << " is left" << std::endl;
  return failed == 0 && ran > 0 ? 0 : 1;
}

}  // namespace check

static int PrintSystems() {
  for (const softipu::System& system : softipu::AllSystems()) {
    const softipu::Chip& chip = *system.chip;
    std::cout << system.name << " " << chip.name << " " << chip.product << " " << chip.architecture
              << " " << chip.tiles << " " << chip.worker_contexts << " " << chip.tile_memory << " "
              << system.streaming_memory;
    for (const softipu::Ipu& ipu : softipu::WholeSystem(system).ipus) std::cout << " " << ipu.Key();
    std::cout << "\n";
  }
  return 0;
}

static int PrintPartition() {
  try {
    const softipu::Partition partition = softipu::ActivePartition(softipu::Home());
    std::cout << partition.name << " " << partition.system->name;
    for (const softipu::Device& device : partition.Devices()) {
      std::cout << " " << device.id;
      for (const softipu::Ipu& ipu : device.ipus) std::cout << ":" << ipu.Key();
    }
    std::cout << "\n";
    return 0;
  } catch (const softipu::Error& problem) {
    std::cout << problem.what() << "\n";
    return 1;
  }
}

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  if (what == "--systems") return PrintSystems();
  if (what == "--partition") return PrintPartition();
  return check::RunAll(what);
}
