// Which model a predictor runs, and how. Each method does what the method of
// paddle.inference.Config does in Python; both are the same code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "paddle_infer_declare.h"
#include "paddle_tensor.h"

namespace paddle_infer {
inline namespace softipu_api {

enum class PrecisionType { kFloat32 = 0, kInt8, kHalf, kBf16 };

// The passes that prepare a model; belongs to its Config.
class PD_INFER_DECL PassStrategy {
 public:
  struct State;
  explicit PassStrategy(std::shared_ptr<State> state);

  void AppendPass(const std::string& pass);
  void InsertPass(std::size_t index, const std::string& pass);
  void DeletePass(const std::string& pass);
  void TurnOnDebug();
  std::vector<std::string> AllPasses() const;

 private:
  std::shared_ptr<State> state_;
};

class PD_INFER_DECL Config {
 public:
  using Precision = PrecisionType;
  struct State;

  Config();
  explicit Config(const std::string& model_dir);
  Config(const std::string& prog_file_or_model_dir, const std::string& params_file_or_prefix);
  Config(const Config& other);
  Config& operator=(const Config& other);
  ~Config();

  // The model.
  void SetModel(const std::string& model_dir);
  void SetModel(const std::string& prog_file, const std::string& params_file);
  void SetProgFile(const std::string& path);
  void SetParamsFile(const std::string& path);
  void SetModelBuffer(const char* program, std::size_t program_size, const char* weights,
                      std::size_t weights_size);
  bool model_from_memory() const;
  const std::string& model_dir() const;
  const std::string& prog_file() const;
  const std::string& params_file() const;

  // IPUs.
  void EnableIpu(int ipu_device_num = 1, int ipu_micro_batch_size = 1,
                 bool ipu_enable_pipelining = false, int ipu_batches_per_step = 1);
  void SetIpuConfig(bool ipu_enable_fp16 = false, int ipu_replica_num = 1,
                    float ipu_available_memory_proportion = 1.0,
                    bool ipu_enable_half_partial = false,
                    bool ipu_enable_model_runtime_executor = false);
  void SetIpuCustomInfo(const std::vector<std::vector<std::string>>& ipu_custom_ops_info = {},
                        const std::map<std::string, bool>& ipu_custom_patterns = {});
  void LoadIpuConfig(const std::string& config_path);
  bool use_ipu() const;
  int ipu_device_num() const;
  int ipu_micro_batch_size() const;
  bool ipu_enable_pipelining() const;
  int ipu_batches_per_step() const;
  bool ipu_enable_fp16() const;
  int ipu_replica_num() const;
  float ipu_available_memory_proportion() const;
  bool ipu_enable_half_partial() const;
  bool ipu_enable_model_runtime_executor() const;
  std::vector<std::vector<std::string>> ipu_custom_ops_info() const;
  std::map<std::string, bool> ipu_custom_patterns() const;

  // Devices of plugins: EnableCustomDevice("ipu", 0).
  void EnableCustomDevice(const std::string& device_type, int device_id = 0,
                          Precision precision = Precision::kFloat32);
  bool use_custom_device() const;
  int custom_device_id() const;
  const std::string& custom_device_type() const;

  // Other devices: accepted, so that programs with a choice compile; Paddle's wheel decides.
  void EnableUseGpu(std::uint64_t memory_pool_init_size_mb, int device_id = 0,
                    Precision precision = Precision::kFloat32);
  void DisableGpu();
  bool use_gpu() const;
  int gpu_device_id() const;
  int memory_pool_init_size_mb() const;
  float fraction_of_gpu_memory_for_pool() const;
  void EnableXpu(int l3_size = 0xfffc00, bool l3_locked = false);
  bool use_xpu() const;
  void SetXpuDeviceId(int device_id = 0);
  int xpu_device_id() const;
  void EnableTensorRtEngine(std::int64_t workspace_size = 1 << 30, int max_batch_size = 1,
                            int min_subgraph_size = 3, Precision precision = Precision::kFloat32,
                            bool use_static = false, bool use_calib_mode = true,
                            bool use_cuda_graph = false);
  bool tensorrt_engine_enabled() const;
  void SetTRTDynamicShapeInfo(std::map<std::string, std::vector<int>> min_input_shape,
                              std::map<std::string, std::vector<int>> max_input_shape,
                              std::map<std::string, std::vector<int>> optim_input_shape,
                              bool disable_trt_plugin_fp16 = false);
  bool tensorrt_dynamic_shape_enabled() const;
  void EnableTunedTensorRtDynamicShape(const std::string& shape_range_info_path,
                                       bool allow_build_at_runtime = true);
  bool tuned_tensorrt_dynamic_shape() const;
  bool trt_allow_build_at_runtime() const;
  void Exp_DisableTensorRtOPs(const std::vector<std::string>& ops);
  void EnableVarseqlen();
  bool tensorrt_varseqlen_enabled() const;
  void EnableTensorRtDLA(int dla_core = 0);
  bool tensorrt_dla_enabled() const;
  void EnableTensorRtInspector();
  bool tensorrt_inspector_enabled() const;
  void EnableONNXRuntime();
  void DisableONNXRuntime();
  void EnableORTOptimization();
  bool use_onnxruntime() const;

  // The CPU engine, which computes for virtual IPUs too.
  void EnableMKLDNN();
  void DisableMKLDNN();
  bool mkldnn_enabled() const;
  void EnableONEDNN();
  void DisableONEDNN();
  bool onednn_enabled() const;
  void SetMkldnnCacheCapacity(int capacity);
  void EnableMkldnnBfloat16();
  void EnableMkldnnInt8(const std::unordered_set<std::string>& op_list = {});
  bool mkldnn_int8_enabled() const;
  void SetBfloat16Op(const std::unordered_set<std::string>& op_list);
  void SetMKLDNNOp(const std::unordered_set<std::string>& op_list);
  void SetCpuMathLibraryNumThreads(int threads);
  int cpu_math_library_num_threads() const;

  // How models are prepared.
  void SwitchIrOptim(bool on = true);
  bool ir_optim() const;
  void SwitchIrDebug(bool on = true);
  void EnableMemoryOptim(bool on = true);
  void EnableNewExecutor(bool on = true);
  void EnableNewIR(bool on = true);
  bool new_ir_enabled() const;
  void SwitchUseFeedFetchOps(bool on = true);
  bool use_feed_fetch_ops_enabled() const;
  void SwitchSpecifyInputNames(bool on = true);
  bool specify_input_name() const;
  void EnableLowPrecisionIO(bool on = true);
  void SetOptimizationLevel(int level);
  void SetOptimCacheDir(const std::string& path);
  void EnableSaveOptimModel(bool on);
  void UseOptimizedModel(bool on = true);
  void DeletePass(const std::string& pass);
  PassStrategy* pass_builder() const;
  void CollectShapeRangeInfo(const std::string& shape_range_info_path);
  const std::string& shape_range_info_path();
  bool shape_range_info_collected();
  void Exp_DisableMixedPrecisionOps(const std::unordered_set<std::string>& op_list);

  // Looking.
  void EnableProfile();
  void DisableGlogInfo();
  bool glog_info_disabled() const;
  std::string Summary();

 private:
  friend class Predictor;
  std::shared_ptr<State> state_;
};

}  // namespace softipu_api
}  // namespace paddle_infer

namespace paddle {
using AnalysisConfig = paddle_infer::Config;
}
