// Damaged and crafted tokenizer.json files: either rejected with the file's name, the key and the
// reason, or loaded so that encoding and decoding work.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "text/tokenizer_json/loader.h"
#include "text/tokenizer_json/regex.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

constexpr const char* kGood = R"({
  "added_tokens": [{"id": 7, "content": "<s>", "special": true, "normalized": false},
                   {"id": 8, "content": "<t>", "normalized": true}],
  "normalizer": {"type": "Replace", "pattern": {"String": "q"}, "content": "c"},
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
               {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<u>", "byte_fallback": false,
    "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "<u>": 5, " ": 6},
    "merges": ["a b", "ab c"]}})";

// Sets the member at `path`, such as "model.vocab", through objects only.
void SetAt(Json* root, std::string_view path, Json value) {
  Json* at = root;
  while (true) {
    const size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    if (dot == std::string_view::npos) {
      at->Set(key, std::move(value));
      return;
    }
    Json* next = nullptr;
    for (auto& [name, member] : at->as_object()) {
      if (name == key) next = &member;
    }
    ASSERT_NE(next, nullptr) << path;
    at = next;
    path.remove_prefix(dot + 1);
  }
}

Json GoodWith(const std::string& path, const std::string& value) {
  Json file = *ParseJson(kGood);
  auto parsed = ParseJson(value);
  EXPECT_TRUE(parsed.ok()) << value;
  if (parsed.ok()) SetAt(&file, path, std::move(*parsed));
  return file;
}

// Loads `text` as tokenizer.json; on success, uses the tokenizer as a run would.
Status LoadAndUse(const std::string& text) {
  const ModelDir dir;
  dir.Write("tokenizer.json", text);
  const auto tokenizer = Tokenizer::Load(dir.path());
  if (!tokenizer.ok()) return tokenizer.status();
  for (const std::string piece : {"", "abcab <s> <t> xx", "\xEF\xAC\x81 \xC3\xA9\xFF  x", "qqq"}) {
    const auto ids =
        (*tokenizer)->Encode(std::vector<TextPiece>{{"<s>", true}, {piece, false}, {piece, true}});
    if (!ids.ok()) return ids.status();
    for (TokenId id : *ids) EXPECT_TRUE(id >= 0 && id < (*tokenizer)->vocab_size());
    EXPECT_TRUE(IsValidUtf8((*tokenizer)->Decode(*ids, true)));
  }
  return {};
}

struct BadFile {
  const char *path, *value, *says;
};

