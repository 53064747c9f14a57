// Checks of libpaddle_inference.so: one function for each thing that a C++ program does with it.
// Usage: CHECK MODEL WEIGHTS; prints what the test in Python compares.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "paddle_inference_api.h"

using paddle_infer::Config;
using paddle_infer::CreatePredictor;
using paddle_infer::PlaceType;
using paddle_infer::Predictor;

namespace {

std::string model, weights;

constexpr int kBatch = 4;
const std::vector<int> kShape = {kBatch, 3, 8, 8};
constexpr int kCount = kBatch * 3 * 8 * 8;

std::vector<float> Image(float scale = 1.0f) {
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = scale * static_cast<float>(i % 17) / 17.0f;
  return values;
}

Config IpuConfig() {
  Config config(model, weights);
  config.DisableGlogInfo();
  config.EnableIpu(1, kBatch);
  return config;
}

std::vector<float> Output(Predictor& predictor) {
  auto output = predictor.GetOutputHandle(predictor.GetOutputNames()[0]);
  std::size_t count = 1;
  for (int size : output->shape()) count *= static_cast<std::size_t>(size);
  std::vector<float> values(count);
  output->CopyToCpu(values.data());
  return values;
}

std::vector<float> Infer(Predictor& predictor, const std::vector<float>& image) {
  auto input = predictor.GetInputHandle("image");
  input->Reshape(kShape);
  input->CopyFromCpu(image.data());
  predictor.Run();
  return Output(predictor);
}

void Print(const std::vector<float>& values) {
  for (float value : values) std::printf("%.9g ", value);
  std::printf("\n");
}

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "failed: " << what << std::endl;
  std::exit(3);
}

void Require(bool fact, const std::string& what) {
  if (!fact) Fail(what);
}

// The text of the exception that `work` throws.
std::string Complaint(const std::function<void()>& work) {
  try {
    work();
  } catch (const paddle_infer::Error& error) {
    return error.what();
  }
  Fail("no exception");
}

void Values() { Print(Infer(*CreatePredictor(IpuConfig()), Image())); }

void Options() {
  Config config = IpuConfig();
  config.EnableIpu(2, 3, true, 4);
  config.SetIpuConfig(true, 2, 0.5f);
  config.SetIpuCustomInfo({{"custom_relu", "Relu", "custom.ops", "1"}}, {{"SomePattern", false}});
  Require(config.use_ipu() && config.ipu_device_num() == 2, "devices");
  Require(config.ipu_micro_batch_size() == 3 && config.ipu_batches_per_step() == 4, "batches");
  Require(config.ipu_enable_pipelining() && config.ipu_enable_fp16(), "switches");
  Require(config.ipu_available_memory_proportion() == 0.5f, "proportion");
  Require(!config.ipu_enable_half_partial() && !config.ipu_enable_model_runtime_executor(), "rest");
  Require(config.ipu_custom_ops_info().at(0).at(1) == "Relu", "custom operations");
  Require(!config.ipu_custom_patterns().at("SomePattern"), "patterns");
  Config copy(config);
  Config assigned;
  assigned = config;
  config.EnableIpu(1);
  Require(copy.ipu_device_num() == 2 && assigned.ipu_replica_num() == 2, "copies");
  Require(config.ipu_device_num() == 1, "original");
  Config plain(model, weights);
  Require(!plain.use_ipu() && plain.onednn_enabled(), "defaults");
  plain.DisableMKLDNN();
  plain.SetCpuMathLibraryNumThreads(2);
  plain.SwitchIrOptim(false);
  Require(!plain.mkldnn_enabled() && plain.cpu_math_library_num_threads() == 2, "cpu");
  Require(!plain.ir_optim() && plain.prog_file() == model && plain.params_file() == weights, "ir");
  plain.CollectShapeRangeInfo("shapes.txt");
  Require(plain.shape_range_info_path() == "shapes.txt", "where shapes are collected");
  plain.EnableTunedTensorRtDynamicShape("shapes.txt");
  plain.SetTRTDynamicShapeInfo({{"image", {1}}}, {{"image", {1}}}, {{"image", {1}}});
  plain.Exp_DisableTensorRtOPs({"relu"});
  plain.Exp_DisableMixedPrecisionOps({"relu"});
  Require(!plain.tensorrt_engine_enabled() && !plain.use_onnxruntime() && !plain.use_xpu(), "none");
  Require(plain.memory_pool_init_size_mb() > 0 && plain.fraction_of_gpu_memory_for_pool() == 0,
          "a GPU's memory");
  Require(!plain.mkldnn_int8_enabled() && !plain.use_feed_fetch_ops_enabled(), "switches");
  Require(!plain.pass_builder()->AllPasses().empty(), "passes");
  Require(plain.Summary().find("model_file") != std::string::npos, "summary");
  Require(paddle_infer::GetVersion().find("version") != std::string::npos, "version");
  Require(paddle_infer::GetNumBytesOfDataType(paddle_infer::FLOAT16) == 2, "bytes");
  std::puts("ok");
}

