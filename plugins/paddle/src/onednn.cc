#include "onednn.h"

#ifdef SOFTIPU_WITH_ONEDNN

#include <cstdlib>
#include <new>

#include "paddle/phi/core/enforce.h"

namespace softipu::onednn {
namespace {

constexpr size_t kMostOperations = 1024;
constexpr size_t kAlignment = 64;
constexpr size_t kPieces = 8;
constexpr size_t kWorkspace = kPieces - 1;  // slot of what a primitive works in

// Paddle passes its own errors on to Python; an unknown one would end the process.
[[noreturn]] void Throw(const dnnl::error& error) {
  PADDLE_THROW(common::errors::External("SIPU-4202: oneDNN failed: %s (status %d). "
                                        "SOFTIPU_PADDLE_ONEDNN=0 does without it.",
                                        error.what(), static_cast<int>(error.status)));
}

struct Piece {
  void* data = nullptr;
  size_t bytes = 0;
  ~Piece() { std::free(data); }
};

}  // namespace

// By the C interface: dnnl.hpp of later versions calls functions that Paddle's library lacks.
dnnl::memory MemoryOn(const dnnl::memory::desc& description, void* data) {
  dnnl_memory_t memory;
  const auto status = dnnl_memory_create(&memory, description.get(), Engine().get(), data);
  dnnl::error::wrap_c_api(status, "could not create a memory object");
  return dnnl::memory(memory);
}

const dnnl::engine& Engine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& Stream() {
  static thread_local dnnl::stream stream(Engine());
  return stream;
}

void* Scratch(size_t slot, size_t bytes) {
  static thread_local Piece pieces[kPieces];
  Piece& piece = pieces[slot];
  if (piece.bytes < bytes) {
    std::free(piece.data);
    piece.bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    piece.data = std::aligned_alloc(kAlignment, piece.bytes);
    if (!piece.data) {
      piece.bytes = 0;
      throw std::bad_alloc();
    }
  }
  return piece.data;
}

dnnl::primitive_attr OwnWorkspace() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

size_t KeyHash::operator()(const Key& key) const {
  uint64_t hash = 1469598103934665603ull;  // FNV-1a
  for (auto value : key) hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211ull;
  return hash;
}

namespace {

dnnl::memory Workspace(const dnnl::memory::desc& description) {
  return MemoryOn(description, Scratch(kWorkspace, dnnl_memory_desc_get_size(description.get())));
}

}  // namespace

Operand::Operand(int argument, const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
                 bool is_result)
    : argument_(argument),
      is_result_(is_result),
      same_layout_(plain == wanted),
      plain_(plain),
      wanted_(wanted) {
  if (same_layout_) return;
  const auto& from = is_result ? wanted : plain;
  const auto& to = is_result ? plain : wanted;
  const dnnl::reorder::primitive_desc reorder(Engine(), from, Engine(), to, OwnWorkspace());
  workspace_ = reorder.scratchpad_desc();
  reorder_ = dnnl::reorder(reorder);
}

void Operand::Reorder(const dnnl::memory& from, const dnnl::memory& to) const {
  reorder_.dnnl::primitive::execute(
      Stream(),
      {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, Workspace(workspace_)}});
}

dnnl::memory Operand::Bind(void* data, size_t slot, bool is_ready) const {
  if (same_layout_) return MemoryOn(plain_, data);
  auto bound = MemoryOn(wanted_, Scratch(slot, dnnl_memory_desc_get_size(wanted_.get())));
  if (!is_result_ && !is_ready) Reorder(MemoryOn(plain_, data), bound);
  return bound;
}

void Operand::Deliver(const dnnl::memory& bound, void* data) const {
  if (!same_layout_) Reorder(bound, MemoryOn(plain_, data));
}

void Operation::Run(const std::vector<void*>& data, int ready) const try {
  std::unordered_map<int, dnnl::memory> bound;
  for (size_t i = 0; i < operands.size(); ++i)
    bound.emplace(operands[i].argument(),
                  operands[i].Bind(data[i], i, static_cast<int>(i) == ready));
  bound.emplace(DNNL_ARG_SCRATCHPAD, Workspace(workspace));
  primitive.execute(Stream(), bound);
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].is_result()) operands[i].Deliver(bound.at(operands[i].argument()), data[i]);
  Stream().wait();
} catch (const dnnl::error& error) {
  Throw(error);
}

std::shared_ptr<const Operation> OperationCache::Get(const Key& key, const Make& make) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = index_.find(key);
  if (found != index_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }
  std::shared_ptr<const Operation> operation;
  try {
    operation = std::make_shared<const Operation>(make());
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) Throw(error);
  }
  entries_.emplace_front(key, operation);
  index_[key] = entries_.begin();
  if (entries_.size() > kMostOperations) {
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
  return operation;
}

OperationCache& Cache() {
  static auto* cache = new OperationCache;
  return *cache;
}

}  // namespace softipu::onednn

#endif  // SOFTIPU_WITH_ONEDNN
