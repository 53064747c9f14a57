#include "device_memory.h"

#include <array>
#include <atomic>
#include <mutex>

#include "labels.h"
#include "paddle/phi/core/generator.h"
#include "paddle/phi/core/memory/allocation/allocator_facade.h"
#include "pool_context.h"

namespace softipu {
namespace {

using paddle::memory::allocation::AllocatorFacade;

// Device memory under the CPU's place.
class LabellingAllocator final : public phi::Allocator {
 public:
  explicit LabellingAllocator(std::shared_ptr<phi::Allocator> device)
      : device_(std::move(device)) {}

  AllocationPtr Allocate(size_t bytes) override {
    return AllocationPtr(new Label(Buffer(device_->Allocate(bytes)), CpuPlace()),
                         [](phi::Allocation* label) { delete label; });
  }

  bool IsAllocThreadSafe() const override { return device_->IsAllocThreadSafe(); }

 private:
  std::shared_ptr<phi::Allocator> device_;
};

phi::CPUContext* MakeContext(const phi::Place& device) {
  auto& facade = AllocatorFacade::Instance();
  const phi::Place& cpu = CpuPlace();
  auto* context = new phi::CPUContext(cpu);
  context->SetAllocator(new LabellingAllocator(facade.GetAllocator(device)));
  context->SetHostAllocator(facade.GetAllocator(cpu).get());
  context->SetZeroAllocator(facade.GetZeroAllocator(cpu).get());
  context->SetHostZeroAllocator(facade.GetZeroAllocator(cpu).get());
  context->SetPinnedAllocator(facade.GetAllocator(cpu).get());
  // The device's own, which paddle.seed and paddle.set_rng_state set: of one seed, the CPU's numbers.
  auto* generator = phi::DefaultCustomDeviceGenerator(phi::CustomPlace(device)).get();
  context->SetGenerator(generator);
  context->SetHostGenerator(generator);
  return context;
}

}  // namespace

phi::CPUContext& CpuContextOf(const phi::Place& device) {
  static std::array<std::atomic<phi::CPUContext*>, 256> contexts{};
  static std::mutex mutex;
  auto& slot = contexts[static_cast<uint8_t>(device.GetDeviceId())];
  if (auto* context = slot.load(std::memory_order_acquire)) return *context;
  std::lock_guard<std::mutex> lock(mutex);
  if (!slot.load()) {
    MakePoolServeSparseSums(device);
    slot.store(MakeContext(device), std::memory_order_release);
  }
  return *slot.load();
}

}  // namespace softipu
