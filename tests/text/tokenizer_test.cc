// Ids and text of real tokenizers, special tokens in trusted text, and the files beside
// tokenizer.model.
#include <gtest/gtest.h>

#include <algorithm>

#include "processor_seconds.h"
#include "text/sentencepiece/model.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

class SharedCasesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SharedCasesTest, IdsAndDecodedTextAgreeWithTheLibrarys) {
  const std::string name = GetParam(), cases = "tokenizers/" + name + ".cases.jsonl";
  if (!HasShared(cases)) GTEST_SKIP() << "no " << SharedDir() << "/" << cases;
  const auto tokenizer =
      name == "wren" ? LoadTokenizer(kWrenDir)
                     : MakeTokenizer(ReadBytes(SharedDir() + "/tokenizers/" + name + ".model"));
  ASSERT_NE(tokenizer, nullptr);
  const auto rows = ReadRows(SharedDir() + "/" + cases);
  ASSERT_GE(rows.size(), 1000u);
  for (const Json& row : rows) {
    const std::string text = row.Find("text")->as_string();
    const auto ids = Ids(*row.Find("ids"));
    ASSERT_EQ(EncodedText(*tokenizer, text), ids) << text;
    ASSERT_EQ(Encoded(*tokenizer, {{text, false}}), ids) << text;
    ASSERT_EQ(tokenizer->Decode(ids), row.Find("decoded")->as_string());
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedCasesTest,
                         ::testing::Values("wren", "mistral-v1", "mistral-v3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class WrenTokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = LoadTokenizer(kWrenDir);
    ASSERT_NE(tokenizer_, nullptr);
  }
  std::vector<TokenId> Trusted(const std::string& text) {
    return Encoded(*tokenizer_, {{text, true}});
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(WrenTokenizerTest, SpecialTokensAreRecognisedInTrustedText) {
  EXPECT_EQ(Trusted("<s>"), (std::vector<TokenId>{1}));
  EXPECT_EQ(Trusted("<s></s><|user|>\n"), (std::vector<TokenId>{1, 2, 4, 6}));
  EXPECT_EQ(Trusted("Hello</s>"), Concat({EncodedText(*tokenizer_, "Hello"), {2}}));
}

TEST_F(WrenTokenizerTest, NeighbouringPiecesAreOneText) {
  const auto whole = EncodedText(*tokenizer_, "What is the capital of Peru?");
  EXPECT_EQ(Encoded(*tokenizer_, {{"What is the cap", true}, {"ital of", false}, {" Peru?", true}}),
            whole);
  EXPECT_EQ(Trusted("<|us"), EncodedText(*tokenizer_, "<|us"));
  EXPECT_EQ(Encoded(*tokenizer_, {{"<|us", true}, {"er|>", true}}), (std::vector<TokenId>{4}));
}

TEST_F(WrenTokenizerTest, KnowsItsTokens) {
  EXPECT_EQ(tokenizer_->vocab_size(), 2048);
  EXPECT_EQ(tokenizer_->bos_id(), 1);
  EXPECT_EQ(tokenizer_->eos_id(), 2);
  EXPECT_EQ(tokenizer_->bos_token(), "<s>");
  EXPECT_EQ(tokenizer_->eos_token(), "</s>");
  EXPECT_EQ(tokenizer_->unk_token(), "<unk>");
  EXPECT_EQ(tokenizer_->pad_token(), "");
  EXPECT_EQ(tokenizer_->Prefix(), (std::vector<TokenId>{1}));
  EXPECT_TRUE(tokenizer_->Suffix().empty());
  EXPECT_FALSE(tokenizer_->DropsLeadingSpace());
  EXPECT_TRUE(tokenizer_->IsSpecial(1));
  EXPECT_FALSE(tokenizer_->IsSpecial(4));
  EXPECT_EQ(tokenizer_->PieceText(7), "<0x00>");
  EXPECT_EQ(tokenizer_->PieceBytes(7), std::string(1, '\0'));
  EXPECT_EQ(tokenizer_->PieceBytes(2), "");
  EXPECT_EQ(tokenizer_->PieceBytes(6), "\n");
  EXPECT_EQ(tokenizer_->IdOf("<|user|>"), 4);
  EXPECT_EQ(tokenizer_->IdOf("no such piece"), std::nullopt);
}

TEST_F(WrenTokenizerTest, SpecialTokensAreSpelledOnlyOnRequest) {
  const std::vector<TokenId> ids = {1, 4, 6, 2};
  EXPECT_EQ(tokenizer_->Decode(ids), "<|user|>\n");
  EXPECT_EQ(tokenizer_->Decode(ids, /*keep_special=*/true), "<s><|user|>\n</s>");
}

TEST_F(WrenTokenizerTest, OddTextsHaveADefinedResult) {
  EXPECT_TRUE(EncodedText(*tokenizer_, "").empty());
  EXPECT_TRUE(Encoded(*tokenizer_, {}).empty());
  EXPECT_TRUE(Encoded(*tokenizer_, {{"", true}, {"", false}}).empty());
  for (const std::string& text : {std::string("a\0b", 3),
                                  std::string("\xEF\xBB\xBF"
                                              "bom"),
                                  std::string("a\r\nb")}) {
    EXPECT_EQ(tokenizer_->Decode(EncodedText(*tokenizer_, text)), text);
  }
  // Each ill-formed byte is one U+FFFD.
  EXPECT_EQ(tokenizer_->Decode(EncodedText(*tokenizer_, "a\xFF\xE2\x82")),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_F(WrenTokenizerTest, LongRunsOfOneCharacterTakeLessThanASecondEach) {
  constexpr double kSecondsMax =
      5.0;  // a sanitizer build takes several times as long as a release build
  for (const char* unit :
       {" ", "a", "7", "\n", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xE2\x80\x8D"}) {
    std::string text;
    while (text.size() < (size_t{1} << 17)) text += unit;
    const double begin = ProcessorSeconds();
    const auto ids = EncodedText(*tokenizer_, text);
    EXPECT_LT(ProcessorSeconds() - begin, kSecondsMax);
    EXPECT_EQ(tokenizer_->Decode(ids), text);
  }
}

TEST_F(WrenTokenizerTest, TextsPastTheLimitAreRefused) {
  const std::string text(kTextBytesMax + 1, 'a');
  EXPECT_EQ(tokenizer_->EncodeText(text).status().code(), StatusCode::kBadInput);
  EXPECT_EQ(tokenizer_->Encode(std::vector<TextPiece>{{text, true}}).status().code(),
            StatusCode::kBadInput);
}

// The dummy prefix: the ids equal the transformers library's for a Llama tokenizer.
class DummyPrefixTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasShared("tokenizers/mistral-v1.model"))
      GTEST_SKIP() << "no mistral-v1.model in " << SharedDir();
    model_ = ReadBytes(SharedDir() + "/tokenizers/mistral-v1.model");
  }
  std::string model_;
};

TEST_F(DummyPrefixTest, StandsAtTheStartAloneWithoutLegacy) {
  const auto tokenizer = MakeTokenizer(model_, R"({"legacy": false})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->DropsLeadingSpace());
  EXPECT_EQ(Encoded(*tokenizer, {{"Hello there", true}}), (std::vector<TokenId>{22557, 736}));
  EXPECT_EQ(Encoded(*tokenizer, {{"<s>Hello there", true}}), (std::vector<TokenId>{1, 16230, 736}));
  EXPECT_EQ(Encoded(*tokenizer, {{"<s>", true}, {" Hello", false}}),
            (std::vector<TokenId>{1, 22557}));
}

TEST_F(DummyPrefixTest, StandsAfterEverySpecialTokenWithLegacy) {
  const auto tokenizer = MakeTokenizer(model_, R"({"legacy": true})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Encoded(*tokenizer, {{"<s>Hello there</s>Hello there", true}}),
            (std::vector<TokenId>{1, 22557, 736, 2, 22557, 736}));
}

TEST_F(DummyPrefixTest, IsLeftOutWhereTheConfigurationSaysSo) {
  const auto tokenizer = MakeTokenizer(model_, R"({"add_prefix_space": false})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Encoded(*tokenizer, {{"Hello there", true}}), (std::vector<TokenId>{16230, 736}));
}

class TokenizerFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { dir_.Write("tokenizer.model", ReadBytes(kWrenDir + "/tokenizer.model")); }
  ModelDir dir_;
};

TEST_F(TokenizerFilesTest, TheModelAloneIsEnough) {
  const auto tokenizer = LoadTokenizer(dir_.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_token(), "</s>");
  EXPECT_EQ(tokenizer->Prefix(), (std::vector<TokenId>{1}));
}

TEST_F(TokenizerFilesTest, AddedTokensGrowTheVocabulary) {
  dir_.Write("tokenizer_config.json",
             R"({"eos_token": {"content": "<|end|>"}, "added_tokens_decoder": {
      "2048": {"content": "<|end|>", "special": true, "rstrip": true},
      "2050": {"content": "<plain>"}}})");
  dir_.Write("added_tokens.json", R"({"<|end|>": 2048, "<more>": 2051})");
  const auto tokenizer = LoadTokenizer(dir_.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 2052);
  EXPECT_EQ(tokenizer->eos_id(), 2048);
  EXPECT_EQ(Encoded(*tokenizer, {{"<|end|>\n  <plain><more>", true}}),
            (std::vector<TokenId>{2048, 2050, 2051}));
  EXPECT_TRUE(tokenizer->IsSpecial(2048));
  EXPECT_FALSE(tokenizer->IsSpecial(2050));
  const std::vector<TokenId> ids = {2048, 2049, 2050, 2051};
  EXPECT_EQ(tokenizer->Decode(ids), "<plain><more>");
  EXPECT_EQ(tokenizer->Decode(ids, true), "<|end|><plain><more>");
  const auto untrusted = Encoded(*tokenizer, {{"<|end|><plain><more>", false}});
  EXPECT_TRUE(
      std::all_of(untrusted.begin(), untrusted.end(), [](TokenId id) { return id < 2048; }));
  EXPECT_EQ(tokenizer->Decode(untrusted), "<|end|><plain><more>");
}

TEST_F(TokenizerFilesTest, ATokenOfTheModelCanBeDeclaredSpecial) {
  dir_.Write("tokenizer_config.json",
             R"({"added_tokens_decoder": {"4": {"content": "<|user|>", "special": true},
                                          "6": {"content": "\n"}}})");
  const auto tokenizer = LoadTokenizer(dir_.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->IsSpecial(4));
  EXPECT_EQ(Encoded(*tokenizer, {{"<|user|>\n", true}}), (std::vector<TokenId>{4, 6}));
  EXPECT_EQ(Encoded(*tokenizer, {{"\n", false}}), (std::vector<TokenId>{6}));
}