const BadFile kBadFiles[] = {
    {"model", "null", "model is missing or null"},
    {"model", "[]", "model is an array"},
    {"model.type", "\"WordLevel\"",
     "model.type is \"WordLevel\"; supported are BPE, WordPiece and Unigram"},
    {"model.type", "\"Unigram\"", "model.vocab is an object; it must be an array"},
    {"model", R"({"type": "WordPiece", "vocab": {"a": 0}})", "model.unk_token is \"[UNK]\""},
    {"model", R"({"type": "WordPiece", "unk_token": 5, "vocab": {"a": 0}})", "model.unk_token"},
    {"model", R"({"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0},
                  "max_input_chars_per_word": 0})",
     "max_input_chars_per_word"},
    {"model", R"({"type": "Unigram", "vocab": []})", "model.vocab is empty"},
    {"model", R"({"type": "Unigram", "vocab": [["a", "b"]]})",
     "model.vocab has [\"a\", \"b\"] at 0"},
    {"model", R"({"type": "Unigram", "vocab": [["a", 1], ["a", 1]]})", "model.vocab"},
    {"model", R"({"type": "Unigram", "vocab": [["a", 1]]})", "model.unk_id"},
    {"model", R"({"type": "Unigram", "unk_id": 1, "vocab": [["a", 1]]})", "model.unk_id is 1"},
    {"normalizer", R"({"type": "Precompiled"})", "normalizer.precompiled_charsmap"},
    {"normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "!"})", "is not base64"},
    {"normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"})", "is damaged"},
    {"normalizer", R"({"type": "BertNormalizer", "lowercase": 1})", "normalizer.lowercase"},
    {"decoder", R"({"type": "WordPiece", "prefix": 1})", "decoder.prefix"},
    {"model.type", "5", "model.type"},
    {"model.vocab", "null", "model.vocab is missing"},
    {"model.vocab", "[]", "model.vocab is an array"},
    {"model.vocab", "{}", "model.vocab is empty"},
    {"model.vocab", R"({"a": "0"})", "a string for \"a\""},
    {"model.vocab", R"({"a": -1})", "id -1"},
    {"model.vocab", R"({"a": 2147483648})", "id 2147483648"},
    {"model.vocab", R"({"a": 2097152})", "id 2097152"},
    {"model.vocab", R"({"a": 1.5})", "a number for \"a\""},
    {"model.vocab", R"({"": 1})", "no text"},
    {"model.vocab", R"({"a": 1, "b": 1})", "id 1 belongs to both"},
    {"model.merges", "null", "model.merges is missing"},
    {"model.merges", R"("a b")", "model.merges is a string"},
    {"model.merges", R"(["a b c"])", "model.merges[0] is not a pair"},
    {"model.merges", R"(["ab"])", "model.merges[0] is not a pair"},
    {"model.merges", R"(["a b", ["a"]])", "model.merges[1] is not a pair"},
    {"model.merges", R"([["a", 5]])", "model.merges[0] is not a pair"},
    {"model.merges", R"([["a", "b", "c"]])", "model.merges[0] is not a pair"},
    {"model.merges", R"([["a", "zz"]])", "model.merges[0] has \"zz\""},
    {"model.merges", R"([["", "a"]])", "model.merges[0] has \"\""},
    {"model.merges", R"([["b", "a"]])", "model.merges[0] makes \"ba\""},
    {"model.dropout", "0.1", "model.dropout is set"},
    {"model.dropout", "1", "model.dropout is set"},
    {"model.dropout", "\"x\"", "model.dropout"},
    {"model.unk_token", "\"<none>\"", "model.unk_token is \"<none>\""},
    {"model.unk_token", "5", "model.unk_token is an integer"},
    {"model.byte_fallback", "\"yes\"", "model.byte_fallback"},
    {"model.fuse_unk", "1", "model.fuse_unk"},
    {"model.ignore_merges", "[]", "model.ignore_merges"},
    {"model.continuing_subword_prefix", "\"##\"", "shorter than continuing_subword_prefix"},
    {"added_tokens", "{}", "added_tokens is an object"},
    {"added_tokens", "[5]", "added_tokens[0] is an integer"},
    {"added_tokens", R"([{"id": 7}])", "added_tokens[0].content is missing"},
    {"added_tokens", R"([{"content": "x"}])", "added_tokens[0].id is missing"},
    {"added_tokens", R"([{"content": "x", "id": -5}])", "added_tokens[0].id is -5"},
    {"added_tokens", R"([{"content": "x", "id": 4294967296}])", "added_tokens[0].id is 4294967296"},
    {"added_tokens", R"([{"content": "x", "id": 3}])", "which is \"ab\" in model.vocab"},
    {"added_tokens", R"([{"content": "x", "id": 9}, {"content": "y", "id": 9}])", "already"},
    {"added_tokens", R"([{"content": "x", "id": 9, "special": 1}])", "added_tokens[0].special"},
    {"normalizer", "5", "normalizer is an integer"},
    {"normalizer", "{}", "normalizer.type is missing"},
    {"normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})", "is empty"},
    {"normalizer", R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})",
     "normalizer.pattern.Regex: the pattern \"(\" is invalid"},
    {"normalizer", R"({"type": "Replace", "pattern": "x", "content": ""})", "normalizer.pattern"},
    {"normalizer", R"({"type": "Sequence", "normalizers": {}})", "normalizer.normalizers"},
    {"normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, 5]})",
     "normalizer.normalizers[1]"},
    {"normalizer", R"({"type": "Prepend"})", "normalizer.prepend is missing"},
    {"normalizer", R"({"type": "Strip", "strip_left": -1})", "normalizer.strip_left"},
    {"pre_tokenizer", R"({"type": "Split"})", "pre_tokenizer.pattern"},
    {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "[z-a]"}, "behavior": "Isolated"})",
     "is invalid"},
    {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a[b"}, "behavior": "Isolated"})",
     "a class without an end"},
    {"pre_tokenizer",
     R"({"type": "Split", "pattern": {"Regex": "(*NO_JIT)a"}, "behavior": "Isolated"})", "(*"},
    {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "\\"}, "behavior": "Isolated"})",
     "backslash"},
    {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"})",
     "pre_tokenizer.behavior is \"Sideways\""},
    {"pre_tokenizer", R"({"type": "FixedLength", "length": 0})", "pre_tokenizer.length is 0"},
    {"pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})", "one character"},
    {"pre_tokenizer", R"({"type": "Metaspace", "prepend_scheme": "last"})", "prepend_scheme"},
    {"pre_tokenizer", R"({"type": "CharDelimiterSplit", "delimiter": ""})", "delimiter"},
    {"pre_tokenizer", R"({"type": "UnicodeScripts"})", "\"UnicodeScripts\""},
    {"decoder", R"({"type": "CTC"})", "decoder.type is \"CTC\""},
    {"decoder", R"({"type": "Strip", "content": " ", "start": -1})", "decoder.start is -1"},
    {"decoder", R"({"type": "Strip", "content": " ", "stop": 99999999999})", "decoder.stop"},
    {"decoder", R"({"type": "Strip", "content": "ab"})", "decoder.content"},
    {"decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, null]})",
     "decoder.decoders[1]"},
    {"post_processor", R"({"type": "Other"})", "post_processor.type"},
    {"post_processor.special_tokens", "{}", "post_processor.single[0].SpecialToken is \"<s>\""},
    {"post_processor.special_tokens", R"({"<s>": {"ids": [99]}})", "no such id"},
    {"post_processor.special_tokens", R"({"<s>": {"ids": [-1]}})",
     "post_processor.special_tokens.<s>.ids[0] is -1"},
    {"post_processor.special_tokens", R"({"<s>": {"ids": 7}})", "ids is an integer"},
    {"post_processor.single", "[]", "no place for the text"},
    {"post_processor.single", R"([{"Sequence": {"id": "B"}}])", "not the single text"},
    {"post_processor.single", R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])",
     "not the single text"},
    {"post_processor", R"({"type": "BertProcessing", "cls": ["<s>", 7], "sep": ["x"]})",
     "post_processor.sep has 1"},
    {"post_processor", R"({"type": "RobertaProcessing", "cls": ["<s>", 70], "sep": ["<s>", 7]})",
     "post_processor.cls[1] is 70"},
};

