// The Python inside the library: started once, when first needed, and never stopped.
#pragma once

#include <pybind11/pybind11.h>

#include <list>
#include <memory>
#include <string>
#include <utility>

#include "paddle_tensor.h"

namespace softipu {

namespace py = pybind11;

// Starts Python and imports Paddle, unless that was done; throws paddle_infer::Error if it fails.
void EnsurePython();

// The text of a Python exception as the person at the terminal should see it. Needs the GIL.
std::string TextOf(py::error_already_set& error);

// Whether the process is ending: predictors that outlive main are gone, Paddle's own static objects
// go next.
bool Ending();

[[noreturn]] void FailAtEnd();

// Calls `work` with the GIL held; Python's exceptions become paddle_infer::Error.
template <typename Work>
auto WithPython(Work&& work) -> decltype(work()) {
  EnsurePython();
  py::gil_scoped_acquire gil;
  if (Ending()) FailAtEnd();
  try {
    return work();
  } catch (py::error_already_set& error) {
    throw paddle_infer::Error(TextOf(error));
  } catch (py::cast_error& error) {
    throw paddle_infer::Error(std::string("SIPU-1000: unexpected type from Python: ") +
                              error.what());
  }
}

// Every object that a Held holds, oldest first. Needs the GIL.
std::list<py::object>& Living();

// A Python object that may be copied and dropped by threads that do not hold the GIL.
class Held {
 public:
  Held() = default;
  explicit Held(py::object object) {
    const auto place = Living().insert(Living().end(), std::move(object));
    object_.reset(&*place, [place](py::object*) { Drop(place); });
  }

  const py::object& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  static void Drop(std::list<py::object>::iterator place) {
    if (Ending()) return;
    py::gil_scoped_acquire gil;
    if (!Ending()) Living().erase(place);
  }

  std::shared_ptr<py::object> object_;
};

// The module softipu.frontends.paddle.inference_cpp. Needs the GIL.
py::module_ Bridge();

}  // namespace softipu
