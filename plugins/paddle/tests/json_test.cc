#include "json.h"

#include "check.h"

using softipu::Json;
using softipu::JsonObject;

TEST("JSON that is written can be read again") {
  const std::string text = JsonObject()
                               .Add("whole", 42)
                               .Add("number", 0.1)
                               .Add("yes", true)
                               .Add("text", "a \"quoted\" \\ word\n")
                               .Add("list", std::vector<int>{1, 2, 3})
                               .str();
  const auto value = Json::Parse(text);
  CHECK(value.has_value());
  CHECK_EQUAL(*value->Integer("whole"), 42);
  CHECK_EQUAL(*value->Number("number"), 0.1);
  CHECK_EQUAL(*value->Text("text"), "a \"quoted\" \\ word\n");
  CHECK(value->Find("yes")->boolean());
  CHECK_EQUAL(value->Find("list")->items().size(), 3u);
  CHECK(!value->Integer("text"));
  CHECK(!value->Text("missing"));
}

TEST("JSON escapes become UTF-8") {
  CHECK_EQUAL(Json::Parse("\"\\u00e9\\ud83d\\ude00\\t\"")->text(), "\xc3\xa9\xf0\x9f\x98\x80\t");
}

TEST("damaged JSON gives no value") {
  for (const char* text :
       {"", "{", "[1,", "{\"a\" 1}", "{\"a\":}", "[1 2]", "01", "1.", "-", "1e", "tru", "nul",
        "\"open", "\"\\x\"", "\"\\ud800x\"", "\"\\u12\"", "[1]]", "{\"a\":1,}", "\"\n\""}) {
    if (Json::Parse(text)) check::Fail(__FILE__, __LINE__, std::string("was read: ") + text);
  }
}

TEST("JSON nested without end is refused, not followed") {
  CHECK(!Json::Parse(std::string(100000, '[')));
  CHECK(Json::Parse("[[[[1]]]]"));
}

TEST("numbers too large for an integer are numbers") {
  const auto value = Json::Parse("[123456789012345678901234567890, 1e3, -5, 0]");
  CHECK(value->items()[0].is(Json::Kind::kNumber));
  CHECK(value->items()[1].is(Json::Kind::kNumber));
  CHECK_EQUAL(value->items()[2].integer(), -5);
  CHECK_EQUAL(value->items()[3].integer(), 0);
}
