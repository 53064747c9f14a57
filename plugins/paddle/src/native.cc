#include "native.h"

#include <cstdlib>
#include <map>

#include "native_ops.h"

namespace softipu {
namespace {

using phi::AttributeType;

struct Native {
  NativeKernel kernel;
  std::vector<AttributeType> attributes;
};

const std::map<std::string, Native>& Natives() {
  constexpr auto kInt = AttributeType::INT32;
  constexpr auto kInts = AttributeType::INT32S;
  constexpr auto kText = AttributeType::STRING;
  using Types = std::vector<AttributeType>;
  [[maybe_unused]] const Types conv = {kInts, kInts, kText, kInts, kInt, kText};
  [[maybe_unused]] const Types depthwise = {kInts, kInts, kText, kInt, kInts, kText};
  static const std::map<std::string, Native> natives = {
      {"add", {Add, {}}},
      {"add_grad", {AddGrad, {kInt}}},
#ifdef SOFTIPU_WITH_ONEDNN
      {"conv2d", {Conv2d, conv}},
      {"conv2d_grad", {Conv2dGrad, conv}},
      {"depthwise_conv2d", {DepthwiseConv2d, depthwise}},
      {"depthwise_conv2d_grad", {DepthwiseConv2dGrad, depthwise}},
#endif
  };
  return natives;
}

bool CpuArithmeticOnly() {
  const char* value = std::getenv("SOFTIPU_PADDLE_ONEDNN");
  return value && std::string(value) == "0";
}

}  // namespace

NativeKernel FindNative(const std::string& op, const std::vector<AttributeType>& attributes) {
  static const bool cpu_only = CpuArithmeticOnly();
  auto found = Natives().find(op);
  if (cpu_only || found == Natives().end()) return nullptr;
  return found->second.attributes == attributes ? found->second.kernel : nullptr;
}

}  // namespace softipu