TEST_F(TokenizerFilesTest, RolesComeFromTheSpecialTokensMapWhereTheConfigurationHasNone) {
  dir_.Write("special_tokens_map.json",
             R"({"pad_token": "</s>", "bos_token": {"content": "<|system|>"}})");
  const auto tokenizer = LoadTokenizer(dir_.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->pad_token(), "</s>");
  EXPECT_EQ(tokenizer->bos_id(), 3);
  EXPECT_TRUE(tokenizer->IsSpecial(3));
}

TEST_F(TokenizerFilesTest, AConfigurationOfVeryManyValuesIsRefused) {
  std::string values = R"({"extra": [0)";
  for (int i = 0; i < 1'000'000; ++i) values += ",0";
  dir_.Write("tokenizer_config.json", values + "]}");
  const Status status = Tokenizer::Load(dir_.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("tokenizer_config.json: more than 1000000 values"),
            std::string::npos)
      << status.message();
}

TEST_F(TokenizerFilesTest, DamagedFilesAreRefusedByName) {
  const struct {
    const char *file, *bytes, *says;
  } kCases[] = {
      {"tokenizer_config.json", "{", "not valid JSON"},
      {"tokenizer_config.json", "[]", "an object"},
      {"tokenizer_config.json", R"({"bos_token": 5})", "bos_token"},
      {"tokenizer_config.json", R"({"bos_token": {"text": "x"}})", "content"},
      {"tokenizer_config.json", R"({"add_bos_token": "yes"})", "add_bos_token"},
      {"tokenizer_config.json", R"({"legacy": 1})", "legacy"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": []})", "added_tokens_decoder"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
       "not a token id"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"-1": {"content": "a"}}})",
       "ids must be"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"2147483647": {"content": "a"}}})",
       "ids must be"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"99999999999999999999": {}}})",
       "token id"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"2048": {"content": ""}}})",
       "no text"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"2048": {"special": true}}})",
       "content"},
      {"tokenizer_config.json", R"({"additional_special_tokens": "x"})",
       "additional_special_tokens"},
      {"added_tokens.json", R"({"<x>": "1"})", "token id"},
      {"added_tokens.json", R"({"<x>": 123456789})", "ids must be"},
      {"special_tokens_map.json", R"({"eos_token": ["x"]})", "eos_token"},
  };
  for (const auto& bad : kCases) {
    for (const char* name :
         {"tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"}) {
      std::filesystem::remove(dir_.path() + "/" + name);
    }
    dir_.Write(bad.file, bad.bytes);
    const auto tokenizer = Tokenizer::Load(dir_.path());
    ASSERT_FALSE(tokenizer.ok()) << bad.bytes;
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kBadInput);
    EXPECT_NE(tokenizer.status().message().find(bad.says), std::string::npos)
        << tokenizer.status().message();
    EXPECT_NE(tokenizer.status().message().find(bad.file), std::string::npos)
        << tokenizer.status().message();
  }
}

TEST(TokenizerLoadTest, ADirectoryWithoutASupportedTokenizerSaysWhatIsSupported) {
  const ModelDir dir;
  const auto none = Tokenizer::Load(dir.path());
  EXPECT_EQ(none.status().code(), StatusCode::kNoInput);
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json", "vocab.txt"}) {
    EXPECT_NE(none.status().message().find(name), std::string::npos) << none.status().message();
  }
  dir.Write("tokenizer.json", R"({"model": {"type": "WordLevel"}})");
  const auto words = Tokenizer::Load(dir.path());
  EXPECT_EQ(words.status().code(), StatusCode::kBadInput);
  EXPECT_NE(
      words.status().message().find(
          "tokenizer.json: model.type is \"WordLevel\"; supported are BPE, WordPiece and Unigram"),
      std::string::npos)
      << words.status().message();
}

}  // namespace
}  // namespace minisgl::text
