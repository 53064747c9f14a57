#include "pool_context.h"

#include <chrono>
#include <future>
#include <memory>

#include "labels.h"
#include "paddle/phi/backends/context_pool.h"
#include "paddle/phi/backends/cpu/cpu_context.h"
#include "paddle/phi/backends/custom/custom_context.h"
#include "paddle/phi/core/generator.h"

namespace softipu {
namespace {

// A context of the device that a dynamic_cast to CPUContext finds a real one in. What that one
// allocates is the device's memory under the device's place, so results stay where they belong.
class DeviceAndCpuContext final : public phi::CustomContext, public phi::CPUContext {
 public:
  explicit DeviceAndCpuContext(const phi::CustomContext& device)
      : phi::CustomContext(phi::CustomPlace(device.GetPlace())), phi::CPUContext(CpuPlace()) {
    UseResourcesOf<phi::CustomContext>(device);
    UseResourcesOf<phi::CPUContext>(device);
    phi::CPUContext::SetGenerator(
        phi::DefaultCustomDeviceGenerator(phi::CustomPlace(device.GetPlace())).get());
    phi::CustomContext::Init();  // wants an allocator
    SetStream(device.GetStream());
    set_xccl_comm(device.xccl_comm());
  }

 private:
  template <class Part>
  void UseResourcesOf(const phi::DeviceContext& device) {
    Part::SetAllocator(&device.GetAllocator());
    Part::SetHostAllocator(&device.GetHostAllocator());
    Part::SetZeroAllocator(&device.GetZeroAllocator());
    Part::SetHostZeroAllocator(&device.GetHostZeroAllocator());
    Part::SetGenerator(device.GetGenerator());
    Part::SetHostGenerator(device.GetHostGenerator());
  }
};

// Paddle reads this pointer without a lock, so it goes from one valid context to the other in one
// step: unique_ptr's own functions would leave it null between.
void Replace(std::unique_ptr<phi::DeviceContext>* owner, phi::DeviceContext* context) {
  static_assert(sizeof *owner == sizeof context, "a unique_ptr is more than its pointer");
  __atomic_store_n(reinterpret_cast<phi::DeviceContext**>(owner), context, __ATOMIC_RELEASE);
}

}  // namespace

void MakePoolServeSparseSums(const phi::Place& device) {
  auto& contexts = phi::DeviceContextPool::Instance().device_contexts();
  const auto found = contexts.find(device);
  if (found == contexts.end()) return;
  // The pool hands out what it owns as const, but made it as a plain object.
  auto& owner = const_cast<std::unique_ptr<phi::DeviceContext>&>(found->second.get());
  auto* plain = dynamic_cast<phi::CustomContext*>(owner.get());
  if (!plain) return;
  // Whoever has asked the pool before, the caller of this kernel too, goes on with the plain one:
  // it lives as long as the process.
  phi::CustomContext* both = new DeviceAndCpuContext(*plain);
  Replace(&owner, both);
}

}  // namespace softipu

extern "C" __attribute__((visibility("default"))) bool SoftipuPoolServesSparseSums(int device) {
  auto& contexts = phi::DeviceContextPool::Instance().device_contexts();
  for (auto& entry : contexts) {
    if (entry.first.GetType() != phi::AllocationType::CUSTOM) continue;
    if (entry.first.GetDeviceId() != device) continue;
    // To ask for a context that nobody has used yet would make it.
    if (entry.second.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    return dynamic_cast<phi::CPUContext*>(entry.second.get().get()) != nullptr;
  }
  return false;
}
