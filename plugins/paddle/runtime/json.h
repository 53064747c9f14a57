// As much JSON as records, counters and IPUoF files need. Reading trusts nothing: what is not JSON
// gives no value, never a wrong one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace softipu {

class Json {
 public:
  enum class Kind { kNull, kBool, kInteger, kNumber, kText, kList, kObject };

  // The value of a whole text, or nothing if it is damaged or nested too deeply.
  static std::optional<Json> Parse(const std::string& text);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  const std::vector<Json>& items() const { return items_; }

  // The member of that name (the last one, as in Python), or null.
  const Json* Find(const std::string& name) const;
  // Members of the wanted type; nothing where they are missing or of another type.
  std::optional<int64_t> Integer(const std::string& name) const;
  std::optional<double> Number(const std::string& name) const;
  std::optional<std::string> Text(const std::string& name) const;

  bool boolean() const { return boolean_; }
  int64_t integer() const { return integer_; }
  const std::string& text() const { return text_; }
  const std::vector<std::pair<std::string, Json>>& members() const { return members_; }

 private:
  friend class JsonReader;
  Kind kind_ = Kind::kNull;
  bool boolean_ = false;
  int64_t integer_ = 0;
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::pair<std::string, Json>> members_;
};

// Builds one flat object, member by member, in the order of the calls.
class JsonObject {
 public:
  JsonObject& Add(const std::string& name, int64_t value);
  JsonObject& Add(const std::string& name, uint64_t value);
  JsonObject& Add(const std::string& name, int value) {
    return Add(name, static_cast<int64_t>(value));
  }
  JsonObject& Add(const std::string& name, double value);
  JsonObject& Add(const std::string& name, bool value);
  JsonObject& Add(const std::string& name, const std::string& value);
  JsonObject& Add(const std::string& name, const char* value) {
    return Add(name, std::string(value));
  }
  JsonObject& Add(const std::string& name, const std::vector<int>& values);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  JsonObject& Raw(const std::string& name, const std::string& value);
  std::string body_;
};

}  // namespace softipu
