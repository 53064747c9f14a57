#include "python_host.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>

#include "build_info.h"  // written when the library is installed

namespace softipu {
namespace {

std::once_flag started;
std::atomic<bool> ending{false};

[[noreturn]] void Fail(const std::string& what) {
  throw paddle_infer::Error("SIPU-4140: " + what +
                            "\n  Cause: This library was made for the Python environment " +
                            kPythonExecutable +
                            ".\n  Way out: Make it again with `python -m "
                            "softipu.tools.paddle_inference --prefix DIR` in an environment that "
                            "has softipu and paddlepaddle.");
}

// Paddle installs handlers that print a trace and abort; in a C++ program they are not its business.
class KeptSignals {
 public:
  KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  ~KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &kept_[i], nullptr);
  }

 private:
  static constexpr std::array<int, 7> kSignals = {SIGSEGV, SIGILL, SIGFPE, SIGABRT,
                                                  SIGBUS,  SIGTERM, SIGINT};
  std::array<struct sigaction, 7> kept_;
};

constexpr std::array<int, 7> KeptSignals::kSignals;

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "program";
}

// Whether the program brings a glog, whose symbols Paddle would take for its own.
bool HasGlog() { return dlsym(RTLD_DEFAULT, "_ZN6google17InitGoogleLoggingEPKc") != nullptr; }

void Check(const PyStatus& status) {
  if (PyStatus_Exception(status)) {
    Fail(std::string("Python could not be started: ") +
         (status.err_msg != nullptr ? status.err_msg : "no reason given") + ".");
  }
}

void StartInterpreter() {
  if (access(kPythonExecutable, X_OK) != 0) {
    Fail(std::string("The Python environment ") + kPythonExecutable + " is gone.");
  }
  // Python's extension modules look for its symbols among the global ones, where they are not if
  // this library itself was opened by dlopen.
  dlopen(kPythonLibrary, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  config.parse_argv = 0;
  config.use_environment = 0;  // PYTHONHOME and PYTHONPATH are meant for other Pythons
  const std::string own = OwnPath();
  char* arguments[] = {const_cast<char*>(own.c_str())};
  PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, kPythonExecutable);
  if (!PyStatus_Exception(status)) status = PyConfig_SetBytesArgv(&config, 1, arguments);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  Check(status);
}

// Registered after Paddle was loaded, and so called before Paddle's static objects are destroyed.
void AtExit() {
  py::gil_scoped_acquire gil;
  ending = true;
  // Predictors that are still there have threads of Paddle's that would use what is destroyed next.
  // The youngest first: handles point into their predictors.
  while (!Living().empty()) Living().pop_back();
  try {
    Bridge().attr("at_exit")();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("softipu: at the end of the process");
  }
}

void ImportPaddle() {
  KeptSignals kept;
  try {
    Bridge().attr("start")(OwnPath(), HasGlog());
  } catch (py::error_already_set& error) {
    Fail("Paddle could not be imported: " + TextOf(error));
  }
}

void Start() {
  const bool embedded_by_us = !Py_IsInitialized();
  if (embedded_by_us) {
    StartInterpreter();
    try {
      ImportPaddle();
    } catch (...) {
      PyEval_SaveThread();
      throw;
    }
    PyEval_SaveThread();  // from here on, whoever needs the GIL takes it
  } else {
    py::gil_scoped_acquire gil;
    ImportPaddle();
  }
  std::atexit(&AtExit);
}

}  // namespace

bool Ending() { return ending; }

std::list<py::object>& Living() {
  static auto* living = new std::list<py::object>;
  return *living;
}

void FailAtEnd() {
  throw paddle_infer::Error(
      "SIPU-4140: a predictor was used while the process ends.\n  Cause: main has returned or exit "
      "was called, and Paddle is gone.\n  Way out: Use predictors before, or end with _exit.");
}

void EnsurePython() { std::call_once(started, &Start); }

std::string TextOf(py::error_already_set& error) {
  const std::string text = py::str(error.value());
  // Errors of softipu begin with their code, which says more than the name of a class.
  if (text.rfind("SIPU-", 0) == 0) return text;
  const std::string kind = py::str(error.type().attr("__name__"));
  return text.empty() ? kind : kind + ": " + text;
}

py::module_ Bridge() { return py::module_::import("softipu.frontends.paddle.inference_cpp"); }

}  // namespace softipu
