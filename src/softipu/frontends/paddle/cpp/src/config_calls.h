// How methods of Config reach the Config in Python that does their work.
#pragma once

#include <pybind11/stl.h>

#include <memory>

#include "states.h"

namespace paddle_infer {
inline namespace softipu_api {

using softipu::WithPython;
namespace py = pybind11;

template <typename... Arguments>
void Call(const std::shared_ptr<Config::State>& state, const char* method,
          const Arguments&... arguments) {
  WithPython([&] { (*state->config).attr(method)(arguments...); });
}

template <typename Result>
Result Get(const std::shared_ptr<Config::State>& state, const char* method) {
  return WithPython([&] { return (*state->config).attr(method)().template cast<Result>(); });
}

inline py::object Precise(PrecisionType precision) {
  return softipu::Bridge().attr("precision")(static_cast<int>(precision));
}

}  // namespace softipu_api
}  // namespace paddle_infer
