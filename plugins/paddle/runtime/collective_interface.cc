// Paddle's C interface of collective operations (it calls them XCCL), filled with ours.
#include <cstring>

#include "collectives.h"
#include "interface.h"
#include "reduce.h"
#include "telling.h"

struct C_CCLComm_st {
  softipu::Communicator communicator;
};

namespace softipu {

namespace {

using Message = Communicator::Message;

// Messages between group_start and group_end are moved together, as peers may send to each other.
thread_local int group_depth = 0;
thread_local std::vector<Message> grouped;

Communicator& Of(C_CCLComm comm) { return comm->communicator; }

size_t SizeFor(C_DataType type) {
  const size_t size = SizeOf(type);
  if (size == 0) throw Error(kCollective, "Collective operations have no such type of numbers.");
  return size;
}

C_Status GroupName(C_CCLComm comm, char* name) {
  std::strcpy(name, Of(comm).name().c_str());
  return C_SUCCESS;
}

C_Status IdSize(size_t* size) {
  *size = kGroupNameSize;
  return C_SUCCESS;
}

C_Status NewId(C_CCLRootId* id) {
  return Telling([&] {
    const std::string name = NewGroupName();
    std::memset(id->data, 0, id->sz);
    std::memcpy(id->data, name.c_str(), name.size());
  });
}

C_Status Join(size_t ranks, C_CCLRootId* id, size_t rank, C_CCLComm* comm) {
  return Telling([&] {
    const auto* name = static_cast<const char*>(id->data);
    *comm = new C_CCLComm_st{{std::string(name, strnlen(name, id->sz)), ranks, rank}};
  });
}

C_Status Leave(C_CCLComm comm) {
  delete comm;
  return C_SUCCESS;
}

C_Status AllReduce(void* from, void* to, size_t count, C_DataType type, C_CCLReduceOp op,
                   C_CCLComm comm, C_Stream) {
  return Telling([&] {
    SizeFor(type);
    Of(comm).AllReduce(from, to, count, type, op);
  });
}

C_Status Broadcast(void* data, size_t count, C_DataType type, size_t root, C_CCLComm comm,
                   C_Stream) {
  return Telling([&] { Of(comm).Broadcast(data, count * SizeFor(type), root); });
}

C_Status Reduce(void* from, void* to, size_t count, C_DataType type, C_CCLReduceOp op, size_t root,
                C_CCLComm comm, C_Stream) {
  return Telling([&] {
    SizeFor(type);
    Of(comm).Reduce(from, to, count, type, op, root);
  });
}

C_Status AllGather(void* from, void* to, size_t count, C_DataType type, C_CCLComm comm, C_Stream) {
  return Telling([&] { Of(comm).AllGather(from, to, count * SizeFor(type)); });
}

C_Status ReduceScatter(void* from, void* to, size_t count, C_DataType type, C_CCLReduceOp op,
                       C_CCLComm comm, C_Stream) {
  return Telling([&] {
    SizeFor(type);
    Of(comm).ReduceScatter(from, to, count, type, op);
  });
}

void MoveUnlessGrouped() {
  if (group_depth > 0) return;
  std::vector<Message> messages;
  messages.swap(grouped);
  Communicator::Exchange(&messages);
}

C_Status GroupStart() {
  ++group_depth;
  return C_SUCCESS;
}

C_Status GroupEnd() {
  --group_depth;
  return Telling(MoveUnlessGrouped);
}

C_Status Send(void* data, size_t count, C_DataType type, size_t peer, C_CCLComm comm, C_Stream) {
  return Telling([&] {
    grouped.push_back({&Of(comm), peer, true, static_cast<char*>(data), count * SizeFor(type)});
    MoveUnlessGrouped();
  });
}

C_Status Receive(void* data, size_t count, C_DataType type, size_t peer, C_CCLComm comm, C_Stream) {
  return Telling([&] {
    grouped.push_back({&Of(comm), peer, false, static_cast<char*>(data), count * SizeFor(type)});
    MoveUnlessGrouped();
  });
}

C_Status AllToAll(const void** from, const size_t* from_count, const C_DataType* from_type,
                  void** to, const size_t* to_count, const C_DataType* to_type, size_t,
                  size_t ranks, C_CCLComm comm, C_Stream) {
  return Telling([&] {
    std::vector<size_t> from_bytes, to_bytes;
    for (size_t rank = 0; rank < ranks; ++rank) {
      from_bytes.push_back(from_count[rank] * SizeFor(from_type[rank]));
      to_bytes.push_back(to_count[rank] * SizeFor(to_type[rank]));
    }
    // In parentheses: braces would make lists of the two pointers, as they are void pointers too.
    const std::vector<const void*> sources(from, from + ranks);
    const std::vector<void*> targets(to, to + ranks);
    Of(comm).AllToAll(sources, from_bytes, targets, to_bytes);
  });
}

}  // namespace

void FillCollectives(C_DeviceInterface* interface) {
  interface->xccl_get_comm_name = GroupName;
  interface->xccl_get_unique_id_size = IdSize;
  interface->xccl_get_unique_id = NewId;
  interface->xccl_comm_init_rank = Join;
  interface->xccl_destroy_comm = Leave;
  interface->xccl_all_reduce = AllReduce;
  interface->xccl_broadcast = Broadcast;
  interface->xccl_reduce = Reduce;
  interface->xccl_all_gather = AllGather;
  interface->xccl_reduce_scatter = ReduceScatter;
  interface->xccl_group_start = GroupStart;
  interface->xccl_group_end = GroupEnd;
  interface->xccl_send = Send;
  interface->xccl_recv = Receive;
  interface->xccl_all_to_all = AllToAll;
}

}  // namespace softipu
