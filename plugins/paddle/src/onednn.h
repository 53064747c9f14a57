// Little helpers around the oneDNN library that Paddle's wheel contains.
#pragma once

#ifdef SOFTIPU_WITH_ONEDNN

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

namespace softipu::onednn {

const dnnl::engine& Engine();
dnnl::stream& Stream();  // of this thread

dnnl::memory MemoryOn(const dnnl::memory::desc& description, void* data);

// Memory of this thread for a primitive's own layouts, one piece per slot; kept for the next call.
// Fresh memory for each call would cost more in page faults than most primitives cost.
void* Scratch(size_t slot, size_t bytes);

// Primitives made so take their working memory from the thread that runs them. oneDNN's own would
// belong to the primitive, and two threads that run it would spoil each other's results.
dnnl::primitive_attr OwnWorkspace();

using Key = std::vector<int64_t>;

struct KeyHash {
  size_t operator()(const Key& key) const;
};

// One operand of a primitive: as Paddle has it, and as the primitive wants it.
class Operand {
 public:
  Operand() = default;
  Operand(int argument, const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
          bool is_result);

  // Memory to give to the primitive; for an argument, with its values in the wanted layout.
  // `is_ready`: the slot has them already.
  dnnl::memory Bind(void* data, size_t slot, bool is_ready) const;
  // For a result: puts the values where Paddle wants them.
  void Deliver(const dnnl::memory& bound, void* data) const;

  bool HasLayoutsOf(const Operand& other) const {
    return plain_ == other.plain_ && wanted_ == other.wanted_;
  }
  int argument() const { return argument_; }
  bool is_result() const { return is_result_; }

 private:
  void Reorder(const dnnl::memory& from, const dnnl::memory& to) const;

  int argument_ = 0;
  bool is_result_ = false;
  bool same_layout_ = true;
  dnnl::memory::desc plain_, wanted_, workspace_;
  dnnl::reorder reorder_;
};

// A primitive with its operands, ready to run on Paddle's memory.
struct Operation {
  dnnl::primitive primitive;
  dnnl::memory::desc workspace;
  std::vector<Operand> operands;

  // Operand `ready`, if any, is left from another operation of this thread that ran just before on
  // the same data with the same layouts, at the same index.
  void Run(const std::vector<void*>& data, int ready = -1) const;
};

// The most recently used operations by their parameters; null for what oneDNN can't do.
class OperationCache {
 public:
  using Make = std::function<Operation()>;
  std::shared_ptr<const Operation> Get(const Key& key, const Make& make);

 private:
  using Entry = std::pair<Key, std::shared_ptr<const Operation>>;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
};

OperationCache& Cache();

}  // namespace softipu::onednn

#endif  // SOFTIPU_WITH_ONEDNN
