// What stands behind the classes of the public headers.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "paddle_inference_api.h"
#include "python_host.h"

namespace paddle_infer {
inline namespace softipu_api {

struct Config::State {
  softipu::Held config;
  std::map<std::string, std::string> texts;
  std::unique_ptr<PassStrategy> passes;
  std::string device_type;
  int device_id = 0;
};

// An input or output of one predictor; all Tensor objects of that name share it.
struct Tensor::State {
  std::string name;
  softipu::Held predictor;  // owns what the handle points to
  softipu::Held handle;
  bool is_input = false;
  // Inputs: the shape of the data to come.
  std::vector<int> shape;
  bool has_shape = false;
  // Inputs: memory that is read at every run, ours or the caller's.
  std::unique_ptr<char[]> own;
  std::size_t own_size = 0;
  const void* source = nullptr;
  softipu::Held source_dtype;
  // Outputs: the array with the values of the last run that was read.
  softipu::Held result;
  std::shared_ptr<std::uint64_t> runs;  // of the predictor
  std::uint64_t result_of_run = 0;
};

struct Predictor::State {
  softipu::Held predictor;
  // The model's own words about its inputs and outputs.
  softipu::Held description;
  std::shared_ptr<std::uint64_t> runs = std::make_shared<std::uint64_t>(0);
  std::map<std::string, std::shared_ptr<Tensor::State>> inputs;
  std::map<std::string, std::shared_ptr<Tensor::State>> outputs;
};

// Feeds an input that is read at every run. Needs the GIL.
void Feed(Tensor::State& state);

}  // namespace softipu_api
}  // namespace paddle_infer