TEST(HostileTokenizerJsonTest, FilesThatBreakARuleAreRefusedWithTheKey) {
  for (const BadFile& bad : kBadFiles) {
    const Status status = LoadAndUse(GoodWith(bad.path, bad.value).Dump());
    SCOPED_TRACE(testing::Message() << bad.path << " = " << bad.value);
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_NE(status.message().find(bad.says), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("tokenizer.json"), std::string::npos) << status.message();
    EXPECT_EQ(Visible(status.message(), status.message().size()), status.message());
  }
  EXPECT_TRUE(LoadAndUse(kGood).ok()) << LoadAndUse(kGood).message();
}

TEST(HostileTokenizerJsonTest, LongSpellingsAreRefused) {
  const std::string text = "\"" + std::string(5000, 'a') + "\"";
  const struct {
    std::string path, value;
  } kCases[] = {
      {"model.vocab", "{" + text + ": 0}"},
      {"model.end_of_word_suffix", text},
      {"added_tokens", "[{\"id\": 9, \"content\": " + text + "}]"},
      {"normalizer", "{\"type\": \"Prepend\", \"prepend\": " + text + "}"},
      {"decoder", R"({"type": "Replace", "pattern": {"String": "a"}, "content": )" + text + "}"},
  };
  for (const auto& bad : kCases) {
    const Status status = LoadAndUse(GoodWith(bad.path, bad.value).Dump());
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << bad.path;
    EXPECT_NE(status.message().find("5000 bytes"), std::string::npos) << status.message();
  }
}

TEST(HostileTokenizerJsonTest, DeepSequencesAreRefused) {
  for (const auto& [section, inner] :
       {std::pair{"normalizer", "normalizers"}, std::pair{"pre_tokenizer", "pretokenizers"},
        std::pair{"decoder", "decoders"}, std::pair{"post_processor", "processors"}}) {
    std::string value = R"({"type": "Sequence", ")" + std::string(inner) + "\": []}";
    for (int depth = 1; depth <= 9; ++depth) {
      const Status status = LoadAndUse(GoodWith(section, value).Dump());
      EXPECT_EQ(status.message().find("nested more than 8 deep") != std::string::npos, depth > 8)
          << section << " " << depth << ": " << status.message();
      value = R"({"type": "Sequence", ")" + std::string(inner) + "\": [" + value + "]}";
    }
  }
}

