// tekken.json: special tokens and damaged files. real_tokenizers_test.cc compares ids with the
// reference.
#include "text/tekken.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "minisgl/base/base64.h"
#include "text/rank_file.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

const std::string kTekkenDir = MINISGL_SOURCE_DIR "/tests/text/tokenizers/tekken";

Json Token(int64_t rank, std::string_view bytes) {
  Json token;
  token.Set("rank", rank);
  token.Set("token_bytes", EncodeBase64(bytes));
  token.Set("token_str", Json());
  return token;
}

Json Special(int64_t rank, const char* text) {
  Json token;
  token.Set("rank", rank);
  token.Set("token_str", text);
  token.Set("is_control", true);
  return token;
}

// A file with the bytes, "ab" (256), "abc" (257) and "bc" (258); special tokens <unk>, <s>, </s>
// and one without a name.
Json GoodFile() {
  Json config, special(Json::Array{}), vocab(Json::Array{}), file;
  config.Set("pattern", "\\p{L}+|\\s+|[^\\p{L}\\s]+");
  config.Set("num_vocab_tokens", 259);
  config.Set("default_vocab_size", 263);
  config.Set("default_num_special_tokens", 4);
  config.Set("version", "v11");
  special.Append(Special(0, "<unk>"));
  special.Append(Special(2, "</s>"));
  special.Append(Special(1, "<s>"));
  for (int byte = 0; byte < 256; ++byte) {
    vocab.Append(Token(byte, std::string(1, static_cast<char>(byte))));
  }
  vocab.Append(Token(256, "ab"));
  vocab.Append(Token(257, "abc"));
  vocab.Append(Token(258, "bc"));
  file.Set("config", config);
  file.Set("vocab", vocab);
  file.Set("special_tokens", special);
  return file;
}

// Returns the member `key` of `json` for modification.
Json* At(Json* json, std::string_view key) {
  for (auto& [name, value] : json->as_object()) {
    if (name == key) return &value;
  }
  ADD_FAILURE() << key;
  return json;
}

void SetRank(Json* file, size_t rank, const char* key, Json value) {
  At(file, "vocab")->as_array()[rank].Set(key, std::move(value));
}

Result<std::unique_ptr<Tokenizer>> LoadBytes(const std::string& bytes) {
  const ModelDir dir;
  dir.Write("tekken.json", bytes);
  return Tokenizer::Load(dir.path());
}

std::unique_ptr<Tokenizer> LoadFile(const Json& file) {
  auto tokenizer = LoadBytes(file.Dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

TEST(TekkenTest, TokensMergeByRankAndIdsFollowTheSpecialTokens) {
  const auto tokenizer = LoadFile(GoodFile());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 263);
  EXPECT_EQ(EncodedText(*tokenizer, "abc"), (std::vector<TokenId>{4 + 257}));  // a word by itself
  // "ab" has the lower rank and merges to "abc".
  EXPECT_EQ(EncodedText(*tokenizer, "xabc"), (std::vector<TokenId>{4 + 'x', 4 + 257}));
  EXPECT_EQ(EncodedText(*tokenizer, "xbc\xC3"),
            (std::vector<TokenId>{4 + 'x', 4 + 258, 4 + 0xEF, 4 + 0xBF, 4 + 0xBD}));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{4 + 256, 4 + 0xC3, 4 + 0xA9, 4 + 0xC3}),
            "ab\xC3\xA9\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->PieceBytes(4 + 0xC3), "\xC3");
}

