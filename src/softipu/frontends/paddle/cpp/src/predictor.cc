#include <pybind11/stl.h>

#include <utility>

#include "paddle_inference_api.h"
#include "states.h"

namespace paddle_infer {
inline namespace softipu_api {

using softipu::Held;
using softipu::WithPython;
namespace py = pybind11;

namespace {

std::unique_ptr<Predictor::State> NewState(py::object predictor, const Held& description) {
  std::unique_ptr<Predictor::State> state(new Predictor::State);
  state->predictor = Held(std::move(predictor));
  state->description = description;
  return state;
}

std::vector<std::string> Names(const Predictor::State& state, const char* method) {
  return WithPython(
      [&] { return (*state.predictor).attr(method)().cast<std::vector<std::string>>(); });
}

using Handles = std::map<std::string, std::shared_ptr<Tensor::State>>;

std::shared_ptr<Tensor::State> Handle(const Predictor::State& state, Handles& known,
                                      const std::string& name, const char* method) {
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  auto fresh = std::make_shared<Tensor::State>();
  fresh->name = name;
  fresh->runs = state.runs;
  fresh->predictor = state.predictor;
  WithPython([&] { fresh->handle = Held((*state.predictor).attr(method)(name)); });
  return known[name] = fresh;
}

// What the model says about its "inputs" or "outputs": name -> (shape, element type).
template <typename Value>
std::map<std::string, Value> Described(const Predictor::State& state, const char* side,
                                       const char* what) {
  return WithPython([&] {
    return (*state.description).attr(what)(side).cast<std::map<std::string, Value>>();
  });
}

std::map<std::string, DataType> Types(const Predictor::State& state, const char* side) {
  std::map<std::string, DataType> types;
  for (const auto& entry : Described<int>(state, side, "types")) {
    types[entry.first] = static_cast<DataType>(entry.second);
  }
  return types;
}

}  // namespace

Predictor::Predictor(std::unique_ptr<State> state) : state_(std::move(state)) {}
Predictor::~Predictor() = default;

Predictor::Predictor(const Config& config)
    : state_(WithPython([&] {
        py::module_ bridge = softipu::Bridge();
        const py::object& python_config = *config.state_->config;
        py::object predictor = bridge.attr("create_predictor")(python_config);
        return NewState(std::move(predictor), Held(bridge.attr("Description")(python_config)));
      })) {}

std::vector<std::string> Predictor::GetInputNames() { return Names(*state_, "get_input_names"); }
std::vector<std::string> Predictor::GetOutputNames() { return Names(*state_, "get_output_names"); }

std::map<std::string, std::vector<std::int64_t>> Predictor::GetInputTensorShape() {
  return Described<std::vector<std::int64_t>>(*state_, "inputs", "shapes");
}
std::map<std::string, std::vector<std::int64_t>> Predictor::GetOutputTensorShape() {
  return Described<std::vector<std::int64_t>>(*state_, "outputs", "shapes");
}
std::map<std::string, DataType> Predictor::GetInputTypes() { return Types(*state_, "inputs"); }
std::map<std::string, DataType> Predictor::GetOutputTypes() { return Types(*state_, "outputs"); }

std::unique_ptr<Tensor> Predictor::GetInputHandle(const std::string& name) {
  auto tensor = Handle(*state_, state_->inputs, name, "get_input_handle");
  tensor->is_input = true;
  return std::unique_ptr<Tensor>(new Tensor(std::move(tensor)));
}

std::unique_ptr<Tensor> Predictor::GetOutputHandle(const std::string& name) {
  auto tensor = Handle(*state_, state_->outputs, name, "get_output_handle");
  return std::unique_ptr<Tensor>(new Tensor(std::move(tensor)));
}

bool Predictor::Run() {
  WithPython([&] {
    for (auto& input : state_->inputs) Feed(*input.second);
    (*state_->predictor).attr("run")();
  });
  ++*state_->runs;
  return true;
}

std::unique_ptr<Predictor> Predictor::Clone(void*) {
  return std::unique_ptr<Predictor>(new Predictor(WithPython(
      [&] { return NewState((*state_->predictor).attr("clone")(), state_->description); })));
}

void Predictor::ClearIntermediateTensor() {
  WithPython([&] { (*state_->predictor).attr("clear_intermediate_tensor")(); });
}

std::uint64_t Predictor::TryShrinkMemory() {
  return WithPython(
      [&] { return (*state_->predictor).attr("try_shrink_memory")().cast<std::uint64_t>(); });
}

std::shared_ptr<Predictor> CreatePredictor(const Config& config) {
  return std::make_shared<Predictor>(config);
}

int GetNumBytesOfDataType(DataType dtype) {
  switch (dtype) {
    case UINT8:
    case INT8:
    case BOOL:
      return 1;
    case FLOAT16:
    case BFLOAT16:
      return 2;
    case FLOAT32:
    case INT32:
      return 4;
    case INT64:
    case FLOAT64:
      return 8;
  }
  throw Error("SIPU-4120: " + std::to_string(static_cast<int>(dtype)) +
              " is no DataType.\n  Cause: The enumeration ends at BFLOAT16.\n  Way out: Correct "
              "the value.");
}

std::string GetVersion() {
  return WithPython([&] { return softipu::Bridge().attr("version")().cast<std::string>(); });
}

// Paddle for CPUs has no TensorRT, and says so with zeros.
std::tuple<int, int, int> GetTrtCompileVersion() { return std::make_tuple(0, 0, 0); }
std::tuple<int, int, int> GetTrtRuntimeVersion() { return std::make_tuple(0, 0, 0); }

namespace services {

PredictorPool::PredictorPool(const Config& config, std::size_t size) {
  if (size == 0) {
    throw Error("SIPU-4130: A PredictorPool of no predictors.\n  Cause: Its size is 0.\n  Way "
                "out: Ask for at least 1.");
  }
  predictors_.emplace_back(new Predictor(config));
  while (predictors_.size() < size) predictors_.push_back(predictors_.front()->Clone());
}

PredictorPool::~PredictorPool() = default;

Predictor* PredictorPool::Retrieve(std::size_t index) {
  if (index >= predictors_.size()) {
    throw Error("SIPU-4130: PredictorPool::Retrieve(" + std::to_string(index) + ") of a pool of " +
                std::to_string(predictors_.size()) +
                ".\n  Cause: Indices count from 0.\n  Way out: Ask for a smaller index.");
  }
  return predictors_[index].get();
}

}  // namespace services
}  // namespace softipu_api
}  // namespace paddle_infer