// Cyclic merges terminate, because each merge shortens the word.
TEST(HostileTokenizerJsonTest, CyclicMergesEnd) {
  Json file = *ParseJson(kGood);
  SetAt(&file, "model.vocab",
        *ParseJson(R"({"a": 0, "b": 1, "ab": 2, "aba": 3, "<u>": 5, "ba": 6})"));
  SetAt(&file, "model.merges", *ParseJson(R"(["a b", "b a", "ab a", "a ba", "a b", "ab a"])"));
  EXPECT_TRUE(LoadAndUse(file.Dump()).ok());
}

TEST(HostileTokenizerJsonTest, SectionsThatWouldCutATextAreIgnored) {
  Json file = *ParseJson(kGood);
  file.Set("truncation",
           *ParseJson(R"({"max_length": 1, "stride": 7, "strategy": "LongestFirst"})"));
  file.Set("padding", *ParseJson(R"({"strategy": {"Fixed": 99}, "pad_id": 4000000000})"));
  const ModelDir dir;
  dir.Write("tokenizer.json", file.Dump());
  const auto tokenizer = LoadTokenizer(dir.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(EncodedText(*tokenizer, "abcab"), (std::vector<TokenId>{4, 3}));
  EXPECT_EQ(tokenizer->Prefix(), (std::vector<TokenId>{7}));
}

TEST(HostileTokenizerJsonTest, APatternThatBacktracksForEverIsAnError) {
  const std::string text(4000, 'a');
  for (const char* pattern : {"(a+)+[bc]", "(a|aa)+[bc]", "(?:a*)*[bc]$"}) {
    const ModelDir dir;
    dir.Write("tokenizer.json",
              GoodWith("pre_tokenizer", fmt::format(R"({{"type": "Split", "behavior": "Isolated",
                                                     "pattern": {{"Regex": "{}"}}}})",
                                                    pattern))
                  .Dump());
    const auto tokenizer = LoadTokenizer(dir.path());
    ASSERT_NE(tokenizer, nullptr);
    const auto ids = tokenizer->EncodeText(text);
    EXPECT_EQ(ids.status().code(), StatusCode::kBadInput) << pattern;
    EXPECT_NE(ids.status().message().find("the pattern"), std::string::npos);
  }
}

// Each match alone is cheap, but every place has one (vLLM's GHSA-rwxx-mrjm-wc2m), so the work for
// a whole text is bounded.
TEST(HostileTokenizerJsonTest, APatternThatBacktracksAtEveryPlaceIsAnError) {
  std::string runs;
  while (runs.size() < 105'000) runs += "xxxxxxxxxxxxxxxxxxxx.";
  const std::pair<const char*, std::string> cases[] = {{"(x+x+)+y|.", runs},
                                                       {".*x|.", std::string(1 << 20, 'a')},
                                                       {"[^x]*x|.", std::string(1 << 20, 'a')},
                                                       {"(?:a|a)*b|.", std::string(1 << 16, 'a')}};
  for (const auto& [pattern, text] : cases) {
    SCOPED_TRACE(pattern);
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok());
    std::vector<TextRange> matches;
    const Status status = regex->FindAll(text, &matches);
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_NE(status.message().find("takes too many steps"), std::string::npos);
  }
}