TEST(TekkenTest, SpecialTokensAreFoundInTrustedTextAlone) {
  const auto tokenizer = LoadFile(GoodFile());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Encoded(*tokenizer, {{"<s>ab", true}, {"</s>", false}}),
            (std::vector<TokenId>{1, 4 + 256, 4 + '<', 4 + '/', 4 + 's', 4 + '>'}));
  EXPECT_EQ(Encoded(*tokenizer, {{"<SPECIAL_3>", true}}), (std::vector<TokenId>{3}));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{1, 4 + 'a', 3, 2}), "a");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{1, 4 + 'a', 3, 2}, /*keep_special=*/true),
            "<s>a<SPECIAL_3></s>");
  EXPECT_EQ(tokenizer->Prefix(), std::vector<TokenId>{1});
  EXPECT_TRUE(tokenizer->Suffix().empty());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->unk_token(), "<unk>");
  EXPECT_EQ(tokenizer->pad_token(), "");
  EXPECT_TRUE(tokenizer->IsSpecial(3));
  EXPECT_FALSE(tokenizer->IsSpecial(4));
}

TEST(TekkenTest, OldFilesHaveTheDefaultSpecialTokens) {
  const auto tokenizer = LoadTokenizer(kTekkenDir);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->IdOf("[INST]"), 3);
  EXPECT_EQ(tokenizer->IdOf("[TOOL_CONTENT]"), 19);
  EXPECT_EQ(tokenizer->IdOf("<SPECIAL_20>"), 20);
  EXPECT_EQ(tokenizer->pad_token(), "<pad>");
  const auto file = ParseJson(ReadBytes(kTekkenDir + "/tekken.json"));
  ASSERT_TRUE(file.ok());
  const Json& config = *file->Find("config");
  EXPECT_EQ(tokenizer->vocab_size(), config.Find("default_vocab_size")->as_int());
  // The file has more tokens than the model.
  EXPECT_GT(static_cast<int64_t>(file->Find("vocab")->as_array().size()),
            tokenizer->vocab_size() - config.Find("default_num_special_tokens")->as_int());
}

