#include <pybind11/stl.h>

#include "config_calls.h"
#include "paddle_analysis_config.h"

namespace paddle_infer {
inline namespace softipu_api {

using softipu::WithPython;
namespace py = pybind11;

namespace {

// Getters that return references: the text lives as long as the Config.
const std::string& Text(const std::shared_ptr<Config::State>& state, const char* method) {
  return state->texts[method] = Get<std::string>(state, method);
}

template <typename... Arguments>
std::shared_ptr<Config::State> Make(const Arguments&... arguments) {
  return WithPython([&] {
    auto state = std::make_shared<Config::State>();
    state->config = softipu::Held(softipu::Bridge().attr("Config")(arguments...));
    return state;
  });
}

}  // namespace

Config::Config() : state_(Make()) {}
Config::Config(const std::string& model_dir) : state_(Make(model_dir)) {}
Config::Config(const std::string& prog_file, const std::string& params_file)
    : state_(Make(prog_file, params_file)) {}
Config::Config(const Config& other) { *this = other; }
Config& Config::operator=(const Config& other) {
  if (this != &other) {
    auto copy = WithPython([&] {
      auto state = std::make_shared<State>();
      state->config = softipu::Held(softipu::Bridge().attr("Config")(*other.state_->config));
      return state;
    });
    copy->device_type = other.state_->device_type;
    copy->device_id = other.state_->device_id;
    state_ = copy;
  }
  return *this;
}
Config::~Config() = default;

void Config::SetModel(const std::string& model_dir) { Call(state_, "set_model", model_dir); }
void Config::SetModel(const std::string& prog_file, const std::string& params_file) {
  Call(state_, "set_model", prog_file, params_file);
}
void Config::SetProgFile(const std::string& path) { Call(state_, "set_prog_file", path); }
void Config::SetParamsFile(const std::string& path) { Call(state_, "set_params_file", path); }
void Config::SetModelBuffer(const char* program, std::size_t program_size, const char* weights,
                            std::size_t weights_size) {
  WithPython([&] {
    (*state_->config)
        .attr("set_model_buffer")(py::bytes(program, program_size), program_size,
                                  py::bytes(weights, weights_size), weights_size);
  });
}
bool Config::model_from_memory() const { return Get<bool>(state_, "model_from_memory"); }
const std::string& Config::model_dir() const { return Text(state_, "model_dir"); }
const std::string& Config::prog_file() const { return Text(state_, "prog_file"); }
const std::string& Config::params_file() const { return Text(state_, "params_file"); }

void Config::EnableIpu(int ipu_device_num, int ipu_micro_batch_size, bool ipu_enable_pipelining,
                       int ipu_batches_per_step) {
  Call(state_, "enable_ipu", ipu_device_num, ipu_micro_batch_size, ipu_enable_pipelining,
       ipu_batches_per_step);
}
void Config::SetIpuConfig(bool ipu_enable_fp16, int ipu_replica_num,
                          float ipu_available_memory_proportion, bool ipu_enable_half_partial,
                          bool ipu_enable_model_runtime_executor) {
  Call(state_, "set_ipu_config", ipu_enable_fp16, ipu_replica_num, ipu_available_memory_proportion,
       ipu_enable_half_partial, ipu_enable_model_runtime_executor);
}
void Config::SetIpuCustomInfo(const std::vector<std::vector<std::string>>& ipu_custom_ops_info,
                              const std::map<std::string, bool>& ipu_custom_patterns) {
  Call(state_, "set_ipu_custom_info", ipu_custom_ops_info, ipu_custom_patterns);
}
void Config::LoadIpuConfig(const std::string& path) { Call(state_, "load_ipu_config", path); }
bool Config::use_ipu() const { return Get<bool>(state_, "use_ipu"); }
int Config::ipu_device_num() const { return Get<int>(state_, "ipu_device_num"); }
int Config::ipu_micro_batch_size() const { return Get<int>(state_, "ipu_micro_batch_size"); }
bool Config::ipu_enable_pipelining() const { return Get<bool>(state_, "ipu_enable_pipelining"); }
int Config::ipu_batches_per_step() const { return Get<int>(state_, "ipu_batches_per_step"); }
bool Config::ipu_enable_fp16() const { return Get<bool>(state_, "ipu_enable_fp16"); }
int Config::ipu_replica_num() const { return Get<int>(state_, "ipu_replica_num"); }
float Config::ipu_available_memory_proportion() const {
  return Get<float>(state_, "ipu_available_memory_proportion");
}
bool Config::ipu_enable_half_partial() const {
  return Get<bool>(state_, "ipu_enable_half_partial");
}
bool Config::ipu_enable_model_runtime_executor() const {
  return Get<bool>(state_, "ipu_enable_model_runtime_executor");
}
std::vector<std::vector<std::string>> Config::ipu_custom_ops_info() const {
  return Get<std::vector<std::vector<std::string>>>(state_, "ipu_custom_ops_info");
}
std::map<std::string, bool> Config::ipu_custom_patterns() const {
  return Get<std::map<std::string, bool>>(state_, "ipu_custom_patterns");
}

void Config::EnableCustomDevice(const std::string& device_type, int device_id,
                                Precision precision) {
  WithPython([&] {
    softipu::Bridge().attr("enable_custom_device")(*state_->config, device_type, device_id,
                                                   Precise(precision));
  });
  state_->device_type = device_type;
  state_->device_id = device_id;
}
bool Config::use_custom_device() const { return !state_->device_type.empty(); }
int Config::custom_device_id() const { return state_->device_id; }
const std::string& Config::custom_device_type() const { return state_->device_type; }

void Config::EnableMKLDNN() { EnableONEDNN(); }
void Config::DisableMKLDNN() { DisableONEDNN(); }
bool Config::mkldnn_enabled() const { return onednn_enabled(); }
void Config::EnableONEDNN() { Call(state_, "enable_onednn"); }
void Config::DisableONEDNN() { Call(state_, "disable_onednn"); }
bool Config::onednn_enabled() const { return Get<bool>(state_, "onednn_enabled"); }
void Config::SetMkldnnCacheCapacity(int capacity) {
  Call(state_, "set_onednn_cache_capacity", capacity);
}
void Config::EnableMkldnnBfloat16() { Call(state_, "enable_onednn_bfloat16"); }
void Config::EnableMkldnnInt8(const std::unordered_set<std::string>& op_list) {
  Call(state_, "enable_onednn_int8", op_list);
}
void Config::SetMKLDNNOp(const std::unordered_set<std::string>& op_list) {
  Call(state_, "set_onednn_op", op_list);
}
bool Config::mkldnn_int8_enabled() const { return Get<bool>(state_, "onednn_int8_enabled"); }
void Config::SetBfloat16Op(const std::unordered_set<std::string>& op_list) {
  Call(state_, "set_bfloat16_op", op_list);
}
void Config::SetCpuMathLibraryNumThreads(int threads) {
  Call(state_, "set_cpu_math_library_num_threads", threads);
}
int Config::cpu_math_library_num_threads() const {
  return Get<int>(state_, "cpu_math_library_num_threads");
}

void Config::SwitchIrOptim(bool on) { Call(state_, "switch_ir_optim", on); }
bool Config::ir_optim() const { return Get<bool>(state_, "ir_optim"); }
void Config::SwitchIrDebug(bool on) { Call(state_, "switch_ir_debug", on); }
void Config::EnableMemoryOptim(bool on) { Call(state_, "enable_memory_optim", on); }
void Config::EnableNewExecutor(bool on) { Call(state_, "enable_new_executor", on); }
void Config::EnableNewIR(bool on) { Call(state_, "enable_new_ir", on); }
bool Config::new_ir_enabled() const { return Get<bool>(state_, "new_ir_enabled"); }
void Config::SwitchUseFeedFetchOps(bool on) { Call(state_, "switch_use_feed_fetch_ops", on); }
bool Config::use_feed_fetch_ops_enabled() const {
  return Get<bool>(state_, "use_feed_fetch_ops_enabled");
}
void Config::SwitchSpecifyInputNames(bool on) { Call(state_, "switch_specify_input_names", on); }
bool Config::specify_input_name() const { return Get<bool>(state_, "specify_input_name"); }
void Config::EnableLowPrecisionIO(bool on) { Call(state_, "enable_low_precision_io", on); }
void Config::SetOptimizationLevel(int level) { Call(state_, "set_optimization_level", level); }
void Config::SetOptimCacheDir(const std::string& path) {
  Call(state_, "set_optim_cache_dir", path);
}
void Config::EnableSaveOptimModel(bool on) { Call(state_, "enable_save_optim_model", on); }
void Config::UseOptimizedModel(bool on) { Call(state_, "use_optimized_model", on); }
void Config::DeletePass(const std::string& pass) { Call(state_, "delete_pass", pass); }

void Config::CollectShapeRangeInfo(const std::string& path) {
  Call(state_, "collect_shape_range_info", path);
}
const std::string& Config::shape_range_info_path() {
  return Text(state_, "shape_range_info_path");
}
bool Config::shape_range_info_collected() {
  return Get<bool>(state_, "shape_range_info_collected");
}
void Config::Exp_DisableMixedPrecisionOps(const std::unordered_set<std::string>& op_list) {
  Call(state_, "exp_disable_mixed_precision_ops", op_list);
}

void Config::EnableProfile() { Call(state_, "enable_profile"); }
void Config::DisableGlogInfo() { Call(state_, "disable_glog_info"); }
bool Config::glog_info_disabled() const { return Get<bool>(state_, "glog_info_disabled"); }
std::string Config::Summary() { return Get<std::string>(state_, "summary"); }

struct PassStrategy::State {
  softipu::Held config;  // the builder lives in it
  softipu::Held builder;
};

PassStrategy* Config::pass_builder() const {
  auto builder = WithPython([&] {
    auto state = std::make_shared<PassStrategy::State>();
    state->config = state_->config;
    state->builder = softipu::Held((*state_->config).attr("pass_builder")());
    return state;
  });
  state_->passes.reset(new PassStrategy(builder));
  return state_->passes.get();
}

PassStrategy::PassStrategy(std::shared_ptr<State> state) : state_(std::move(state)) {}
void PassStrategy::AppendPass(const std::string& pass) {
  WithPython([&] { (*state_->builder).attr("append_pass")(pass); });
}
void PassStrategy::InsertPass(std::size_t index, const std::string& pass) {
  WithPython([&] { (*state_->builder).attr("insert_pass")(index, pass); });
}
void PassStrategy::DeletePass(const std::string& pass) {
  WithPython([&] { (*state_->builder).attr("delete_pass")(pass); });
}
void PassStrategy::TurnOnDebug() {
  WithPython([&] { (*state_->builder).attr("turn_on_debug")(); });
}
std::vector<std::string> PassStrategy::AllPasses() const {
  return WithPython(
      [&] { return (*state_->builder).attr("all_passes")().cast<std::vector<std::string>>(); });
}

}  // namespace softipu_api
}  // namespace paddle_infer
