// Paddle Inference on virtual IPUs: the interface that programs use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "paddle_analysis_config.h"
#include "paddle_infer_declare.h"
#include "paddle_tensor.h"

namespace paddle_infer {
inline namespace softipu_api {

// Runs a model. One thread at a time may use a predictor; Clone() makes one for another thread that
// shares the weights and the IPUs.
class PD_INFER_DECL Predictor {
 public:
  struct State;

  explicit Predictor(const Config& config);
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  std::vector<std::string> GetInputNames();
  std::vector<std::string> GetOutputNames();
  // As the model says: -1 where it leaves a dimension open.
  std::map<std::string, std::vector<std::int64_t>> GetInputTensorShape();
  std::map<std::string, std::vector<std::int64_t>> GetOutputTensorShape();
  std::map<std::string, DataType> GetInputTypes();
  std::map<std::string, DataType> GetOutputTypes();

  std::unique_ptr<Tensor> GetInputHandle(const std::string& name);
  std::unique_ptr<Tensor> GetOutputHandle(const std::string& name);

  // True, or an exception that says why not.
  bool Run();

  std::unique_ptr<Predictor> Clone(void* stream = nullptr);
  void ClearIntermediateTensor();
  std::uint64_t TryShrinkMemory();
  void* GetExecStream() const { return nullptr; }

 private:
  explicit Predictor(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

PD_INFER_DECL std::shared_ptr<Predictor> CreatePredictor(const Config& config);

PD_INFER_DECL int GetNumBytesOfDataType(DataType dtype);
PD_INFER_DECL std::string GetVersion();
PD_INFER_DECL std::tuple<int, int, int> GetTrtCompileVersion();
PD_INFER_DECL std::tuple<int, int, int> GetTrtRuntimeVersion();

namespace services {

// One predictor for each of a number of threads.
class PD_INFER_DECL PredictorPool {
 public:
  explicit PredictorPool(const Config& config, std::size_t size = 1);
  ~PredictorPool();
  PredictorPool(const PredictorPool&) = delete;
  PredictorPool& operator=(const PredictorPool&) = delete;

  Predictor* Retrieve(std::size_t index);

 private:
  std::vector<std::unique_ptr<Predictor>> predictors_;
};

}  // namespace services
}  // namespace softipu_api
}  // namespace paddle_infer
