#include "devices.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace softipu {

namespace {

// Between two writes of the same counters, as in softipu.devices.telemetry.
constexpr auto kInterval = std::chrono::milliseconds(250);

thread_local int current_device = -1;

Devices* of_process = nullptr;

}  // namespace

Devices::Devices() {
  try {
    home_.emplace();
    partition_ = ActivePartition(*home_);
    devices_ = partition_.Devices();
  } catch (const Error& problem) {
    problem_.emplace(problem);
    partition_ = WholeSystem(FindSystem("bow-pod16"));
  }
  // With a problem there is one device all the same: using it tells what is wrong.
  const size_t count = problem_ ? 1 : devices_.size();
  for (size_t n = 0; n < count; ++n) slots_.push_back(std::make_unique<Slot>());
}

Devices::~Devices() { Close(); }

Devices& Devices::OfProcess() {
  static std::once_flag made;
  std::call_once(made, [] {
    of_process = new Devices;
    pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
    std::atexit([] { of_process->Close(); });
  });
  return *of_process;
}

const System& Devices::system() const { return *partition_.system; }

Devices::Slot& Devices::Checked(int ordinal) {
  if (problem_) throw *problem_;
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= slots_.size()) {
    const std::string last = std::to_string(slots_.size() - 1);
    throw Error(kNoSuchDevice, "There is no device ipu:" + std::to_string(ordinal) +
                                   "; partition " + partition_.name + " has ipu:0 to ipu:" + last +
                                   ".");
  }
  return *slots_[static_cast<size_t>(ordinal)];
}

void Devices::Use(int ordinal) {
  Attach(ordinal);
  current_device = ordinal;
  last_used_.store(ordinal, std::memory_order_relaxed);
}

int Devices::Current() const {
  return current_device >= 0 ? current_device : last_used_.load(std::memory_order_relaxed);
}

void Devices::Attach(int ordinal) {
  Slot& slot = Checked(ordinal);
  if (slot.attached.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!slot.attached && !closed_) AttachLocked(&slot, static_cast<size_t>(ordinal));
}

void Devices::AttachLocked(Slot* slot, size_t ordinal) {
  home_->Prepare();
  slot->lease = FirstFree(ordinal);
  if (!slot->lease) {
    const size_t size = devices_[ordinal].ipus.size();
    const std::string holders = Holders(*home_, devices_);
    throw Error(kDevicesBusy,
                "No free device of " + std::to_string(size) + (size > 1 ? " IPUs" : " IPU") +
                    " in partition " + partition_.name + ": the IPUs are busy.",
                holders.empty() ? "" : "They are held by " + holders + ".");
  }
  slot->before = Counted(slot->activity);
  slot->attached.store(true, std::memory_order_release);
  StartWriter();
}

// The IPU with the device's own number if it is free, so that ipu:1 alone is IPU 1; else any other
// free one, so that two programs that both say `ipu` get one each.
std::unique_ptr<Lease> Devices::FirstFree(size_t preferred) {
  std::vector<const Device*> candidates{&devices_[preferred]};
  for (const Device& device : devices_) {
    if (device.id != devices_[preferred].id) candidates.push_back(&device);
  }
  for (const Device* candidate : candidates) {
    const bool mine = std::any_of(slots_.begin(), slots_.end(), [candidate](const auto& slot) {
      return slot->attached && slot->lease->device().id == candidate->id;
    });
    if (mine) continue;
    if (auto lease = Lease::TryAcquire(*home_, partition_, *candidate)) return lease;
  }
  return nullptr;
}

Activity& Devices::ActivityOf(int ordinal) {
  const bool known = ordinal >= 0 && static_cast<size_t>(ordinal) < slots_.size();
  return slots_[known ? static_cast<size_t>(ordinal) : 0]->activity;
}

Counters Devices::Counted(const Activity& activity) {
  return {static_cast<double>(activity.busy_nanoseconds.load()) * 1e-9, activity.host_bytes_in,
          activity.host_bytes_out};
}

void Devices::Report() {
  for (const auto& slot : slots_) {
    if (!slot->attached) continue;
    const Counters now = Counted(slot->activity);
    try {
      slot->lease->Update(slot->activity.memory_bytes,
                          {now.busy_seconds - slot->before.busy_seconds,
                           now.host_bytes_in - slot->before.host_bytes_in,
                           now.host_bytes_out - slot->before.host_bytes_out});
    } catch (const Error& problem) {
      // The lease stands without them: the program goes on, and gc-monitor shows old figures.
      if (!complained_) Warn(std::string("counters are not written: ") + problem.what());
      complained_ = true;
    }
  }
}

void Devices::StartWriter() {
  if (writer_) return;
  // The thread must take no signals from the program: Python's handlers belong to its threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t writer{};
  const int problem = pthread_create(&writer, nullptr, WriteForEver, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (problem == 0) {
    writer_ = writer;
  } else {
    Warn(std::string("counters are not written: no thread for them (") + std::strerror(problem) +
         ")");
  }
}

void* Devices::WriteForEver(void* devices) {
  auto* self = static_cast<Devices*>(devices);
  std::unique_lock<std::mutex> lock(self->mutex_);
  while (!self->closing_.wait_for(lock, kInterval, [self] { return self->closed_; })) {
    self->Report();
  }
  return nullptr;
}

void Devices::Close() {
  std::optional<pthread_t> writer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    std::swap(writer, writer_);
    for (const auto& slot : slots_) {
      slot->attached = false;
      slot->lease.reset();
    }
  }
  closing_.notify_all();
  if (writer) pthread_join(*writer, nullptr);
}

void Devices::BeforeFork() { of_process->mutex_.lock(); }

void Devices::AfterForkInParent() { of_process->mutex_.unlock(); }

void Devices::AfterForkInChild() {
  for (const auto& slot : of_process->slots_) {
    slot->attached = false;
    if (slot->lease) slot->lease->Abandon();
    slot->lease.reset();
  }
  of_process->writer_.reset();  // the thread stayed with the parent
  // Waiters stayed there too, and the condition must not remember them.
  new (&of_process->closing_) std::condition_variable;
  of_process->mutex_.unlock();
}

}  // namespace softipu
