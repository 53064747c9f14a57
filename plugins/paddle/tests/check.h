// The smallest test runner that will do: TEST("sentence") { CHECK(...); } and a main in main.cc.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace check {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Test {
  const char* name;
  std::function<void()> body;
};

inline std::vector<Test>& All() {
  static std::vector<Test> tests;
  return tests;
}

struct Registered {
  Registered(const char* name, std::function<void()> body) { All().push_back({name, body}); }
};

[[noreturn]] inline void Fail(const char* file, int line, const std::string& what) {
  std::ostringstream text;
  text << file << ":" << line << ": " << what;
  throw Failure(text.str());
}

// The text of the exception that `deed` throws; a failure if it throws none.
std::string ThrownBy(const std::function<void()>& deed);

// Every test has an empty SOFTIPU_HOME and HOME of its own, under this directory.
const std::string& Folder();

void WriteFile(const std::string& path, const std::string& text);
std::string ReadFile(const std::string& path);
bool Exists(const std::string& path);

// Runs `deed` in a forked child and returns its exit status; what it throws is status 99.
int InChild(const std::function<int()>& deed);

}  // namespace check

#define CHECK_JOIN2(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN2(a, b)
#define TEST(name)                                                                       \
  static void CHECK_JOIN(Test, __LINE__)();                                              \
  static const check::Registered CHECK_JOIN(registered, __LINE__)(name,                  \
                                                                  CHECK_JOIN(Test, __LINE__)); \
  static void CHECK_JOIN(Test, __LINE__)()

#define CHECK(condition) \
  if (!(condition)) check::Fail(__FILE__, __LINE__, #condition)

#define CHECK_EQUAL(left, right)                                                    \
  do {                                                                              \
    const auto l = (left);                                                          \
    const auto r = (right);                                                         \
    if (!(l == r)) {                                                                \
      std::ostringstream text;                                                      \
      text << #left " is " << l << ", not " << r;                                   \
      check::Fail(__FILE__, __LINE__, text.str());                                  \
    }                                                                               \
  } while (false)

#define CHECK_CONTAINS(text, part)                                                        \
  do {                                                                                    \
    const std::string whole = (text);                                                     \
    if (whole.find(part) == std::string::npos)                                            \
      check::Fail(__FILE__, __LINE__, "not found: " + std::string(part) + "\nin: " + whole); \
  } while (false)
