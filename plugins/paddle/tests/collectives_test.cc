#include "collectives.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "check.h"
#include "half_types.h"
#include "interface.h"

using softipu::Communicator;

// Runs `deed` as every rank, each in a process of its own, and returns how many of them failed.
static int AsRanks(size_t ranks, const std::function<void(Communicator&, size_t)>& deed) {
  const std::string name = softipu::NewGroupName();
  std::vector<pid_t> children;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    int status = 0;
    try {
      Communicator communicator(name, ranks, rank);
      deed(communicator, rank);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "rank %zu: %s\n", rank, problem.what());
      status = 1;
    }
    _exit(status);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  return failed;
}

TEST("sums, means and extremes are the same in all ranks, for long data too") {
  const int failed = AsRanks(3, [](Communicator& group, size_t rank) {
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{600'001}}) {  // more than a slot
      std::vector<float> mine(count, static_cast<float>(rank + 1)), result(count);
      group.AllReduce(mine.data(), result.data(), count, FLOAT32, SUM);
      CHECK_EQUAL(result.front() + result.back(), 12.0f);
      group.AllReduce(mine.data(), result.data(), count, FLOAT32, AVG);
      CHECK_EQUAL(result.back(), 2.0f);
      group.AllReduce(mine.data(), result.data(), count, FLOAT32, PRODUCT);
      CHECK_EQUAL(result.back(), 6.0f);
      group.AllReduce(mine.data(), mine.data(), count, FLOAT32, MAX);  // in place
      CHECK_EQUAL(mine.front(), 3.0f);
    }
    std::vector<int64_t> whole(5, static_cast<int64_t>(rank) - 1), least(5);
    group.AllReduce(whole.data(), least.data(), 5, INT64, MIN);
    CHECK_EQUAL(least[4], -1);
    std::vector<softipu::Float16> half(5, softipu::Float16(0.5f)), sum(5);
    group.AllReduce(half.data(), sum.data(), 5, FLOAT16, SUM);
    CHECK_EQUAL(static_cast<float>(sum[4]), 1.5f);
  });
  CHECK_EQUAL(failed, 0);
}

TEST("data is broadcast, gathered, reduced and scattered") {
  const int failed = AsRanks(3, [](Communicator& group, size_t rank) {
    const size_t count = 400'000;
    std::vector<int32_t> data(count, rank == 1 ? 7 : 0);
    group.Broadcast(data.data(), count * 4, 1);
    CHECK_EQUAL(data[count - 1], 7);
    std::vector<int32_t> mine(count, static_cast<int32_t>(rank)), all(3 * count);
    group.AllGather(mine.data(), all.data(), count * 4);
    CHECK_EQUAL(all[count - 1] + 10 * all[count] + 100 * all[3 * count - 1], 210);
    std::vector<int32_t> sum(count, -1);
    group.Reduce(mine.data(), sum.data(), count, INT32, SUM, 2);
    CHECK_EQUAL(sum[0], rank == 2 ? 3 : -1);
    group.ReduceScatter(all.data(), sum.data(), count, INT32, SUM);
    CHECK_EQUAL(sum[count - 1], static_cast<int32_t>(3 * rank));
  });
  CHECK_EQUAL(failed, 0);
}

TEST("ranks send to each other at once, and messages keep their order") {
  const int failed = AsRanks(2, [](Communicator& group, size_t rank) {
    std::vector<int> first(100'000, static_cast<int>(rank)), second(10, 5), got(100'000), more(10);
    const size_t peer = 1 - rank;
    std::vector<Communicator::Message> messages = {
        {&group, peer, true, reinterpret_cast<char*>(first.data()), first.size() * 4},
        {&group, peer, true, reinterpret_cast<char*>(second.data()), second.size() * 4},
        {&group, peer, false, reinterpret_cast<char*>(got.data()), got.size() * 4},
        {&group, peer, false, reinterpret_cast<char*>(more.data()), more.size() * 4}};
    Communicator::Exchange(&messages);
    CHECK_EQUAL(got.back(), static_cast<int>(peer));
    CHECK_EQUAL(more.back(), 5);
  });
  CHECK_EQUAL(failed, 0);
}

