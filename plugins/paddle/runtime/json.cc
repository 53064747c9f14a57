#include "json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace softipu {

namespace {

constexpr int kDeepest = 32;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (code < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", code);
      quoted += escape;
    } else {
      quoted += letter;
    }
  }
  return quoted + "\"";
}

void AppendUtf8(std::string* to, unsigned code) {
  if (code < 0x80) {
    *to += static_cast<char>(code);
  } else if (code < 0x800) {
    *to += static_cast<char>(0xc0 | (code >> 6));
    *to += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *to += static_cast<char>(0xe0 | (code >> 12));
    *to += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    *to += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    *to += static_cast<char>(0xf0 | (code >> 18));
    *to += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    *to += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    *to += static_cast<char>(0x80 | (code & 0x3f));
  }
}

}  // namespace

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  bool ReadWhole(Json* value) {
    if (!Read(value, 0)) return false;
    SkipSpace();
    return at_ == text_.size();
  }

 private:
  bool Read(Json* value, int depth) {
    if (depth > kDeepest) return false;
    SkipSpace();
    if (at_ >= text_.size()) return false;
    switch (text_[at_]) {
      case '{':
        return ReadObject(value, depth);
      case '[':
        return ReadList(value, depth);
      case '"':
        value->kind_ = Json::Kind::kText;
        return ReadText(&value->text_);
      case 't':
        return ReadBool(value, "true", true);
      case 'f':
        return ReadBool(value, "false", false);
      case 'n':
        return Skip("null");
      default:
        return ReadNumber(value);
    }
  }

  bool ReadObject(Json* value, int depth) {
    value->kind_ = Json::Kind::kObject;
    ++at_;
    if (SkipSpaceAnd('}')) return true;
    do {
      SkipSpace();
      std::pair<std::string, Json> member;
      if (!ReadText(&member.first) || !SkipSpaceAnd(':')) return false;
      if (!Read(&member.second, depth + 1)) return false;
      value->members_.push_back(std::move(member));
    } while (SkipSpaceAnd(','));
    return SkipSpaceAnd('}');
  }

  bool ReadList(Json* value, int depth) {
    value->kind_ = Json::Kind::kList;
    ++at_;
    if (SkipSpaceAnd(']')) return true;
    do {
      value->items_.emplace_back();
      if (!Read(&value->items_.back(), depth + 1)) return false;
    } while (SkipSpaceAnd(','));
    return SkipSpaceAnd(']');
  }

  bool ReadBool(Json* value, const char* word, bool meaning) {
    value->kind_ = Json::Kind::kBool;
    value->boolean_ = meaning;
    return Skip(word);
  }

  bool ReadNumber(Json* value) {
    const size_t start = at_;
    if (Peek() == '-') ++at_;
    if (!IsDigit(Peek())) return false;
    const bool leading_zero = Peek() == '0';
    const size_t digits = at_;
    while (IsDigit(Peek())) ++at_;
    if (leading_zero && at_ - digits > 1) return false;
    bool whole = true;
    if (Peek() == '.') {
      whole = false;
      ++at_;
      if (!IsDigit(Peek())) return false;
      while (IsDigit(Peek())) ++at_;
    }
    if (Peek() == 'e' || Peek() == 'E') {
      whole = false;
      ++at_;
      if (Peek() == '+' || Peek() == '-') ++at_;
      if (!IsDigit(Peek())) return false;
      while (IsDigit(Peek())) ++at_;
    }
    const std::string number = text_.substr(start, at_ - start);
    value->number_ = std::strtod(number.c_str(), nullptr);
    value->kind_ = Json::Kind::kNumber;
    if (whole && number.size() <= 18) {  // longer ones could overflow, and nothing of ours is
      value->kind_ = Json::Kind::kInteger;
      value->integer_ = std::strtoll(number.c_str(), nullptr, 10);
    }
    return true;
  }

  bool ReadText(std::string* text) {
    if (Peek() != '"') return false;
    ++at_;
    while (at_ < text_.size()) {
      const char letter = text_[at_++];
      if (letter == '"') return true;
      if (static_cast<unsigned char>(letter) < 0x20) return false;
      if (letter != '\\') {
        *text += letter;
      } else if (!ReadEscape(text)) {
        return false;
      }
    }
    return false;
  }

  bool ReadEscape(std::string* text) {
    static const std::string kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ >= text_.size()) return false;
    const char letter = text_[at_++];
    const size_t place = kLetters.find(letter);
    if (place != std::string::npos) {
      *text += kMeanings[place];
      return true;
    }
    unsigned code = 0;
    if (letter != 'u' || !ReadHex(&code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {  // first half of a pair
      unsigned low = 0;
      if (!Skip("\\u") || !ReadHex(&low) || low < 0xdc00 || low > 0xdfff) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendUtf8(text, code);
    return true;
  }

  bool ReadHex(unsigned* code) {
    if (at_ + 4 > text_.size()) return false;
    for (int digit = 0; digit < 4; ++digit) {
      const char letter = text_[at_++];
      static const std::string kDigits = "0123456789abcdef";
      const size_t value = kDigits.find(static_cast<char>(std::tolower(letter)));
      if (value == std::string::npos) return false;
      *code = *code * 16 + static_cast<unsigned>(value);
    }
    return true;
  }

  static bool IsDigit(char letter) { return letter >= '0' && letter <= '9'; }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' ||
                                  text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool SkipSpaceAnd(char letter) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }

  bool Skip(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  const std::string& text_;
  size_t at_ = 0;
};

std::optional<Json> Json::Parse(const std::string& text) {
  Json value;
  if (!JsonReader(text).ReadWhole(&value)) return std::nullopt;
  return value;
}

const Json* Json::Find(const std::string& name) const {
  const Json* found = nullptr;
  for (const auto& member : members_) {
    if (member.first == name) found = &member.second;
  }
  return found;
}

std::optional<int64_t> Json::Integer(const std::string& name) const {
  const Json* found = Find(name);
  if (found == nullptr || !found->is(Kind::kInteger)) return std::nullopt;
  return found->integer_;
}

std::optional<double> Json::Number(const std::string& name) const {
  const Json* found = Find(name);
  if (found == nullptr || !(found->is(Kind::kInteger) || found->is(Kind::kNumber))) {
    return std::nullopt;
  }
  return found->number_;
}

std::optional<std::string> Json::Text(const std::string& name) const {
  const Json* found = Find(name);
  if (found == nullptr || !found->is(Kind::kText)) return std::nullopt;
  return found->text_;
}

JsonObject& JsonObject::Raw(const std::string& name, const std::string& value) {
  if (!body_.empty()) body_ += ", ";
  body_ += Quoted(name) + ": " + value;
  return *this;
}

JsonObject& JsonObject::Add(const std::string& name, int64_t value) {
  return Raw(name, std::to_string(value));
}

JsonObject& JsonObject::Add(const std::string& name, uint64_t value) {
  return Raw(name, std::to_string(value));
}

JsonObject& JsonObject::Add(const std::string& name, double value) {
  char number[40];
  std::snprintf(number, sizeof number, "%.17g", std::isfinite(value) ? value : 0.0);
  return Raw(name, number);
}

JsonObject& JsonObject::Add(const std::string& name, bool value) {
  return Raw(name, value ? "true" : "false");
}

JsonObject& JsonObject::Add(const std::string& name, const std::string& value) {
  return Raw(name, Quoted(value));
}

JsonObject& JsonObject::Add(const std::string& name, const std::vector<int>& values) {
  std::string list;
  for (const int value : values) list += (list.empty() ? "" : ", ") + std::to_string(value);
  return Raw(name, "[" + list + "]");
}

}  // namespace softipu
