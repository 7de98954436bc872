// Long rows are read only for their short members.
#include "batch/skim_json.h"

#include <gtest/gtest.h>

#include <string>

namespace minisgl::batch {
namespace {

TEST(SkimJsonTest, AShortTextIsReadWhole) {
  const std::string text = R"({"id": 1, "texts": ["a", {"b": null}]})";
  EXPECT_EQ(SkimJson(text)->Dump(), text);
  EXPECT_EQ(SkimJson("{\"a\": 1, \"a\": 2}").status().message(), "duplicate key \"a\"");
}

TEST(SkimJsonTest, ALongTextIsReadForItsShortMembers) {
  std::string ids = "[1";
  while (ids.size() < 2 * kWholeJsonBytes) ids += ", 1";
  ids += "]";
  const std::string text =
      R"({"id": "x", "index": 7, "token_ids": )" + ids + R"(, "response": {"body": {"choices": )" +
      ids + R"(, "error": null}, "status_code": 200}, "text": ")" +
      std::string(2 * kSkimmedStringBytes, 't') + R"(", "error": {"code": 1}})";
  const auto row = SkimJson(text);
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->Dump(), R"({"id": "x", "index": 7, "token_ids": null, "response": {"body": )"
                         R"({"choices": null, "error": null}, "status_code": 200}, "text": null, )"
                         R"("error": {"code": 1}})");
}

TEST(SkimJsonTest, FaultsAnywhereInALongTextAreErrors) {
  const std::string zeros(2 * kWholeJsonBytes, '0');
  for (const std::string& text :
       {"{\"a\": \"" + zeros, "{\"a\": \"" + zeros + "\"} x", "{\"a\": [" + zeros + "]}",
        "{\"a\": \"" + zeros + "\xFF\"}", "[\"" + zeros + "\", }", std::string(zeros)}) {
    const auto row = SkimJson(text);
    EXPECT_EQ(row.status().code(), StatusCode::kBadInput) << text.substr(0, 10);
  }
  EXPECT_TRUE(SkimJson("[\"" + zeros + "\"]")->is_null());
}

// Each value of two bytes would take forty in memory, and each member a hundred.
TEST(SkimJsonTest, MemoryIsBounded) {
  std::string text = R"({"id": 1)";
  for (int i = 0; i < 100'000; ++i) text += ",\"" + std::to_string(i) + "\":0";
  const auto row = SkimJson(text + "}");
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->Find("id")->as_int(), 1);
  EXPECT_LT(row->as_object().size(), size_t{40'000});
}

}  // namespace
}  // namespace minisgl::batch
