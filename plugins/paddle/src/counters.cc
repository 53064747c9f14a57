#include "counters.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

namespace softipu {
namespace {

struct Book {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<OpCounter>> counters;
  std::map<std::string, std::string> without_kernel;
};

Book& TheBook() {
  static Book* book = new Book;  // kernels may run until the very end of the process
  return *book;
}

}  // namespace

OpCounter* CounterOf(const std::string& op) {
  Book& book = TheBook();
  std::lock_guard<std::mutex> lock(book.mutex);
  auto& counter = book.counters[op];
  if (!counter) counter = std::make_unique<OpCounter>();
  return counter.get();
}

void NoteWithoutKernel(const std::string& op, const std::string& why) {
  Book& book = TheBook();
  std::lock_guard<std::mutex> lock(book.mutex);
  book.without_kernel[op] = why;
}

std::string CounterTable() {
  Book& book = TheBook();
  std::lock_guard<std::mutex> lock(book.mutex);
  std::string text = "softipu: ops that ran on ipu\n";
  char line[256];
  std::snprintf(line, sizeof line, "%-44s%12s%12s%12s%12s\n", "op", "native", "wrapped", "cast",
                "ms");
  text += line;
  for (auto& entry : book.counters) {
    const OpCounter& counter = *entry.second;
    if (counter.native + counter.wrapped == 0) continue;
    std::snprintf(line, sizeof line, "%-44s%12" PRIu64 "%12" PRIu64 "%12" PRIu64 "%12.1f\n",
                  entry.first.c_str(), counter.native.load(), counter.wrapped.load(),
                  counter.cast.load(), counter.nanoseconds.load() / 1e6);
    text += line;
  }
  text += "ops without a kernel for ipu; where a program has one, Paddle runs it on the cpu:\n";
  for (auto& entry : book.without_kernel) text += "  " + entry.first + ": " + entry.second + "\n";
  return text;
}

std::string CounterLines() {
  Book& book = TheBook();
  std::lock_guard<std::mutex> lock(book.mutex);
  std::string text;
  for (auto& entry : book.counters) {
    text += entry.first;
    for (auto* count : {&entry.second->native, &entry.second->wrapped, &entry.second->cast})
      text += " " + std::to_string(count->load());
    text += "\n";
  }
  return text;
}

void PrintTableAtExit() {
  std::atexit([] { std::fputs(CounterTable().c_str(), stderr); });
}

}  // namespace softipu