TEST("every rank gives every other its own part, of any length") {
  const int failed = AsRanks(3, [](Communicator& group, size_t rank) {
    std::vector<std::vector<int>> given(3), taken(3);
    std::vector<const void*> from;
    std::vector<void*> to;
    std::vector<size_t> from_bytes, to_bytes;
    for (size_t peer = 0; peer < 3; ++peer) {
      given[peer].assign(10'000 * peer + 1, static_cast<int>(rank * 10 + peer));
      taken[peer].assign(10'000 * rank + 1, -1);
      from.push_back(given[peer].data());
      to.push_back(taken[peer].data());
      from_bytes.push_back(given[peer].size() * 4);
      to_bytes.push_back(taken[peer].size() * 4);
    }
    group.AllToAll(from, from_bytes, to, to_bytes);
    for (size_t peer = 0; peer < 3; ++peer) {
      CHECK_EQUAL(taken[peer].back(), static_cast<int>(peer * 10 + rank));
    }
  });
  CHECK_EQUAL(failed, 0);
}

TEST("a rank that dies does not leave the others waiting") {
  const int failed = AsRanks(2, [](Communicator& group, size_t rank) {
    if (rank == 1) raise(SIGKILL);
    float number = 1;
    group.AllReduce(&number, &number, 1, FLOAT32, SUM);
  });
  CHECK_EQUAL(failed, 2);
}

TEST("a rank that dies before it joins does not leave the others waiting, nor memory behind") {
  setenv("SOFTIPU_INSTANCES_TIMEOUT", "0.3", 1);
  const std::string name = softipu::NewGroupName();
  const std::string said = check::ThrownBy([&] { Communicator group(name, 3, 1); });
  unsetenv("SOFTIPU_INSTANCES_TIMEOUT");
  CHECK_CONTAINS(said, "SIPU-4214: Of 3 ranks, these did not join within 0.3 seconds: 0, 2.");
  CHECK_EQUAL(shm_open(name.c_str(), O_RDWR, 0600), -1);
  CHECK_EQUAL(errno, ENOENT);
}

TEST("Paddle's interface joins, sums, exchanges and leaves") {
  C_DeviceInterface interface{};
  softipu::FillCollectives(&interface);
  size_t size = 0;
  interface.xccl_get_unique_id_size(&size);
  std::vector<char> room(size);
  C_CCLRootId id{size, room.data()};
  CHECK_EQUAL(interface.xccl_get_unique_id(&id), C_SUCCESS);
  C_CCLComm comm = nullptr;
  CHECK_EQUAL(interface.xccl_comm_init_rank(1, &id, 0, &comm), C_SUCCESS);
  float number = 3, sum = 0;
  interface.xccl_all_reduce(&number, &sum, 1, FLOAT32, SUM, comm, nullptr);
  CHECK_EQUAL(sum, 3.0f);
  float given[] = {1, 2}, taken[] = {0, 0};
  const void* from = given;
  void* to = taken;
  const size_t count = 2;
  const C_DataType type = FLOAT32;
  interface.xccl_all_to_all(&from, &count, &type, &to, &count, &type, 0, 1, comm, nullptr);
  CHECK_EQUAL(taken[0] + 10 * taken[1], 21.0f);
  CHECK_CONTAINS(check::ThrownBy([&] {
                   interface.xccl_all_reduce(&number, &sum, 1, COMPLEX64, SUM, comm, nullptr);
                 }),
                 "SIPU-4214");
  interface.xccl_destroy_comm(comm);
  CHECK_CONTAINS(check::ThrownBy([&] { interface.xccl_comm_init_rank(2, &id, 2, &comm); }),
                 "Rank 2 of 2 cannot be");
}