void Memory() {
  const auto predictor = CreatePredictor(IpuConfig());
  const auto expected = Infer(*predictor, Image(2));
  auto input = predictor->GetInputHandle("image");
  input->Reshape(kShape);
  float* written = input->mutable_data<float>(PlaceType::kCPU);
  const auto first = Image(1), second = Image(2);
  std::copy(first.begin(), first.end(), written);
  predictor->Run();
  Require(Output(*predictor) != expected, "the first image");
  std::copy(second.begin(), second.end(), written);
  predictor->Run();
  Require(Output(*predictor) == expected, "memory that was written to");
  PlaceType place = PlaceType::kUNK;
  int size = 0;
  auto output = predictor->GetOutputHandle(predictor->GetOutputNames()[0]);
  const float* read = output->data<float>(&place, &size);
  Require(place == PlaceType::kCPU && size == static_cast<int>(expected.size()), "place and size");
  Require(std::equal(expected.begin(), expected.end(), read), "memory that is read");

  std::vector<float> shared = Image(1);
  input->ShareExternalData(shared.data(), kShape, PlaceType::kCPU);
  std::copy(second.begin(), second.end(), shared.begin());
  predictor->Run();
  Require(Output(*predictor) == expected, "shared memory");
  bool called = false;
  std::vector<float> copied(expected.size());
  output->CopyToCpuAsync(
      copied.data(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &called);
  Require(called && copied == expected, "callback");
  std::vector<float> returned(kCount);
  input->CopyToCpu(returned.data());
  Require(returned == second, "an input that is read back");
  std::puts("ok");
}

void Description() {
  const auto predictor = CreatePredictor(IpuConfig());
  const auto shapes = predictor->GetInputTensorShape();
  Require(shapes.at("image") == std::vector<std::int64_t>({-1, 3, 8, 8}), "input shape");
  Require(predictor->GetInputTypes().at("image") == paddle_infer::FLOAT32, "input type");
  const std::string name = predictor->GetOutputNames()[0];
  const auto outputs = predictor->GetOutputTensorShape();
  Require(outputs.at(name) == std::vector<std::int64_t>({-1, 10}), "output shape");
  Require(predictor->GetOutputTypes().at(name) == paddle_infer::FLOAT32, "output type");
  Infer(*predictor, Image());
  auto output = predictor->GetOutputHandle(name);
  Require(output->type() == paddle_infer::FLOAT32 && output->name() == name, "handle");
  Require(output->shape() == std::vector<int>({kBatch, 10}), "shape");
  std::puts("ok");
}

void Half() {
  Config config = IpuConfig();
  config.SetIpuConfig(true);
  const auto predictor = CreatePredictor(config);
  auto input = predictor->GetInputHandle("image");
  input->Reshape(kShape);
  const std::vector<paddle_infer::float16> ones(kCount, paddle_infer::float16{0x3c00});
  input->CopyFromCpu(ones.data());
  predictor->Run();
  auto output = predictor->GetOutputHandle(predictor->GetOutputNames()[0]);
  Require(output->type() == paddle_infer::FLOAT16, "type");
  std::vector<paddle_infer::float16> values(kBatch * 10);
  output->CopyToCpu(values.data());
  for (const auto& value : values) std::printf("%u ", static_cast<unsigned>(value.bits));
  std::printf("\n");
}

void Threads() {
  const auto main = CreatePredictor(IpuConfig());
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(Infer(*main, Image(1.0f + i)));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      try {
        const auto clone = main->Clone();
        for (int run = 0; run < 20; ++run) {
          if (Infer(*clone, Image(1.0f + i)) != expected[i]) ++wrong;
        }
      } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  Require(wrong == 0, std::to_string(wrong) + " wrong results");

  paddle_infer::services::PredictorPool pool(IpuConfig(), 2);
  std::vector<std::thread> pooled;
  for (int i = 0; i < 2; ++i) {
    pooled.emplace_back([&, i] {
      if (Infer(*pool.Retrieve(i), Image(1.0f + i)) != expected[i]) ++wrong;
    });
  }
  for (auto& thread : pooled) thread.join();
  Require(wrong == 0, "pool");
  Complaint([&] { pool.Retrieve(2); });
  std::puts("ok");
}

void Buffers() {
  const auto content = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string program = content(model), values = content(weights);
  Config config;
  config.SetModelBuffer(program.data(), program.size(), values.data(), values.size());
  config.DisableGlogInfo();
  config.EnableIpu(1, kBatch);
  Require(config.model_from_memory(), "from memory");
  Print(Infer(*CreatePredictor(config), Image()));
}

void Errors() {
  const auto note = [](const std::string& what, const std::function<void()>& work) {
    const std::string text = Complaint(work);
    std::cout << what << ": " << text.substr(0, text.find('\n')) << "\n";
  };
  note("missing", [] { Config(model + ".none", weights); });
  note("count", [] { Config(model, weights).EnableIpu(0); });
  note("many", [] {
    Config config(model, weights);
    config.EnableIpu(64);
    CreatePredictor(config);
  });
  note("device", [] { Config(model, weights).EnableCustomDevice("nobodys", 0); });
  note("file", [] { Config(model, weights).LoadIpuConfig("/nowhere"); });
  const auto predictor = CreatePredictor(IpuConfig());
  auto input = predictor->GetInputHandle("image");
  note("unset", [&] { predictor->Run(); });
  note("early", [&] { input->CopyFromCpu(Image().data()); });
  note("shape", [&] { input->Reshape({1, 3, 8, 8}); });
  input->Reshape(kShape);
  note("dtype", [&] { input->CopyFromCpu(std::vector<double>(kCount).data()); });
  note("name", [&] { predictor->GetInputHandle("nobody"); });
  Infer(*predictor, Image());
  auto output = predictor->GetOutputHandle(predictor->GetOutputNames()[0]);
  note("output", [&] { output->Reshape({1}); });
  note("outtype", [&] { output->CopyToCpu(std::vector<std::int64_t>(kBatch * 10).data()); });
  // As wide as the input's elements or wider, so that a library without the check does no harm.
  note("intype", [&] { input->CopyToCpu(std::vector<std::int64_t>(kCount).data()); });
  note("indata", [&] {
    input->mutable_data<float>(PlaceType::kCPU);
    input->data<std::int32_t>(nullptr, nullptr);
  });
}

// A predictor that outlives main, as static objects do.
std::shared_ptr<Predictor> kept;

void Static() {
  kept = CreatePredictor(IpuConfig());
  Infer(*kept, Image());
  std::puts("ok");
}

// Microseconds of each call; the model itself takes part of "run".
void Overhead() {
  const auto predictor = CreatePredictor(IpuConfig());
  const auto image = Image();
  Infer(*predictor, image);
  auto input = predictor->GetInputHandle("image");
  auto output = predictor->GetOutputHandle(predictor->GetOutputNames()[0]);
  std::vector<float> values(kBatch * 10);
  const auto timed = [](const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2000; ++i) work();
    const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - start;
    return all.count() / 2000;
  };
  std::printf("in %.2f\n", timed([&] { input->CopyFromCpu(image.data()); }));
  std::printf("run %.2f\n", timed([&] { predictor->Run(); }));
  std::printf("all %.2f\n", timed([&] {
                input->CopyFromCpu(image.data());
                predictor->Run();
                output->CopyToCpu(values.data());
              }));
}

void Hold() {
  const auto predictor = CreatePredictor(IpuConfig());
  Infer(*predictor, Image());
  std::puts("ready");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::map<std::string, void (*)()> checks = {
      {"values", Values},     {"options", Options}, {"memory", Memory},
      {"half", Half},         {"threads", Threads}, {"buffers", Buffers},
      {"errors", Errors},     {"static", Static},   {"description", Description},
      {"overhead", Overhead}, {"hold", Hold},
  };
  model = argv[2];
  weights = argv[3];
  try {
    checks.at(argv[1])();
  } catch (const std::exception& error) {
    Fail(error.what());
  }
  return 0;
}
