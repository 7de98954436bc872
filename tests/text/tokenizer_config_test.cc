// The files beside a tokenizer, and the bounds on their values.
#include "text/tokenizer_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "minisgl/text/chat_template.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

constexpr TokenId kIdsMax = 10;

Result<TokenizerConfig> Loaded(const std::string& file, const std::string& bytes) {
  const ModelDir dir;
  dir.Write(file, bytes);
  return TokenizerConfig::Load(dir.path(), kIdsMax);
}

// Each file of a tokenizer, and a template, for which any text would be valid.
TEST(TokenizerConfigTest, SaysWhatADownloadLeftInPlaceOfAFile) {
  for (const char* name : {"tokenizer.model", "tokenizer.json", "tekken.json",
                           "tokenizer_config.json", "chat_template.jinja"}) {
    const ModelDir dir;
    dir.Write("tokenizer.model", ReadBytes(kWrenDir + "/tokenizer.model"));
    if (std::string(name) == "tekken.json")
      std::filesystem::remove(dir.path() + "/tokenizer.model");
    dir.Write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\n");
    Status status = Tokenizer::Load(dir.path()).status();
    if (status.ok()) status = ChatTemplate::Load(dir.path()).status();
    EXPECT_TRUE(status.message().starts_with(dir.path() + "/" + name + ": is a git-lfs pointer"))
        << name << ": " << status.message();
  }
}

TEST(TokenizerConfigTest, IdsReachFromZeroToTheLast) {
  for (const int64_t id : {-1, 0, 1, 9, 10, 11}) {
    const std::string number = std::to_string(id);
    const bool fits = id >= 0 && id < kIdsMax;
    for (const auto& [file, bytes] :
         {std::pair{"tokenizer_config.json",
                    R"({"added_tokens_decoder": {")" + number + R"(": {"content": "<x>"}}})"},
          std::pair{"added_tokens.json", R"({"<x>": )" + number + "}"}}) {
      const Result<TokenizerConfig> config = Loaded(file, bytes);
      ASSERT_EQ(config.ok(), fits) << bytes;
      if (fits) {
        EXPECT_EQ(config->added.at(static_cast<TokenId>(id)).text, "<x>");
        EXPECT_EQ(config->added_ids.at("<x>"), id);
      } else {
        EXPECT_NE(
            config.status().message().find("\"<x>\" has id " + number + "; ids must be 0 to 9"),
            std::string::npos)
            << config.status().message();
      }
    }
  }
}

TEST(TokenizerConfigTest, ATextHasAtMost4096Bytes) {
  for (const size_t size : {size_t{4096}, size_t{4097}}) {
    const std::string text(size, 'x');
    for (const auto& [file, bytes] :
         {std::pair{"added_tokens.json", R"({")" + text + R"(": 3})"},
          std::pair{"tokenizer_config.json", R"({"bos_token": ")" + text + R"("})"},
          std::pair{"special_tokens_map.json", R"({"pad_token": {"content": ")" + text + R"("}})"},
          std::pair{"tokenizer_config.json",
                    R"({"added_tokens_decoder": {"3": {"content": ")" + text + R"("}}})"}}) {
      const Result<TokenizerConfig> config = Loaded(file, bytes);
      ASSERT_EQ(config.ok(), size == 4096) << file;
      if (size == 4096) continue;
      EXPECT_NE(config.status().message().find("4097 bytes"), std::string::npos)
          << config.status().message();
    }
  }
}

TEST(TokenizerConfigTest, ATextHasOneIdAndAnIdTheTextThatCameFirst) {
  const Result<TokenizerConfig> twice =
      Loaded("tokenizer_config.json",
             R"({"added_tokens_decoder": {"3": {"content": "<x>"}, "4": {"content": "<x>"}}})");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("\"<x>\" has two ids"), std::string::npos)
      << twice.status().message();

  const ModelDir dir;
  dir.Write("tokenizer_config.json",
            R"({"added_tokens_decoder": {"3": {"content": "<x>", "special": true}}})");
  dir.Write("added_tokens.json", R"({"<x>": 3, "<y>": 3})");
  const Result<TokenizerConfig> config = TokenizerConfig::Load(dir.path(), kIdsMax);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->added.at(3).text, "<x>");
  EXPECT_TRUE(config->added.at(3).special);
}

}  // namespace
}  // namespace minisgl::text