// The parts of a text and the patterns of a tokenizer share one budget.
TEST(HostileTokenizerJsonTest, ABudgetIsOneForAllSearches) {
  const auto regex = Regex::Compile("(x+x+)+y|.");
  ASSERT_TRUE(regex.ok());
  const std::string text = "xxxxxxxxxxxxxxx.";
  std::vector<TextRange> matches;
  MatchBudget budget(text.size());
  const uint64_t whole = budget.left();
  ASSERT_TRUE(regex->FindAll(text, &matches).ok());
  const uint64_t one = whole - budget.left();
  EXPECT_GT(one, 10'000u);
  int searches = 1;
  while (regex->FindAll(text, &matches).ok()) ++searches;
  EXPECT_EQ(searches, static_cast<int>(whole / one));
}

// A match is searched in a short part of the text first, and in more if that is not decisive.
TEST(HostileTokenizerJsonTest, MatchesReachAsFarAsTheyDoInTheWhole) {
  const std::string a(3000, 'a');
  const struct {
    const char* pattern;
    std::string text;
    std::vector<std::pair<size_t, size_t>> matches;
  } cases[] = {
      {"a+b|c", a + "bc", {{0, 3001}, {3001, 3002}}},
      {"a+(?=c)", a + "c", {{0, 3000}}},
      {"a+(?!c)", a + "c", {{0, 2999}}},
      {"b", a + "b" + a, {{3000, 3001}}},
      {"(?<=b)a+", "b" + a, {{1, 3001}}},
      {"\\b\\w+\\b", "." + a + ".", {{1, 3001}}},
      {"a+$", a + "\n" + a, {{0, 3000}, {3001, 6001}}},
      {"a{300}", std::string(700, 'a'), {{0, 300}, {300, 600}}},
      {"a{300}$", std::string(700, 'a'), {{400, 700}}},
      {"x*", std::string(2, 'a'), {{0, 0}, {1, 1}, {2, 2}}},
      {"(?:a|b)+", a, {{0, 3000}}},
      {"é+", std::string(255, 'a') + "éé" + a, {{255, 259}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.pattern);
    const auto regex = Regex::Compile(c.pattern);
    ASSERT_TRUE(regex.ok()) << regex.status().message();
    std::vector<TextRange> found;
    ASSERT_TRUE(regex->FindAll(c.text, &found).ok());
    std::vector<std::pair<size_t, size_t>> matches;
    for (const TextRange& match : found) matches.emplace_back(match.begin, match.end);
    EXPECT_EQ(matches, c.matches);
  }
}

// Strips more characters than a token has; the reference's decoder fails on this.
TEST(HostileTokenizerJsonTest, StrippingMoreThanThereIsLeavesNothing) {
  const auto with = [](const char* decoder) {
    const ModelDir dir;
    dir.Write("tokenizer.json", GoodWith("decoder", decoder).Dump());
    return LoadTokenizer(dir.path());
  };
  const auto each = with(R"({"type": "Strip", "content": " ", "start": 3, "stop": 3})");
  ASSERT_NE(each, nullptr);
  EXPECT_EQ(each->Decode(std::vector<TokenId>{6, 0, 6}), "a");
  const auto fused = with(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                              {"type": "Strip", "content": " ", "start": 2, "stop": 2}]})");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->Decode(std::vector<TokenId>{6}), "");
  EXPECT_EQ(fused->Decode(std::vector<TokenId>{6, 6, 6, 0, 6, 6, 6}), " a ");
}

TEST(HostileTokenizerJsonTest, AReplacementThatGrowsATextPastTheLimitIsAnError) {
  const std::string step = R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" +
                           std::string(4000, 'a') + "\"}";
  const ModelDir dir;
  dir.Write("tokenizer.json", GoodWith("normalizer", step).Dump());
  const auto tokenizer = LoadTokenizer(dir.path());
  ASSERT_NE(tokenizer, nullptr);
  const std::string text(17'000, 'a');
  EXPECT_EQ(tokenizer->EncodeText(text).status().code(), StatusCode::kBadInput);
}

TEST(HostileTokenizerJsonTest, DamagedJsonIsRefusedByName) {
  const std::string good = kGood;
  for (size_t size = 0; size < good.size(); size += 7) {
    const Status status = LoadAndUse(good.substr(0, size));
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << size;
    EXPECT_NE(status.message().find("tokenizer.json"), std::string::npos);
  }
  EXPECT_NE(LoadAndUse(R"({"model": {}, "model": {}})").message().find("duplicate key"),
            std::string::npos);
}

TEST(HostileTokenizerJsonTest, RandomDamageIsHarmless) {
  std::mt19937 random(9);
  SCOPED_TRACE("seed 9");
  const std::string good = ParseJson(kGood)->Dump();
  int loaded = 0;
  for (int i = 0; i < 300; ++i) {
    std::string text = good;
    for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
      text[random() % text.size()] = "0129ab\"[]{},:<>x "[random() % 17];
    }
    loaded += LoadAndUse(text).ok() ? 1 : 0;
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace minisgl::text
