// Long texts are encoded in parts: the ids equal the whole text's, memory is a few bytes per byte
// of text, and encoding ends when the sink stops it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "slow.h"
#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece/encoder.h"
#include "text/sentencepiece/model.h"
#include "text/sentencepiece/tokenizer.h"
#include "text/tokenizer_json/bpe.h"
#include "text/tokenizer_json/loader.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

const std::string kTokenizers = MINISGL_SOURCE_DIR "/tests/text/tokenizers/";

std::string TextOfCases(const std::string& between) {
  std::string text;
  for (const Json& row : ReadRows(kTokenizers + "lines.jsonl")) {
    if (const Json* line = row.Find("text")) text += line->as_string() + between;
  }
  return text;
}

std::string Filled(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

std::string WithoutSpaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

std::string RandomText(const std::vector<std::string>& units, size_t bytes) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) text += units[random() % units.size()];
  return text;
}

struct LongText {
  const char* name;
  std::string text;
};

// Three windows of each kind of text.
std::vector<LongText> LongTexts() {
  constexpr size_t kBytes = size_t{150} << 10;
  return {
      {"lines", Filled(TextOfCases(" "), kBytes)},
      {"one word", Filled(WithoutSpaces(TextOfCases("")), kBytes)},
      {"letters", Filled("a", kBytes)},
      {"spaces", Filled(" ", kBytes)},
      {"spaces and letters", Filled("    a", kBytes)},
      {"Chinese", Filled("中文", kBytes)},
      {"emoji", Filled("😀", kBytes)},
      {"marks", Filled("e\u0301\u0323", kBytes)},
      {"syllables", RandomText({"a", "b", "the", "in", "ing", "er", "t", "h", "e"}, kBytes)},
      {"words", RandomText({" the", " in", "ing", " a", "b", "12", "7", ",", "'s", "\n"}, kBytes)},
  };
}

void ExpectSameIds(const std::vector<TokenId>& got, const std::vector<TokenId>& wanted) {
  const auto at = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
  EXPECT_TRUE(got == wanted) << got.size() << " ids, not " << wanted.size()
                             << "; they differ from place " << at.first - got.begin();
}

class SentencePiecePartsTest : public testing::TestWithParam<std::string> {};

