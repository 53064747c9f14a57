// Options for devices that virtual IPUs are not. Paddle's wheel for CPUs takes them without effect,
// or says what it lacks.
#include "config_calls.h"
#include "paddle_analysis_config.h"

namespace paddle_infer {
inline namespace softipu_api {

void Config::EnableUseGpu(std::uint64_t memory_pool_init_size_mb, int device_id,
                          Precision precision) {
  WithPython([&] {
    (*state_->config)
        .attr("enable_use_gpu")(memory_pool_init_size_mb, device_id, Precise(precision));
  });
}
void Config::DisableGpu() { Call(state_, "disable_gpu"); }
bool Config::use_gpu() const { return Get<bool>(state_, "use_gpu"); }
int Config::gpu_device_id() const { return Get<int>(state_, "gpu_device_id"); }
void Config::EnableXpu(int l3_size, bool l3_locked) {
  Call(state_, "enable_xpu", l3_size, l3_locked);
}
bool Config::use_xpu() const { return Get<bool>(state_, "use_xpu"); }
void Config::EnableTensorRtEngine(std::int64_t workspace_size, int max_batch_size,
                                  int min_subgraph_size, Precision precision, bool use_static,
                                  bool use_calib_mode, bool use_cuda_graph) {
  WithPython([&] {
    (*state_->config)
        .attr("enable_tensorrt_engine")(workspace_size, max_batch_size, min_subgraph_size,
                                        Precise(precision), use_static, use_calib_mode,
                                        use_cuda_graph);
  });
}
bool Config::tensorrt_engine_enabled() const {
  return Get<bool>(state_, "tensorrt_engine_enabled");
}
int Config::memory_pool_init_size_mb() const {
  return Get<int>(state_, "memory_pool_init_size_mb");
}
float Config::fraction_of_gpu_memory_for_pool() const {
  return Get<float>(state_, "fraction_of_gpu_memory_for_pool");
}
void Config::SetXpuDeviceId(int device_id) { Call(state_, "set_xpu_device_id", device_id); }
int Config::xpu_device_id() const { return Get<int>(state_, "xpu_device_id"); }
void Config::SetTRTDynamicShapeInfo(std::map<std::string, std::vector<int>> min_input_shape,
                                    std::map<std::string, std::vector<int>> max_input_shape,
                                    std::map<std::string, std::vector<int>> optim_input_shape,
                                    bool disable_trt_plugin_fp16) {
  Call(state_, "set_trt_dynamic_shape_info", min_input_shape, max_input_shape, optim_input_shape,
       disable_trt_plugin_fp16);
}
bool Config::tensorrt_dynamic_shape_enabled() const {
  return Get<bool>(state_, "tensorrt_dynamic_shape_enabled");
}
void Config::EnableTunedTensorRtDynamicShape(const std::string& shape_range_info_path,
                                             bool allow_build_at_runtime) {
  Call(state_, "enable_tuned_tensorrt_dynamic_shape", shape_range_info_path,
       allow_build_at_runtime);
}
bool Config::tuned_tensorrt_dynamic_shape() const {
  return Get<bool>(state_, "tuned_tensorrt_dynamic_shape");
}
bool Config::trt_allow_build_at_runtime() const {
  return Get<bool>(state_, "trt_allow_build_at_runtime");
}
void Config::Exp_DisableTensorRtOPs(const std::vector<std::string>& ops) {
  Call(state_, "exp_disable_tensorrt_ops", ops);
}
void Config::EnableVarseqlen() { Call(state_, "enable_tensorrt_varseqlen"); }
bool Config::tensorrt_varseqlen_enabled() const {
  return Get<bool>(state_, "tensorrt_varseqlen_enabled");
}
void Config::EnableTensorRtDLA(int dla_core) { Call(state_, "enable_tensorrt_dla", dla_core); }
bool Config::tensorrt_dla_enabled() const { return Get<bool>(state_, "tensorrt_dla_enabled"); }
void Config::EnableTensorRtInspector() { Call(state_, "enable_tensorrt_inspector"); }
bool Config::tensorrt_inspector_enabled() const {
  return Get<bool>(state_, "tensorrt_inspector_enabled");
}
void Config::EnableONNXRuntime() { Call(state_, "enable_onnxruntime"); }
void Config::DisableONNXRuntime() { Call(state_, "disable_onnxruntime"); }
void Config::EnableORTOptimization() { Call(state_, "enable_ort_optimization"); }
bool Config::use_onnxruntime() const { return Get<bool>(state_, "onnxruntime_enabled"); }

}  // namespace softipu_api
}  // namespace paddle_infer
