#include "collectives.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <sstream>

#include "errors.h"
#include "process.h"
#include "reduce.h"
#include "settings.h"

namespace softipu {

namespace {

constexpr size_t kMostRanks = 256;
constexpr size_t kSlotBytes = 1 << 20;
constexpr size_t kMailboxBytes = 16 << 10;
// How long a rank sleeps before it looks whether the others still live.
constexpr long kLookAfterNanoseconds = 100'000'000;
// The same for messages, of which another may move while one is stuck.
constexpr long kLookAgainNanoseconds = 1'000'000;
constexpr size_t kLooksBetweenCounts = 100;
// How long ranks wait for each other to join, unless SOFTIPU_INSTANCES_TIMEOUT says otherwise.
constexpr double kJoinSeconds = 1800;

void FutexWait(std::atomic<uint32_t>* word, uint32_t while_it_is) {
  const timespec patience{0, kLookAfterNanoseconds};
  syscall(SYS_futex, word, FUTEX_WAIT, while_it_is, &patience, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

[[noreturn]] void Fail(const std::string& what, int error_number) {
  throw Error(kCollective, what + ": " + std::strerror(error_number) + ".");
}

const char* At(const void* data, size_t offset) { return static_cast<const char*>(data) + offset; }
char* At(void* data, size_t offset) { return static_cast<char*>(data) + offset; }

}  // namespace

// Zeros are its valid beginning: the first rank to come makes the memory, and nobody sets it up.
struct Communicator::Shared {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> generation;
  std::atomic<int64_t> pids[kMostRanks];  // 0: not here yet
  std::atomic<int64_t> start_ticks[kMostRanks];
};

struct Communicator::Mailbox {
  std::atomic<uint32_t> size;  // of the part that waits to be taken; 0: none
  char data[kMailboxBytes];
};

std::string NewGroupName() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) Fail("no random number", errno);
  char name[kGroupNameSize];
  std::snprintf(name, sizeof name, "/softipu-%016llx", static_cast<unsigned long long>(number));
  return name;
}

Communicator::Communicator(const std::string& name, size_t ranks, size_t rank)
    : name_(name), ranks_(ranks), rank_(rank) {
  if (ranks == 0 || ranks > kMostRanks || rank >= ranks) {
    throw Error(kCollective, "Rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                 " cannot be: there may be 1 to 256 ranks, counted from 0.");
  }
  const double patience = SecondsSetting("SOFTIPU_INSTANCES_TIMEOUT", kJoinSeconds);
  bytes_ = sizeof(Shared) + ranks * kSlotBytes + ranks * ranks * sizeof(Mailbox);
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) Fail("shared memory " + name, errno);
  // Allocated at once: touching memory that a full /dev/shm lacks would kill the process.
  const int problem = posix_fallocate(file, 0, static_cast<off_t>(bytes_));
  void* memory = MAP_FAILED;
  if (problem == 0) {
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int reason = problem == 0 ? errno : problem;
  close(file);
  if (memory == MAP_FAILED) {
    shm_unlink(name.c_str());
    Fail(std::to_string(bytes_ >> 20) + " MiB of shared memory", reason);
  }
  shared_ = static_cast<Shared*>(memory);
  try {
    Join(patience);
  } catch (...) {
    munmap(shared_, bytes_);
    shm_unlink(name.c_str());  // rank 0, which would do it, may never come
    throw;
  }
  // All have it open: without its name, nothing is left behind however they end.
  if (rank == 0) shm_unlink(name.c_str());
}

Communicator::~Communicator() { munmap(shared_, bytes_); }

char* Communicator::Slot(size_t rank) const {
  return reinterpret_cast<char*>(shared_ + 1) + rank * kSlotBytes;
}

Communicator::Mailbox* Communicator::Box(size_t from, size_t to) const {
  return reinterpret_cast<Mailbox*>(Slot(ranks_)) + from * ranks_ + to;
}

void Communicator::DemandAllAlive() const {
  Identity other = ThisProcess();
  for (size_t rank = 0; rank < ranks_; ++rank) {
    other.pid = shared_->pids[rank];
    other.start_ticks = shared_->start_ticks[rank];
    if (other.pid == 0 || !IsGone(other)) continue;
    throw Error(kCollective, "Rank " + std::to_string(rank) + " (pid " +
                                 std::to_string(other.pid) +
                                 ") ended while the others waited for it.");
  }
}

// A rank that ended before it came left no trace that others could look at: only time tells.
void Communicator::Join(double seconds) {
  const Identity me = ThisProcess();
  shared_->start_ticks[rank_] = me.start_ticks;
  shared_->pids[rank_] = me.pid;
  const double end = BootSeconds() + seconds;
  Barrier([&] {
    std::string missing;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      if (shared_->pids[rank] == 0) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (missing.empty() || BootSeconds() < end) return;
    std::ostringstream what;
    what << "Of " << ranks_ << " ranks, these did not join within " << seconds
         << " seconds: " << missing << ".";
    throw Error(kCollective, what.str(),
                "They ended before they came, or are busy with something else.",
                "Look at the output of the other processes; SOFTIPU_INSTANCES_TIMEOUT says how "
                "many seconds to wait.");
  });
}

void Communicator::Barrier(const std::function<void()>& look) {
  const uint32_t generation = shared_->generation;
  if (shared_->arrived.fetch_add(1) + 1 == ranks_) {
    shared_->arrived = 0;
    ++shared_->generation;
    FutexWake(&shared_->generation);
    return;
  }
  while (shared_->generation == generation) {
    FutexWait(&shared_->generation, generation);
    if (shared_->generation != generation) return;
    DemandAllAlive();
    if (look) look();
  }
}

void Communicator::InParts(size_t bytes, const std::function<void(size_t, size_t)>& put,
                           const std::function<void(size_t, size_t)>& take) {
  for (size_t at = 0; at < bytes; at += kSlotBytes) {
    const size_t size = std::min(kSlotBytes, bytes - at);
    put(at, size);
    Barrier();
    take(at, size);
    Barrier();
  }
}

// In the order of the ranks everywhere, so that all get the same bits.
void Communicator::ReduceInto(void* to, size_t at, size_t size, C_DataType type,
                              C_CCLReduceOp op) const {
  char* result = At(to, at);
  const size_t count = size / SizeOf(type);
  std::memcpy(result, Slot(0), size);
  for (size_t rank = 1; rank < ranks_; ++rank) Combine(type, op, count, Slot(rank), result);
  if (op == AVG) Divide(type, count, ranks_, result);
}

void Communicator::AllReduce(const void* from, void* to, size_t count, C_DataType type,
                             C_CCLReduceOp op) {
  InParts(
      count * SizeOf(type),
      [&](size_t at, size_t size) { std::memcpy(Slot(rank_), At(from, at), size); },
      [&](size_t at, size_t size) { ReduceInto(to, at, size, type, op); });
}

void Communicator::Reduce(const void* from, void* to, size_t count, C_DataType type,
                          C_CCLReduceOp op, size_t root) {
  InParts(
      count * SizeOf(type),
      [&](size_t at, size_t size) { std::memcpy(Slot(rank_), At(from, at), size); },
      [&](size_t at, size_t size) {
        if (rank_ == root) ReduceInto(to, at, size, type, op);
      });
}

void Communicator::ReduceScatter(const void* from, void* to, size_t count, C_DataType type,
                                 C_CCLReduceOp op) {
  const size_t bytes = count * SizeOf(type);
  for (size_t owner = 0; owner < ranks_; ++owner) {
    InParts(
        bytes,
        [&](size_t at, size_t size) {
          std::memcpy(Slot(rank_), At(from, owner * bytes + at), size);
        },
        [&](size_t at, size_t size) {
          if (rank_ == owner) ReduceInto(to, at, size, type, op);
        });
  }
}

void Communicator::Broadcast(void* data, size_t bytes, size_t root) {
  InParts(
      bytes,
      [&](size_t at, size_t size) {
        if (rank_ == root) std::memcpy(Slot(root), At(data, at), size);
      },
      [&](size_t at, size_t size) {
        if (rank_ != root) std::memcpy(At(data, at), Slot(root), size);
      });
}

void Communicator::AllGather(const void* from, void* to, size_t bytes) {
  InParts(
      bytes, [&](size_t at, size_t size) { std::memcpy(Slot(rank_), At(from, at), size); },
      [&](size_t at, size_t size) {
        for (size_t rank = 0; rank < ranks_; ++rank) {
          std::memcpy(At(to, rank * bytes + at), Slot(rank), size);
        }
      });
}

void Communicator::AllToAll(const std::vector<const void*>& from,
                            const std::vector<size_t>& from_bytes, const std::vector<void*>& to,
                            const std::vector<size_t>& to_bytes) {
  std::vector<Message> messages;
  for (size_t peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) {
      std::memmove(to[peer], from[peer], std::min(from_bytes[peer], to_bytes[peer]));
      continue;
    }
    auto* data = static_cast<char*>(const_cast<void*>(from[peer]));  // only read, as it is sent
    messages.push_back({this, peer, true, data, from_bytes[peer]});
    messages.push_back({this, peer, false, static_cast<char*>(to[peer]), to_bytes[peer]});
  }
  Exchange(&messages);
}

bool Communicator::Message::Step() {
  if (done == bytes) return true;
  Mailbox* box = sending ? communicator->Box(communicator->rank_, peer)
                         : communicator->Box(peer, communicator->rank_);
  const uint32_t waiting = box->size.load(std::memory_order_acquire);
  if (sending == (waiting != 0)) return false;  // still full, or still empty
  if (sending) {
    const size_t size = std::min(kMailboxBytes, bytes - done);
    std::memcpy(box->data, data + done, size);
    done += size;
    box->size.store(static_cast<uint32_t>(size), std::memory_order_release);
  } else {
    const size_t size = std::min<size_t>(waiting, bytes - done);
    std::memcpy(data + done, box->data, size);
    done += size;
    box->size.store(0, std::memory_order_release);
  }
  FutexWake(&box->size);
  return done == bytes;
}

void Communicator::Exchange(std::vector<Message>* messages) {
  size_t looks = 0;
  while (!messages->empty()) {
    size_t before = 0, after = 0;
    for (Message& message : *messages) before += message.done;
    // Messages to one peer keep their order: a later one waits for those before it.
    for (size_t n = 0; n < messages->size(); ++n) {
      Message& message = (*messages)[n];
      const bool first = std::none_of(
          messages->begin(), messages->begin() + static_cast<std::ptrdiff_t>(n),
          [&](const Message& other) {
            return other.communicator == message.communicator && other.peer == message.peer &&
                   other.sending == message.sending && other.done < other.bytes;
          });
      if (first) message.Step();
    }
    for (Message& message : *messages) after += message.done;
    messages->erase(std::remove_if(messages->begin(), messages->end(),
                                   [](const Message& one) { return one.done == one.bytes; }),
                    messages->end());
    if (messages->empty() || after != before) continue;
    // Nothing moved: sleep until the first message's peer has done its part.
    const Message& stuck = messages->front();
    Communicator& own = *stuck.communicator;
    Mailbox* box = stuck.sending ? own.Box(own.rank_, stuck.peer) : own.Box(stuck.peer, own.rank_);
    const uint32_t seen = box->size;
    if (stuck.sending == (seen != 0)) {
      const timespec patience{0, kLookAgainNanoseconds};
      syscall(SYS_futex, &box->size, FUTEX_WAIT, seen, &patience, nullptr, 0);
      if (++looks % kLooksBetweenCounts == 0) own.DemandAllAlive();
    }
  }
}

}  // namespace softipu