TEST_P(SentencePiecePartsTest, IdsAreThoseOfTheWhole) {
  MarkSlow("long texts of every class");
  if (!std::filesystem::exists(GetParam())) GTEST_SKIP() << "no " << GetParam();
  const auto model = SentencePieceModel::Read(ReadBytes(GetParam()));
  ASSERT_TRUE(model.ok()) << model.status().message();
  // Every combination of the library's options for white space.
  for (const bool prefix : {true, false}) {
    for (const bool removes : {true, false}) {
      SentencePieceModel variant = *model;
      variant.add_dummy_prefix = prefix;
      variant.remove_extra_whitespaces = removes;
      const auto whole = SentencePieceEncoder::Create(variant);
      const auto tokenizer = SentencePieceTokenizer::Create(variant, {});
      ASSERT_TRUE(whole.ok() && tokenizer.ok());
      for (const LongText& one : LongTexts()) {
        SCOPED_TRACE(fmt::format("{}, prefix {}, removes {}", one.name, prefix, removes));
        std::vector<TokenId> wanted;
        ASSERT_TRUE((*whole)->Encode(one.text, &wanted).ok());
        const auto got = (*tokenizer)->EncodeText(one.text);
        ASSERT_TRUE(got.ok()) << got.status().message();
        ExpectSameIds(*got, wanted);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePiecePartsTest,
                         testing::Values(kWrenDir + "/tokenizer.model",
                                         SharedDir() + "/tokenizers/mistral-v1.model",
                                         SharedDir() + "/tokenizers/mistral-v3.model"),
                         [](const auto& test) { return std::to_string(test.index); });

class PipelinePartsTest : public testing::TestWithParam<std::string> {};

Result<TokenizerParts> ReadParts(const std::string& name) {
  MINISGL_ASSIGN_OR_RETURN(const Json file,
                           ReadTokenizerJson(kTokenizers + name + "/tokenizer.json"));
  MINISGL_ASSIGN_OR_RETURN(TokenizerParts parts, ReadTokenizerParts(file, {}));
  parts.added.clear();
  return parts;
}

std::vector<TokenId> EncodeWhole(const TokenizerParts& parts, std::string text) {
  if (parts.normalizer != nullptr) {
    EXPECT_TRUE(parts.normalizer->Run(&text).ok());
  }
  const size_t size = text.size();
  WordList words{std::move(text), {{0, size}}, true};
  if (parts.pre_tokenizer != nullptr) {
    EXPECT_TRUE(parts.pre_tokenizer->Run(&words).ok());
  }
  BpeScratch scratch;
  std::vector<TokenId> ids;
  for (const TextRange& word : words.words) {
    parts.model->Encode(std::string_view(words.text).substr(word.begin, word.end - word.begin),
                        &scratch, &ids);
  }
  return ids;
}

TEST_P(PipelinePartsTest, IdsAreThoseOfTheWhole) {
  MarkSlow("long texts of every class");
  const auto whole = ReadParts(GetParam());
  auto parts = ReadParts(GetParam());
  ASSERT_TRUE(whole.ok() && parts.ok()) << parts.status().message();
  const auto tokenizer = MakePipelineTokenizer(std::move(*parts));
  ASSERT_TRUE(tokenizer.ok());
  for (const LongText& one : LongTexts()) {
    SCOPED_TRACE(one.name);
    const auto got = (*tokenizer)->EncodeText(one.text);
    ASSERT_TRUE(got.ok()) << got.status().message();
    ExpectSameIds(*got, EncodeWhole(*whole, one.text));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PipelinePartsTest,
                         testing::Values("gemma", "gpt2", "llama3", "o200k", "qwen2",
                                         "spm-metaspace", "spm-prepend"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Compares the words of a list, computed at once and streamed.
void ExpectSameWords(const std::string& json, const std::string& text) {
  SCOPED_TRACE(json);
  const auto parsed = ParseJson(json);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto pre_tokenizer = PreTokenizer::Read(JsonPlace(&*parsed));
  ASSERT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status().message();
  WordList whole{text, {{0, text.size()}}, true};
  ASSERT_TRUE((*pre_tokenizer)->Run(&whole).ok());
  std::vector<std::string> wanted, got;
  for (const TextRange& word : whole.words) {
    wanted.push_back(whole.text.substr(word.begin, word.end - word.begin));
  }
  const auto take = [&](WordList part) -> Result<bool> {
    for (const TextRange& word : part.words) {
      got.push_back(part.text.substr(word.begin, word.end - word.begin));
    }
    return true;
  };
  ASSERT_TRUE((*pre_tokenizer)->Stream({text, {{0, text.size()}}, true}, take).ok());
  EXPECT_TRUE(got == wanted) << got.size() << " words, not " << wanted.size();
}

TEST(WordStreamTest, WordsAreThoseOfTheWhole) {
  MarkSlow("every behaviour on long texts");
  const std::string texts[] = {
      RandomText({"a", "bc", " ", "  ", "1", "23", ".", "!", "é", "中", "\n", "\u2581"},
                 size_t{100} << 10),
      Filled("1", size_t{80} << 10), Filled(" ", size_t{80} << 10)};
  for (const std::string& text : texts) {
    for (const char* behavior :
         {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
      for (const char* invert : {"false", "true"}) {
        for (const char* pattern :
             {R"({"Regex": " ?\\p{L}+|\\p{N}"})", R"({"Regex": "(?<=a)b|1*"})",
              R"({"Regex": "\\s+(?!\\S)|\\s+"})", R"({"String": " "})"}) {
          ExpectSameWords(
              fmt::format(R"({{"type": "Split", "pattern": {}, "behavior": "{}", "invert": {}}})",
                          pattern, behavior, invert),
              text);
        }
      }
    }
    for (
        const char* json :
        {R"({"type": "Digits", "individual_digits": false})",
         R"({"type": "Digits", "individual_digits": true})", R"({"type": "Punctuation"})",
         R"({"type": "WhitespaceSplit"})", R"({"type": "Whitespace"})",
         R"({"type": "BertPreTokenizer"})", R"({"type": "FixedLength", "length": 5})",
         R"({"type": "Metaspace"})", R"({"type": "ByteLevel"})",
         R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]})"}) {
      ExpectSameWords(json, text);
    }
  }
}

// Only the first window of 8 MiB, and the window that overlaps it, are encoded.
TEST(EncodePartsTest, WorkEndsWhereNoMoreIsWanted) {
  const std::vector<TextPiece> pieces = {{Filled("word ", size_t{8} << 20), true}};
  for (const std::string& dir : {kWrenDir, kTokenizers + "qwen2", kTokenizers + "gemma"}) {
    SCOPED_TRACE(dir);
    const auto tokenizer = LoadTokenizer(dir);
    ASSERT_NE(tokenizer, nullptr);
    size_t tokens = 0;
    const auto sink = [&](std::span<const TokenId> ids) {
      tokens += ids.size();
      return tokens < 1000;
    };
    const Status status = tokenizer->EncodeTo(pieces, sink);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_GE(tokens, 1000u);
    EXPECT_LT(tokens, 2 * kEncodeWindowBytes);
  }
}

TEST(EncodePartsTest, NoTextHasFewerTokensThanItsBytesSay) {
  for (const std::string& dir : {kWrenDir, kTokenizers + "qwen2", kTokenizers + "gpt2",
                                 kTokenizers + "spm-prepend", kTokenizers + "tekken"}) {
    SCOPED_TRACE(dir);
    const auto tokenizer = LoadTokenizer(dir);
    ASSERT_NE(tokenizer, nullptr);
    int64_t most = 0;
    for (const LongText& one : LongTexts()) {
      const std::vector<TextPiece> pieces = {
          {ReplaceInvalidUtf8(one.text.substr(0, 20'000)), true}};
      const auto ids = tokenizer->Encode(pieces);
      ASSERT_TRUE(ids.ok());
      const int64_t least = tokenizer->MinTokens(pieces);
      EXPECT_LE(least, static_cast<int64_t>(ids->size())) << one.name;
      most = std::max(most, least);
    }
    // The other, small vocabularies lack some bytes, which are dropped.
    const bool is_bounded = dir == kWrenDir || dir.ends_with("tekken");
    EXPECT_EQ(most > 0, is_bounded);
  }
}

}  // namespace
}  // namespace minisgl::text
