#include "native.h"

#include <cmath>
#include <map>
#include <set>

#include "flags.h"
#include "native_ops.h"

namespace softipu {
namespace {

using phi::AttributeType;

struct Native {
  NativeKernel kernel;
  std::vector<AttributeType> attributes;
};

const std::map<std::string, Native>& Natives() {
  constexpr auto kBool = AttributeType::BOOL;
  constexpr auto kFloat = AttributeType::FLOAT32;
  constexpr auto kInt = AttributeType::INT32;
  constexpr auto kInts = AttributeType::INT32S;
  constexpr auto kLongs = AttributeType::INT64S;
  constexpr auto kText = AttributeType::STRING;
  constexpr auto kArray = AttributeType::INT_ARRAY;
  using Types = std::vector<AttributeType>;
  [[maybe_unused]] const Types conv = {kInts, kInts, kText, kInts, kInt, kText};
  [[maybe_unused]] const Types depthwise = {kInts, kInts, kText, kInt, kInts, kText};
  const Types pool = {kArray, kLongs, kLongs, kBool, kBool, kText, kText, kBool, kBool, kText};
  static const std::map<std::string, Native> natives = {
      {"add", {Add, {}}},
      {"add_grad", {AddGrad, {kInt}}},
      {"batch_norm", {BatchNorm, {kBool, kFloat, kFloat, kText, kBool, kBool}}},
      {"batch_norm_grad", {BatchNormGrad, {kFloat, kFloat, kText, kBool, kBool, kBool}}},
      {"full", {Full, {kArray, AttributeType::SCALAR, AttributeType::DATA_TYPE}}},
      {"momentum", {Momentum, {kFloat, kBool, kText, kFloat, kBool, kFloat}}},
      {"pool2d", {Pool2d, pool}},
      {"pool2d_grad", {Pool2dGrad, pool}},
      {"relu", {Relu, {}}},
      {"relu_grad", {ReluGrad, {}}},
#ifdef SOFTIPU_WITH_ONEDNN
      {"conv2d", {Conv2d, conv}},
      {"conv2d_grad", {Conv2dGrad, conv}},
      {"depthwise_conv2d", {DepthwiseConv2d, depthwise}},
      {"depthwise_conv2d_grad", {DepthwiseConv2dGrad, depthwise}},
      {"matmul", {Matmul, {kBool, kBool}}},
      {"matmul_grad", {MatmulGrad, {kBool, kBool}}},
#endif
  };
  return natives;
}

}  // namespace

NativeKernel FindNative(const std::string& op, const std::vector<AttributeType>& attributes) {
  auto found = Natives().find(op);
  if (!flags.native || found == Natives().end()) return nullptr;
  return found->second.attributes == attributes ? found->second.kernel : nullptr;
}

bool IsProduct(const std::string& op) {
  static const std::set<std::string> products = {"conv2d", "conv2d_grad", "matmul", "matmul_grad"};
  return flags.native && products.count(op) > 0;
}

// Matrices of m x k, k x n and m x n numbers: the root of their product is m x n x k.
int64_t ProductWork(const Arguments& call) {
  const phi::DenseTensor& product = call.inputs.size() > 2 ? *call.inputs[2] : *call.outputs[0];
  return std::sqrt(static_cast<double>(call.inputs[0]->numel()) * call.inputs[1]->numel() *
                   product.numel());
}

}  // namespace softipu