TEST(TekkenTest, OtherFilesOfTheDirectoryComeFirst) {
  const ModelDir dir;
  dir.Write("tekken.json", GoodFile().Dump());
  dir.Write("tokenizer.model", ReadBytes(kWrenDir + "/tokenizer.model"));
  const auto tokenizer = LoadTokenizer(dir.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_NE(tokenizer->vocab_size(), 263);
}

struct BadTekken {
  const char* what;
  std::function<void(Json*)> damage;
  const char* says;
};

const BadTekken kBadTekkens[] = {
    {"no configuration", [](Json* file) { file->Set("config", Json()); }, "config is missing"},
    {"no pattern", [](Json* file) { At(file, "config")->Set("pattern", 3); }, "config.pattern"},
    {"a pattern that is none", [](Json* file) { At(file, "config")->Set("pattern", "(a"); },
     "config.pattern"},
    {"negative number of special tokens",
     [](Json* file) { At(file, "config")->Set("default_num_special_tokens", -1); },
     "config.default_num_special_tokens is -1"},
    {"more special tokens than ids",
     [](Json* file) { At(file, "config")->Set("default_num_special_tokens", 300); },
     "config.default_vocab_size is 263"},
    {"a size past all bounds",
     [](Json* file) { At(file, "config")->Set("default_vocab_size", int64_t{1} << 40); },
     "config.default_vocab_size is 1099511627776"},
    {"a size past the list", [](Json* file) { At(file, "config")->Set("default_vocab_size", 264); },
     "vocab has 259 tokens"},
    {"an odd version", [](Json* file) { At(file, "config")->Set("version", "latest"); },
     "config.version is \"latest\""},
    {"a new version without special tokens",
     [](Json* file) { file->Set("special_tokens", Json()); }, "special_tokens is missing"},
    {"too many special tokens",
     [](Json* file) {
       for (int i = 0; i < 2; ++i) At(file, "special_tokens")->Append(Special(3, "<x>"));
     },
     "special_tokens has 5 tokens"},
    {"a special token's rank twice",
     [](Json* file) { At(file, "special_tokens")->as_array()[0].Set("rank", 1); },
     "special_tokens[2].rank is 1, already used by \"<unk>\""},
    {"a special token's text twice",
     [](Json* file) { At(file, "special_tokens")->as_array()[0].Set("token_str", "<s>"); },
     "special_tokens has \"<s>\" twice"},
    {"a special token's rank past the list",
     [](Json* file) { At(file, "special_tokens")->as_array()[0].Set("rank", 3); },
     "special_tokens[0].rank is 3"},
    {"a special token without text",
     [](Json* file) { At(file, "special_tokens")->as_array()[0].Set("token_str", ""); },
     "special_tokens[0].token_str has 0 bytes"},
    {"no list of tokens", [](Json* file) { file->Set("vocab", "x"); }, "vocab is a string"},
    {"a token that is no object",
     [](Json* file) { At(file, "vocab")->as_array()[257] = Json("x"); }, "vocab[257] is a string"},
    {"a rank out of order", [](Json* file) { SetRank(file, 257, "rank", 256); },
     "vocab[257].rank is 256"},
    {"a sign that base64 does not have",
     [](Json* file) { SetRank(file, 257, "token_bytes", "YW*j"); }, "vocab[257].token_bytes"},
    {"base64 cut short", [](Json* file) { SetRank(file, 257, "token_bytes", "YWJ"); },
     "vocab[257].token_bytes"},
    {"an empty token", [](Json* file) { SetRank(file, 257, "token_bytes", ""); }, "vocab[257]"},
    {"a token twice", [](Json* file) { SetRank(file, 257, "token_bytes", EncodeBase64("bc")); },
     "vocab[258]: \"bc\" has two ids"},
    {"a huge token",
     [](Json* file) { SetRank(file, 257, "token_bytes", EncodeBase64(std::string(257, 'a'))); },
     "vocab[257].token_bytes has 257 bytes"},
    {"a byte that is missing",
     [](Json* file) { SetRank(file, 65, "token_bytes", EncodeBase64("zz")); },
     "vocab[65].token_bytes is \"eno=\"; the first 256 tokens must be the bytes"},
};

TEST(TekkenTest, FilesThatBreakARuleAreRefusedWithTheKey) {
  for (const BadTekken& bad : kBadTekkens) {
    SCOPED_TRACE(bad.what);
    Json file = GoodFile();
    bad.damage(&file);
    const auto tokenizer = LoadBytes(file.Dump());
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kBadInput);
    EXPECT_NE(tokenizer.status().message().find(bad.says), std::string::npos)
        << tokenizer.status().message();
    EXPECT_NE(tokenizer.status().message().find("tekken.json: "), std::string::npos);
  }
}

TEST(TekkenTest, FilesThatAreNoObjectAreRefused) {
  for (const std::string bytes : {"", "[]", "{\"config\": {}", "\xFF\xFE"}) {
    const auto tokenizer = LoadBytes(bytes);
    ASSERT_FALSE(tokenizer.ok()) << bytes;
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kBadInput);
  }
}

TEST(RankFileTest, SaysWhyItCannotBeUsed) {
  const ModelDir dir;
  dir.Write("tokenizer.model", "IQ== 0\nIg== 1\n");
  const auto tokenizer = Tokenizer::Load(dir.path());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kBadInput);
  EXPECT_NE(tokenizer.status().message().find("tokenizer.json"), std::string::npos)
      << tokenizer.status().message();
}

TEST(RankFileTest, OnlyItsFirstLineIsLookedAt) {
  EXPECT_TRUE(IsRankFile("IQ== 0\n"));
  EXPECT_TRUE(IsRankFile("IQ== 0"));
  EXPECT_TRUE(IsRankFile("IQ== 0\r\n\xFF"));
  for (const char* text : {"", "\n", "IQ==", "IQ== ", " 0\n", "IQ= 0\n", "IQ== x\n", "I*== 0\n"}) {
    EXPECT_FALSE(IsRankFile(text)) << text;
  }
  EXPECT_FALSE(IsRankFile(ReadBytes(kWrenDir + "/tokenizer.model")));
}

}  // namespace
}  // namespace minisgl::text
