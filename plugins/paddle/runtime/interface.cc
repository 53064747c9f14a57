// Work is done when a call returns, so streams are always empty and events are points in time.
//
// Functions that Paddle calls while it cleans up never throw.
#include "interface.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>

#include "axpby.h"
#include "devices.h"
#include "memory.h"
#include "telling.h"

// Paddle declares them; what they are is ours to say.
struct C_Stream_st {
  int device;
};

struct C_Event_st {
  std::chrono::steady_clock::time_point recorded;
};

namespace softipu {

namespace {

SoftipuModule kernels{};

// Alignment of every tensor: a cache line, and what oneDNN likes best.
constexpr size_t kAlignment = 64;
constexpr size_t kVersion = SOFTIPU_PLUGIN_VERSION_NUMBER;

Devices& All() { return Devices::OfProcess(); }

const Chip& TheChip() { return *All().system().chip; }

// --- devices -------------------------------------------------------------------------------------

C_Status Initialize() { return C_SUCCESS; }

C_Status Finalize() {
  All().Close();
  return C_SUCCESS;
}

// Paddle initialises every device it lists; an IPU is leased when a program uses one.
C_Status InitDevice(const C_Device) { return C_SUCCESS; }
C_Status DeinitDevice(const C_Device) { return C_SUCCESS; }

C_Status SetDevice(const C_Device device) {
  return Telling([&] { All().Use(device->id); });
}

C_Status GetDevice(const C_Device device) {
  device->id = All().Current();
  return C_SUCCESS;
}

C_Status SynchronizeDevice(const C_Device) { return C_SUCCESS; }

C_Status GetDeviceCount(size_t* count) {
  *count = All().count();
  return C_SUCCESS;
}

C_Status GetDeviceList(size_t* devices) {
  for (size_t n = 0; n < All().count(); ++n) devices[n] = n;
  return C_SUCCESS;
}

// --- streams and events --------------------------------------------------------------------------

C_Status CreateStream(const C_Device device, C_Stream* stream) {
  *stream = new C_Stream_st{device->id};
  return C_SUCCESS;
}

C_Status DestroyStream(const C_Device, C_Stream stream) {
  delete stream;
  return C_SUCCESS;
}

C_Status QueryStream(const C_Device, C_Stream) { return C_SUCCESS; }
C_Status SynchronizeStream(const C_Device, C_Stream) { return C_SUCCESS; }

C_Status AddCallback(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  C_Status status = C_SUCCESS;
  callback(device, stream, data, &status);
  return status;
}

C_Status CreateEvent(const C_Device, C_Event* event) {
  *event = new C_Event_st{std::chrono::steady_clock::now()};
  return C_SUCCESS;
}

C_Status RecordEvent(const C_Device, C_Stream, C_Event event) {
  event->recorded = std::chrono::steady_clock::now();
  return C_SUCCESS;
}

C_Status DestroyEvent(const C_Device, C_Event event) {
  delete event;
  return C_SUCCESS;
}

C_Status QueryEvent(const C_Device, C_Event) { return C_SUCCESS; }
C_Status SynchronizeEvent(const C_Device, C_Event) { return C_SUCCESS; }
C_Status StreamWaitEvent(const C_Device, C_Stream, C_Event) { return C_SUCCESS; }

// --- memory --------------------------------------------------------------------------------------

C_Status AllocateDevice(const C_Device device, void** memory, size_t size) {
  Telling([&] { All().Attach(device->id); });
  *memory = AllocateMemory(size);
  if (*memory != nullptr) All().ActivityOf(device->id).memory_bytes += size;
  return C_SUCCESS;  // without memory too: Paddle then frees its cache and tells how much it lacks
}

C_Status FreeDevice(const C_Device device, void* memory, size_t size) {
  FreeMemory(memory);
  All().ActivityOf(device->id).memory_bytes -= size;
  return C_SUCCESS;
}

C_Status SetMemory(const C_Device, void* memory, unsigned char value, size_t size) {
  std::memset(memory, value, size);
  return C_SUCCESS;
}

C_Status AllocateHost(const C_Device, void** memory, size_t size) {
  *memory = AllocateMemory(size);
  return *memory == nullptr ? C_FAILED : C_SUCCESS;
}

C_Status FreeHost(const C_Device, void* memory, size_t) {
  FreeMemory(memory);
  return C_SUCCESS;
}

// Source and target may be one tensor.
C_Status Copy(void* to, const void* from, size_t size) {
  std::memmove(to, from, size);
  return C_SUCCESS;
}

C_Status CopyIn(const C_Device device, void* to, const void* from, size_t size) {
  All().ActivityOf(device->id).host_bytes_in += size;
  return Copy(to, from, size);
}

C_Status CopyOut(const C_Device device, void* to, const void* from, size_t size) {
  All().ActivityOf(device->id).host_bytes_out += size;
  return Copy(to, from, size);
}

C_Status CopyWithin(const C_Device, void* to, const void* from, size_t size) {
  return Copy(to, from, size);
}

C_Status CopyAcross(const C_Device, const C_Device, void* to, const void* from, size_t size) {
  return Copy(to, from, size);
}

C_Status AsyncCopyIn(const C_Device device, C_Stream, void* to, const void* from, size_t size) {
  return CopyIn(device, to, from, size);
}

C_Status AsyncCopyOut(const C_Device device, C_Stream, void* to, const void* from, size_t size) {
  return CopyOut(device, to, from, size);
}

C_Status AsyncCopyWithin(const C_Device, C_Stream, void* to, const void* from, size_t size) {
  return Copy(to, from, size);
}

C_Status AsyncCopyAcross(const C_Device, const C_Device, C_Stream, void* to, const void* from,
                         size_t size) {
  return Copy(to, from, size);
}

// --- what Paddle wants to know -------------------------------------------------------------------

C_Status MemoryStats(const C_Device device, size_t* total, size_t* free) {
  *total = All().system().MemoryOfIpu();
  const size_t used = All().ActivityOf(device->id).memory_bytes;
  *free = std::min<size_t>(*total - std::min(*total, used), AvailableMemory());
  return C_SUCCESS;
}

C_Status MinChunkSize(const C_Device, size_t* size) {
  *size = kAlignment;
  return C_SUCCESS;
}

C_Status ComputeCapability(const C_Device, size_t* capability) {
  *capability = static_cast<size_t>(TheChip().major * 10 + TheChip().minor);
  return C_SUCCESS;
}

C_Status DeviceProperties(const C_Device, void* properties) {
  const std::string name = std::string("Graphcore ") + TheChip().product + " IPU (softipu)";
  const SoftipuProperties all{name.c_str(), TheChip().major, TheChip().minor,
                              All().system().MemoryOfIpu(), TheChip().tiles};
  if (kernels.describe == nullptr) return C_FAILED;
  kernels.describe(&all, properties);
  return C_SUCCESS;
}

C_Status Version(const C_Device, size_t* version) {
  *version = kVersion;
  return C_SUCCESS;
}

C_Status Tiles(const C_Device, size_t* count) {
  *count = static_cast<size_t>(TheChip().tiles);
  return C_SUCCESS;
}

C_Status ThreadsOfTile(const C_Device, size_t* count) {
  *count = static_cast<size_t>(TheChip().worker_contexts);
  return C_SUCCESS;
}

C_Status GridSize(const C_Device, std::array<unsigned int, 3>* size) {
  *size = {static_cast<unsigned int>(TheChip().tiles), 1, 1};
  return C_SUCCESS;
}

C_Status Yes(const C_Device, bool* supported) {
  *supported = true;
  return C_SUCCESS;
}

C_Status AddScaled(const C_Device, C_Stream, C_DataType type, size_t count, float alpha, void* x,
                   float beta, void* y) {
  return Axpby(type, count, alpha, x, beta, y) ? C_SUCCESS : C_ERROR;
}

// --- profiler: the host's own trace has it all, as kernels run on the host -----------------------

C_Status ProfilerBegin(C_Profiler, void** data) {
  *data = nullptr;
  return C_SUCCESS;
}

C_Status ProfilerStep(C_Profiler, void*) { return C_SUCCESS; }
C_Status ProfilerCollect(C_Profiler, uint64_t, void*) { return C_SUCCESS; }

}  // namespace

void RaiseInPaddle(const Error& problem) {
  if (kernels.raise != nullptr) kernels.raise(problem.what());
}

void UseModule(const SoftipuModule& module) { kernels = module; }

std::atomic<uint64_t>* BusyCounterOfThread() {
  Devices& devices = All();
  return &devices.ActivityOf(devices.Current()).busy_nanoseconds;
}

double ElapsedMilliseconds(C_Event start, C_Event end) {
  return std::chrono::duration<double, std::milli>(end->recorded - start->recorded).count();
}

void FillInterface(C_DeviceInterface* interface) {
  interface->initialize = Initialize;
  interface->finalize = Finalize;
  interface->init_device = InitDevice;
  interface->deinit_device = DeinitDevice;
  interface->set_device = SetDevice;
  interface->get_device = GetDevice;
  interface->synchronize_device = SynchronizeDevice;
  interface->get_device_count = GetDeviceCount;
  interface->get_device_list = GetDeviceList;

  interface->create_stream = CreateStream;
  interface->destroy_stream = DestroyStream;
  interface->query_stream = QueryStream;
  interface->synchronize_stream = SynchronizeStream;
  interface->stream_add_callback = AddCallback;
  interface->stream_wait_event = StreamWaitEvent;
  interface->create_event = CreateEvent;
  interface->record_event = RecordEvent;
  interface->destroy_event = DestroyEvent;
  interface->query_event = QueryEvent;
  interface->synchronize_event = SynchronizeEvent;

  interface->device_memory_allocate = AllocateDevice;
  interface->device_memory_deallocate = FreeDevice;
  interface->device_memory_set = SetMemory;
  interface->host_memory_allocate = AllocateHost;
  interface->host_memory_deallocate = FreeHost;
  interface->unified_memory_allocate = AllocateHost;
  interface->unified_memory_deallocate = FreeHost;
  interface->memory_copy_h2d = CopyIn;
  interface->memory_copy_d2h = CopyOut;
  interface->memory_copy_d2d = CopyWithin;
  interface->memory_copy_p2p = CopyAcross;
  interface->async_memory_copy_h2d = AsyncCopyIn;
  interface->async_memory_copy_d2h = AsyncCopyOut;
  interface->async_memory_copy_d2d = AsyncCopyWithin;
  interface->async_memory_copy_p2p = AsyncCopyAcross;

  interface->device_memory_stats = MemoryStats;
  interface->device_min_chunk_size = MinChunkSize;
  interface->get_compute_capability = ComputeCapability;
  interface->get_device_properties = DeviceProperties;
  interface->get_runtime_version = Version;
  interface->get_driver_version = Version;
  interface->get_multi_process = Tiles;
  interface->get_max_threads_per_mp = ThreadsOfTile;
  interface->get_max_threads_per_block = ThreadsOfTile;
  interface->get_max_grid_dim_size = GridSize;
  interface->is_float16_supported = Yes;
  interface->is_bfloat16_supported = Yes;
  interface->blas_axpby = AddScaled;

  FillCollectives(interface);

  interface->profiler_initialize = ProfilerBegin;
  interface->profiler_finalize = ProfilerStep;
  interface->profiler_prepare_tracing = ProfilerStep;
  interface->profiler_start_tracing = ProfilerStep;
  interface->profiler_stop_tracing = ProfilerStep;
  interface->profiler_collect_trace_data = ProfilerCollect;
}

}  // namespace softipu
