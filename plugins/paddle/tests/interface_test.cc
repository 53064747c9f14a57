#include "interface.h"

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "axpby.h"
#include "check.h"
#include "devices.h"
#include "half_types.h"
#include "library_file.h"
#include "memory.h"
#include "paddle_version.h"

// The interface serves the process's own devices: each test is a child of its own.
static int WithInterface(const std::function<void(C_DeviceInterface&)>& deed) {
  setenv("SOFTIPU_SYSTEM", "pod4", 1);
  return check::InChild([&] {
    C_DeviceInterface interface{};
    softipu::FillInterface(&interface);
    deed(interface);
    interface.finalize();
    return 0;
  });
}

TEST("memory of a device is aligned, counted and freed") {
  const int status = WithInterface([](C_DeviceInterface& interface) {
    C_Device_st device{1};
    size_t total = 0, before = 0, during = 0;
    CHECK_EQUAL(interface.device_memory_stats(&device, &total, &before), C_SUCCESS);
    CHECK(total > 64'000'000'000u);
    std::vector<void*> blocks;
    for (const size_t size : {0, 1, 100, 4096, 5 << 20}) {
      void* memory = nullptr;
      CHECK_EQUAL(interface.device_memory_allocate(&device, &memory, size), C_SUCCESS);
      CHECK(memory != nullptr);
      CHECK_EQUAL(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
      CHECK_EQUAL(interface.device_memory_set(&device, memory, 7, size), C_SUCCESS);
      blocks.push_back(memory);
    }
    const auto& used = softipu::Devices::OfProcess().ActivityOf(1).memory_bytes;
    CHECK_EQUAL(used.load(), (5u << 20) + 4197u);
    size_t index = 0;
    for (const size_t size : {0, 1, 100, 4096, 5 << 20}) {
      interface.device_memory_deallocate(&device, blocks[index++], size);
    }
    CHECK_EQUAL(used.load(), 0u);
    interface.device_memory_stats(&device, &total, &during);
    CHECK(during <= total);
  });
  CHECK_EQUAL(status, 0);
}

TEST("memory that the host does not have is refused, not promised") {
  CHECK(softipu::AllocateMemory(size_t{1} << 50) == nullptr);
  CHECK(softipu::AvailableMemory() > 0);
  const int status = WithInterface([](C_DeviceInterface& interface) {
    C_Device_st device{0};
    void* memory = &device;
    CHECK_EQUAL(interface.device_memory_allocate(&device, &memory, size_t{1} << 50), C_SUCCESS);
    CHECK(memory == nullptr);
    CHECK_EQUAL(softipu::Devices::OfProcess().ActivityOf(0).memory_bytes.load(), 0u);
  });
  CHECK_EQUAL(status, 0);
}

TEST("copies arrive and are counted") {
  const int status = WithInterface([](C_DeviceInterface& interface) {
    C_Device_st device{0}, other{1};
    char from[] = "IPU", to[4] = "", back[4] = "";
    interface.memory_copy_h2d(&device, to, from, 4);
    interface.async_memory_copy_d2h(&device, nullptr, back, to, 4);
    CHECK_EQUAL(std::string(back), "IPU");
    interface.memory_copy_p2p(&other, &device, from, to, 4);
    interface.memory_copy_d2d(&device, from + 1, from, 2);  // overlaps
    CHECK_EQUAL(std::string(from), "IIP");
    CHECK_EQUAL(softipu::Devices::OfProcess().ActivityOf(0).host_bytes_in.load(), 4u);
    CHECK_EQUAL(softipu::Devices::OfProcess().ActivityOf(0).host_bytes_out.load(), 4u);
  });
  CHECK_EQUAL(status, 0);
}

TEST("the current device belongs to the thread") {
  const int status = WithInterface([](C_DeviceInterface& interface) {
    C_Device_st one{1}, two{2}, seen{9};
    interface.set_device(&one);
    std::thread([&] {
      interface.get_device(&seen);
      CHECK_EQUAL(seen.id, 1);  // a new thread begins with the device last used
      interface.set_device(&two);
    }).join();
    interface.get_device(&seen);
    CHECK_EQUAL(seen.id, 1);
    *softipu::BusyCounterOfThread() += 5;
    CHECK_EQUAL(softipu::Devices::OfProcess().ActivityOf(1).busy_nanoseconds.load(), 5u);
  });
  CHECK_EQUAL(status, 0);
}

TEST("streams and events are always ready, and callbacks run at once") {
  const int status = WithInterface([](C_DeviceInterface& interface) {
    C_Device_st device{0};
    C_Stream stream = nullptr;
    C_Event event = nullptr;
    interface.create_stream(&device, &stream);
    interface.create_event(&device, &event);
    interface.record_event(&device, stream, event);
    CHECK_EQUAL(interface.query_event(&device, event), C_SUCCESS);
    C_Event later = nullptr;
    interface.create_event(&device, &later);
    CHECK(softipu::ElapsedMilliseconds(event, later) >= 0);
    CHECK_EQUAL(softipu::ElapsedMilliseconds(event, event), 0);
    interface.destroy_event(&device, later);
    CHECK_EQUAL(interface.query_stream(&device, stream), C_SUCCESS);
    int called = 0;
    interface.stream_add_callback(
        &device, stream,
        [](C_Device, C_Stream, void* data, C_Status*) { ++*static_cast<int*>(data); }, &called);
    CHECK_EQUAL(called, 1);
    interface.destroy_event(&device, event);
    interface.destroy_stream(&device, stream);
  });
  CHECK_EQUAL(status, 0);
}

TEST("gradients add up in every type that has gradients") {
  std::vector<float> x(1000, 0.5f), y(1000, 2.0f);
  CHECK(softipu::Axpby(FLOAT32, x.size(), 2.0f, x.data(), 3.0f, y.data()));
  CHECK_EQUAL(y[999], 7.0f);
  std::vector<int64_t> large(3, int64_t{1} << 60), more(3, 1);
  CHECK(softipu::Axpby(INT64, 3, 1.0f, more.data(), 1.0f, large.data()));
  CHECK_EQUAL(large[2], (int64_t{1} << 60) + 1);
  std::vector<softipu::Float16> half(5, softipu::Float16(0.5f)), sum(5, softipu::Float16(1.0f));
  CHECK(softipu::Axpby(FLOAT16, 5, 1.0f, half.data(), 1.0f, sum.data()));
  CHECK_EQUAL(static_cast<float>(sum[4]), 1.5f);
  std::vector<uint16_t> one(5, 0x3f80), result(5, 0x3f80);  // 1.0 in bfloat16
  CHECK(softipu::Axpby(BFLOAT16, 5, 1.0f, one.data(), 1.0f, result.data()));
  CHECK_EQUAL(result[0], 0x4000);  // 2.0
  CHECK(!softipu::Axpby(UNDEFINED, 1, 1.0f, one.data(), 1.0f, result.data()));
}

TEST("Paddle's version is read from its file") {
  const auto version = softipu::ParseVersionFile(
      "import inspect\n\nfull_version     = '3.3.1'\nmajor = '3'\ncommit           = \"abc\"\n");
  CHECK_EQUAL(version.version, "3.3.1");
  CHECK_EQUAL(version.commit, "abc");
  CHECK_EQUAL(softipu::ParseVersionFile("full_version_of = '1'\n# commit = 'x'").version, "");
  CHECK(!softipu::LoadedPaddle());
}

TEST("loaded libraries are found by their names") {
  CHECK_EQUAL(softipu::LoadedLibraries("libc.so").size(), 1u);
  CHECK_CONTAINS(softipu::LoadedLibraries("libc.so")[0], "libc.so");
  CHECK(softipu::LoadedLibraries("libnothing").empty());
}

TEST("a library that is cut short is noticed") {
  const std::string whole = softipu::LoadedLibraries("libc.so")[0];
  CHECK(softipu::IsWholeLibrary(whole));
  const std::string cut = check::Folder() + "/cut.so";
  const std::string content = check::ReadFile(whole);
  for (const size_t size : {size_t{0}, size_t{10}, size_t{64}, content.size() / 3}) {
    check::WriteFile(cut, content.substr(0, size));
    CHECK(!softipu::IsWholeLibrary(cut));
  }
  CHECK(!softipu::IsWholeLibrary("/nowhere"));
}
