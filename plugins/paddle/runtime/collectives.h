// Collective operations between the processes of one host, through shared memory. All ranks of a
// communicator call the same operations in the same order; each returns when its part is done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "paddle/phi/backends/device_ext.h"

namespace softipu {

constexpr size_t kGroupNameSize = 64;

// A name for a new communicator, which one rank makes and tells the others.
std::string NewGroupName();

class Communicator {
 public:
  // Waits for all ranks. An Error if one of them dies, here and in every operation, or does not
  // come in SOFTIPU_INSTANCES_TIMEOUT seconds.
  Communicator(const std::string& name, size_t ranks, size_t rank);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }

  void AllReduce(const void* from, void* to, size_t count, C_DataType type, C_CCLReduceOp op);
  void Reduce(const void* from, void* to, size_t count, C_DataType type, C_CCLReduceOp op,
              size_t root);
  // Every rank gives `ranks * count` numbers and gets the sum of its own `count`.
  void ReduceScatter(const void* from, void* to, size_t count, C_DataType type, C_CCLReduceOp op);
  void Broadcast(void* data, size_t bytes, size_t root);
  void AllGather(const void* from, void* to, size_t bytes);
  void AllToAll(const std::vector<const void*>& from, const std::vector<size_t>& from_bytes,
                const std::vector<void*>& to, const std::vector<size_t>& to_bytes);

  // One message to or from a peer. Step moves what can be moved now; true once all has been.
  struct Message {
    Communicator* communicator;
    size_t peer;
    bool sending;
    char* data;
    size_t bytes;
    size_t done = 0;
    bool Step();
  };
  // Moves messages in both directions until all are done.
  static void Exchange(std::vector<Message>* messages);

 private:
  struct Shared;
  struct Mailbox;
  char* Slot(size_t rank) const;
  Mailbox* Box(size_t from, size_t to) const;
  void Join(double seconds);
  void Barrier(const std::function<void()>& look = nullptr);
  void DemandAllAlive() const;
  // Runs over `bytes` in parts that fit the slots: put, wait, take, wait.
  void InParts(size_t bytes, const std::function<void(size_t at, size_t size)>& put,
               const std::function<void(size_t at, size_t size)>& take);
  void ReduceInto(void* to, size_t at, size_t size, C_DataType type, C_CCLReduceOp op) const;

  std::string name_;
  size_t ranks_, rank_;
  size_t bytes_ = 0;
  Shared* shared_ = nullptr;
};

}  // namespace softipu
