// Classifies with a saved ResNet-50 on a virtual IPU, from C++.
//
//   ./build/resnet50_test --model_file resnet50.pdmodel --params_file resnet50.pdiparams
//
// Prints the average time of a run and every hundredth output.

#include <gflags/gflags.h>
#include <glog/logging.h>

#include <chrono>
#include <functional>
#include <iomanip>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "paddle_inference_api.h"

DEFINE_string(model_file, "", "The program: .pdmodel or .json.");
DEFINE_string(params_file, "", "The weights: .pdiparams.");
DEFINE_string(device, "ipu", "ipu (EnableIpu), custom (EnableCustomDevice) or cpu.");
DEFINE_int32(batch_size, 1, "Images of a run.");
DEFINE_int32(image_size, 224, "Height and width of an image.");
DEFINE_int32(warmup, 1, "Runs before the clock starts.");
DEFINE_int32(repeats, 10, "Runs with the clock.");

namespace {

using Clock = std::chrono::steady_clock;

paddle_infer::Config MakeConfig() {
  paddle_infer::Config config(FLAGS_model_file, FLAGS_params_file);
  config.DisableGlogInfo();
  if (FLAGS_device == "ipu") {
    config.EnableIpu(1, FLAGS_batch_size);
  } else if (FLAGS_device == "custom") {
    config.EnableCustomDevice("ipu", 0);
  } else {
    config.EnableMKLDNN();
  }
  return config;
}

std::vector<float> Infer(paddle_infer::Predictor* predictor, const std::vector<float>& images) {
  auto input = predictor->GetInputHandle(predictor->GetInputNames()[0]);
  input->Reshape({FLAGS_batch_size, 3, FLAGS_image_size, FLAGS_image_size});
  input->CopyFromCpu(images.data());

  predictor->Run();

  auto output = predictor->GetOutputHandle(predictor->GetOutputNames()[0]);
  const std::vector<int> shape = output->shape();
  std::vector<float> scores(
      std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<int>()));
  output->CopyToCpu(scores.data());
  return scores;
}

int Main() {
  const auto predictor = paddle_infer::CreatePredictor(MakeConfig());
  // An image that every language can make: the same numbers again and again.
  std::vector<float> images(static_cast<std::size_t>(FLAGS_batch_size) * 3 * FLAGS_image_size *
                            FLAGS_image_size);
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<float>(i % 255) / 255.0f;
  }

  for (int i = 0; i < FLAGS_warmup; ++i) Infer(predictor.get(), images);
  std::vector<float> scores;
  const auto start = Clock::now();
  for (int i = 0; i < FLAGS_repeats; ++i) scores = Infer(predictor.get(), images);
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;

  LOG(INFO) << "Paddle " << paddle_infer::GetVersion();
  LOG(INFO) << "average of " << FLAGS_repeats << " runs: " << elapsed.count() / FLAGS_repeats
            << " ms";
  for (std::size_t i = 0; i < scores.size(); i += 100) {
    LOG(INFO) << "output[" << i << "] = " << std::setprecision(9) << scores[i];
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  google::ParseCommandLineFlags(&argc, &argv, true);
  try {
    return Main();
  } catch (const std::exception& error) {
    LOG(ERROR) << error.what();
    return 1;
  }
}
