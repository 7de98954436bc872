// tokenizer.json: every component compared with the tokenizers library
// (make_tokenizer_json_cases.py), trust, the files beside it, and the work for long texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "processor_seconds.h"
#include "slow.h"
#include "text/tokenizer_json/bpe.h"
#include "text/tokenizer_json/loader.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

const std::string kCasesFile = MINISGL_SOURCE_DIR "/tests/text/tokenizer_json_cases.jsonl";

// The file of one row: its model with its options, and its sections.
Json FileOf(const Json& models, const Json& row) {
  Json model = *models.Find(row.Find("model")->as_string());
  model.Set("type", "BPE");
  for (const auto& [key, value] : row.Find("options")->as_object()) model.Set(key, value);
  Json file = *row.Find("sections");
  file.Set("model", std::move(model));
  return file;
}

std::unique_ptr<Tokenizer> MakeJsonTokenizer(const Json& file, const std::string& config = "") {
  const ModelDir dir;
  dir.Write("tokenizer.json", file.Dump());
  if (!config.empty()) dir.Write("tokenizer_config.json", config);
  return LoadTokenizer(dir.path());
}

void CheckDecoded(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, const Json* decoded,
                  bool keep_special) {
  if (decoded == nullptr || decoded->is_null()) return;
  EXPECT_EQ(tokenizer.Decode(ids, keep_special), decoded->as_string());
  EXPECT_EQ(Streamed(tokenizer, ids, keep_special), decoded->as_string());
}

void CheckRow(const Tokenizer& tokenizer, const Json& row) {
  for (const Json& one : row.Find("cases")->as_array()) {
    const std::string text = one.Find("text")->as_string();
    SCOPED_TRACE(testing::Message() << "text " << Visible(text));
    const auto ids = Ids(*one.Find("ids"));
    EXPECT_EQ(Encoded(tokenizer, {{text, true}}), ids);
    CheckDecoded(tokenizer, ids, one.Find("decoded"), false);
    CheckDecoded(tokenizer, ids, one.Find(one.Find("kept") ? "kept" : "decoded"), true);
    const Json* whole = one.Find("whole");
    EXPECT_EQ(Concat({tokenizer.Prefix(), ids, tokenizer.Suffix()}), whole ? Ids(*whole) : ids);
  }
  for (const Json& one : row.Find("decodes")->as_array()) {
    CheckDecoded(tokenizer, Ids(*one.Find("ids")), one.Find("decoded"), false);
  }
}

TEST(TokenizerJsonTest, EveryComponentAgreesWithTheLibrary) {
  const auto rows = ReadRows(kCasesFile);
  ASSERT_GE(rows.size(), 50u);
  const Json& models = *rows[0].Find("models");
  for (size_t i = 1; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i].Find("name")->as_string());
    const auto tokenizer = MakeJsonTokenizer(FileOf(models, rows[i]));
    ASSERT_NE(tokenizer, nullptr);
    CheckRow(*tokenizer, rows[i]);
  }
}

// A byte-level tokenizer with added tokens of every kind, and a file to change.
class AddedTokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto rows = ReadRows(kCasesFile);
    for (size_t i = 1; i < rows.size(); ++i) {
      if (rows[i].Find("name")->as_string() == "added")
        file_ = FileOf(*rows[0].Find("models"), rows[i]);
      if (rows[i].Find("name")->as_string() == "llama")
        llama_ = FileOf(*rows[0].Find("models"), rows[i]);
    }
    ASSERT_TRUE(file_.is_object() && llama_.is_object());
    tokenizer_ = MakeJsonTokenizer(file_);
    ASSERT_NE(tokenizer_, nullptr);
  }
  Json file_, llama_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(AddedTokensTest, UntrustedTextSpellsNoMark) {
  for (const std::string text : {"<s>", "</s>", "<mask>", "<add>", "go<s>go"}) {
    const auto ids = Encoded(*tokenizer_, {{text, false}});
    EXPECT_TRUE(std::none_of(ids.begin(), ids.end(), [](TokenId id) {
      return id >= 400 && id != 405;
    })) << text;
    EXPECT_EQ(tokenizer_->Decode(ids), text);
    EXPECT_EQ(EncodedText(*tokenizer_, text), ids);
    EXPECT_NE(Encoded(*tokenizer_, {{text, true}}), ids) << text;
  }
}

// Words that are added and not special are no marks: they are tokens in any text.
TEST_F(AddedTokensTest, UntrustedTextHasAddedWords) {
  for (const std::string text : {"Hello", "a word here"}) {
    const auto ids = Encoded(*tokenizer_, {{text, false}});
    EXPECT_TRUE(std::any_of(ids.begin(), ids.end(), [](TokenId id) {
      return id >= 400 && id != 405;
    })) << text;
    EXPECT_EQ(Encoded(*tokenizer_, {{text, true}}), ids) << text;
    EXPECT_EQ(tokenizer_->Decode(ids), text);
  }
}

TEST_F(AddedTokensTest, ASpellingAcrossATrustBorderIsText) {
  for (const auto& [first, second] : {std::pair{true, false}, std::pair{false, true}}) {
    const auto ids = Encoded(*tokenizer_, {{"<ma", first}, {"sk>", second}});
    EXPECT_EQ(ids, EncodedText(*tokenizer_, "<mask>"));
  }
  EXPECT_EQ(Encoded(*tokenizer_, {{"<ma", true}, {"sk>", true}}), (std::vector<TokenId>{402}));
}

TEST_F(AddedTokensTest, WhiteSpaceIsTheSameEverywhere) {
  EXPECT_EQ(EncodedText(*tokenizer_, "a  b"), Encoded(*tokenizer_, {{"a  b", true}}));
  const auto ids = EncodedText(*tokenizer_, "a  b");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 405), 1);
  EXPECT_EQ(Encoded(*tokenizer_, {{"a ", true}, {" b", false}}), ids);
}

TEST_F(AddedTokensTest, NeighbouringPiecesAreOneText) {
  EXPECT_EQ(Encoded(*tokenizer_, {{"What they", true}, {"'re say", false}, {"ing", true}}),
            EncodedText(*tokenizer_, "What they're saying"));
  EXPECT_EQ(Encoded(*tokenizer_, {{"\xE4\xBD", false}, {"\xA0", true}}),
            EncodedText(*tokenizer_, "你"));
}

TEST_F(AddedTokensTest, IllFormedTextIsReplacedByMaximalRuns) {
  EXPECT_EQ(EncodedText(*tokenizer_, "a\xFF\xE2\x82z"), EncodedText(*tokenizer_, "a\uFFFD\uFFFDz"));
}

// Trust is tracked through a normaliser that changes lengths.
TEST_F(AddedTokensTest, TrustSurvivesNormalisation) {
  file_.Set("normalizer",
            *ParseJson(R"({"type": "Replace", "pattern": {"String": "x"}, "content": "yyy"})"));
  const auto tokenizer = MakeJsonTokenizer(file_);
  ASSERT_NE(tokenizer, nullptr);
  const auto ids = Encoded(*tokenizer, {{"x<add>x", false}, {"x<add>x", true}, {"<add>", false}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 403), 1);
  EXPECT_EQ(tokenizer->Decode(ids), "yyy<add>yyyyyy<add>yyy<add>");
  const auto before = EncodedText(*tokenizer, "x<add>xx");
  EXPECT_EQ(
      std::vector<TokenId>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(before.size())),
      before);
}

// A vocabulary in which merges or whole words give a special token.
TEST_F(AddedTokensTest, MergesMakeNoAddedToken) {
  const Json file = *ParseJson(R"({
      "added_tokens": [{"id": 3, "content": "ab", "special": true}], "pre_tokenizer": null,
      "decoder": {"type": "Fuse"},
      "model": {"type": "BPE", "ignore_merges": true, "merges": ["a b", "b c"],
                "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}}})");
  const auto tokenizer = MakeJsonTokenizer(file);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(EncodedText(*tokenizer, "ab"), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(EncodedText(*tokenizer, "abc"), (std::vector<TokenId>{0, 4}));
  EXPECT_EQ(Encoded(*tokenizer, {{"abc", true}}), (std::vector<TokenId>{3, 2}));
}

TEST_F(AddedTokensTest, TheConfigurationAddsTokensAndRoles) {
  const auto tokenizer = MakeJsonTokenizer(file_, R"({
      "bos_token": "<s>", "eos_token": {"content": "<add>"}, "pad_token": "<none>",
      "add_bos_token": true, "add_eos_token": true, "extra_special_tokens": {"x": "<more>"},
      "added_tokens_decoder": {"402": {"content": "<mask>", "special": true, "lstrip": false},
                               "410": {"content": "<more>", "special": false}}})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 411);
  // Only the file's post-processor adds ids around a text, and this file has none.
  EXPECT_TRUE(tokenizer->Prefix().empty());
  EXPECT_TRUE(tokenizer->Suffix().empty());
  EXPECT_EQ(tokenizer->bos_id(), 400);
  EXPECT_EQ(tokenizer->eos_token(), "<add>");
  EXPECT_TRUE(tokenizer->IsSpecial(403));
  EXPECT_TRUE(tokenizer->IsSpecial(410));
  EXPECT_EQ(tokenizer->IdOf("<more>"), 410);
  EXPECT_EQ(tokenizer->pad_token(), "<none>");
  // The flags of the configuration apply: no space is absorbed now.
  EXPECT_EQ(Encoded(*tokenizer, {{"x <mask>", true}}),
            Concat({EncodedText(*tokenizer, "x "), {402}}));
  EXPECT_NE(Encoded(*tokenizer_, {{"x <mask>", true}}), Encoded(*tokenizer, {{"x <mask>", true}}));
}

TEST_F(AddedTokensTest, TokensSayTheirSpellingAndTheirBytes) {
  const TokenId space = *tokenizer_->IdOf("Ġ");
  EXPECT_EQ(tokenizer_->PieceText(space), "Ġ");
  EXPECT_EQ(tokenizer_->PieceBytes(space), " ");
  EXPECT_EQ(tokenizer_->PieceBytes(400), "");
  EXPECT_EQ(tokenizer_->PieceBytes(403), "<add>");
  EXPECT_EQ(tokenizer_->PieceText(9999), "");
  EXPECT_EQ(tokenizer_->PieceBytes(-1), "");
  const auto llama = MakeJsonTokenizer(llama_);
  ASSERT_NE(llama, nullptr);
  EXPECT_EQ(llama->PieceBytes(*llama->IdOf("<0xE4>")), "\xE4");
  EXPECT_EQ(llama->PieceBytes(*llama->IdOf("▁")), " ");
  EXPECT_TRUE(llama->DropsLeadingSpace());
  EXPECT_FALSE(tokenizer_->DropsLeadingSpace());
}

TEST_F(AddedTokensTest, AnAnswerKeepsItsFirstSpace) {
  const auto llama = MakeJsonTokenizer(llama_);
  ASSERT_NE(llama, nullptr);
  const auto ids = EncodedText(*llama, "the the");
  StreamDecoder decoder(llama.get(), /*at_start=*/false);
  std::string text;
  for (TokenId id : ids) text += decoder.Push(id);
  EXPECT_EQ(text + decoder.Finish(), " the the");
  EXPECT_EQ(llama->Decode(ids), "the the");
}

// The reference's Llama class adds the space before the text, and after special tokens only if
// "legacy".
TEST_F(AddedTokensTest, TheLlamaClassDecidesWhereASpaceIsPut) {
  const auto literal = MakeJsonTokenizer(llama_);
  const auto llama = MakeJsonTokenizer(llama_, R"({"tokenizer_class": "LlamaTokenizer"})");
  const auto legacy =
      MakeJsonTokenizer(llama_, R"({"tokenizer_class": "LlamaTokenizerFast", "legacy": true})");
  const auto without = MakeJsonTokenizer(
      llama_, R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})");
  ASSERT_TRUE(literal && llama && legacy && without);
  EXPECT_EQ(without->Decode(Encoded(*without, {{" the", true}})), " the");
  EXPECT_FALSE(without->DropsLeadingSpace());
  const std::vector<TextPiece> text = {{"<s>the", true}};
  EXPECT_EQ(literal->Decode(Encoded(*literal, text)), "the");
  EXPECT_EQ(Encoded(*legacy, text), Encoded(*literal, text));
  EXPECT_NE(Encoded(*llama, text), Encoded(*literal, text));
  EXPECT_EQ(Encoded(*llama, {{"the", true}}), Encoded(*literal, {{"the", true}}));
  EXPECT_EQ(Encoded(*llama, {{"<s> the", true}}), Encoded(*legacy, {{"<s>the", true}}));
}

TEST_F(AddedTokensTest, TokenizerJsonIsReadBeforeTheOtherFiles) {
  const ModelDir dir;
  dir.Write("tokenizer.model", ReadBytes(kWrenDir + "/tokenizer.model"));
  EXPECT_EQ(LoadTokenizer(dir.path())->vocab_size(), 2048);
  dir.Write("tokenizer.json", file_.Dump());
  EXPECT_EQ(LoadTokenizer(dir.path())->vocab_size(), 408);
  dir.Write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_EQ(LoadTokenizer(dir.path())->vocab_size(), 2048);
  dir.Write("tokenizer.json", R"({"model": {"type": "BPE"}})");
  EXPECT_EQ(Tokenizer::Load(dir.path()).status().code(), StatusCode::kBadInput);
}

TEST_F(AddedTokensTest, TextsPastTheLimitAreRefused) {
  const std::string text(kTextBytesMax + 1, 'a');
  EXPECT_EQ(tokenizer_->EncodeText(text).status().code(), StatusCode::kBadInput);
}

// Files of later versions of the library contain 0 where earlier versions wrote null.
TEST_F(AddedTokensTest, ADropoutOfNothingIsNone) {
  for (const Json& nothing : {Json(), Json(int64_t{0}), Json(0.0)}) {
    Json model = *file_.Find("model");
    model.Set("dropout", nothing);
    file_.Set("model", std::move(model));
    const auto tokenizer = MakeJsonTokenizer(file_);
    ASSERT_NE(tokenizer, nullptr) << nothing.Dump();
    EXPECT_EQ(EncodedText(*tokenizer, "Hello"), EncodedText(*tokenizer_, "Hello"));
  }
}

// One word of 2^20 letters: the heap operations are linear in its length.
TEST(BpeTest, WorkGrowsWithTheLengthOfAWordAlone) {
  MarkSlow("words of a megabyte");
  auto vocabulary = std::make_shared<Vocabulary>();
  std::vector<BpeMerge> merges;
  ASSERT_TRUE(vocabulary->Add("a", 0).ok());
  for (TokenId id = 1; id < 10; ++id) {
    ASSERT_TRUE(vocabulary->Add(std::string(size_t{1} << id, 'a'), id).ok());
    merges.push_back({id - 1, id - 1, id});
  }
  const auto bpe = Bpe::Create(vocabulary, merges, {});
  ASSERT_TRUE(bpe.ok());
  constexpr size_t kBytes = size_t{1} << 20;
  for (const auto& [text, num_ids] :
       {std::pair{std::string(kBytes, 'a'), kBytes >> 9},
        std::pair{std::string(kBytes - 1, 'a'), (kBytes >> 9) - 1 + 9}}) {
    BpeScratch scratch;
    std::vector<TokenId> ids;
    bpe->Encode(text, &scratch, &ids);
    EXPECT_EQ(ids.size(), num_ids);
    // Each symbol is pushed and popped once, and each merge pushes two more.
    EXPECT_LE(scratch.num_heap_operations(), 6 * kBytes);
  }
}

TEST(BpeTest, RanksMergeWhatIsATokenTogether) {
  auto vocabulary = std::make_shared<Vocabulary>();
  const char* const kTokens[] = {"a", "b", "c", "bc", "abc", "ab"};
  for (size_t i = 0; i < std::size(kTokens); ++i) {
    ASSERT_TRUE(vocabulary->Add(kTokens[i], static_cast<int64_t>(i)).ok());
  }
  BpeOptions options;
  options.splits_into_bytes = true;
  const auto bpe = Bpe::FromRanks(vocabulary, options);
  ASSERT_TRUE(bpe.ok());
  BpeScratch scratch;
  std::vector<TokenId> ids;
  bpe->Encode("abcab\xFF", &scratch, &ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{4, 5}));
}

// 1 MiB of each class of character, through normaliser, pattern and merges.
TEST(TokenizerJsonTest, LongRunsOfOneClassTakeLessThanASecondEach) {
  MarkSlow("long runs of every class");
  constexpr double kSecondsMax = 10.0;  // sanitizer build on a busy machine; 0.4 in a release build
#if defined(__SANITIZE_ADDRESS__)
  constexpr size_t kTextBytes = size_t{128} << 10;
#else
  constexpr size_t kTextBytes = size_t{1} << 20;
#endif
  const auto rows = ReadRows(kCasesFile);
  for (const char* name : {"qwen2", "o200k", "llama"}) {
    const auto row = std::find_if(rows.begin() + 1, rows.end(), [&](const Json& one) {
      return one.Find("name")->as_string() == name;
    });
    ASSERT_NE(row, rows.end());
    const auto tokenizer = MakeJsonTokenizer(FileOf(*rows[0].Find("models"), *row));
    ASSERT_NE(tokenizer, nullptr);
    for (const char* unit :
         {" ", "a", "A", "7", "\n", "\t", "-", "中", "😀", "\u200D", "ж", "\u0301\u0323"}) {
      std::string text;
      while (text.size() < kTextBytes) text += unit;
      const double begin = ProcessorSeconds();
      const auto ids = EncodedText(*tokenizer, text);
      EXPECT_LT(ProcessorSeconds() - begin, kSecondsMax) << name << " " << Visible(unit);
      EXPECT_FALSE(ids.empty());
    }
  }
}

TEST(RegexTest, PatternsAreRewrittenForPcre) {
  const struct {
    const char *pattern, *pcre;
  } kPatterns[] = {
      {"a{2,3}+b{,4}", "(?:a{2,3})+b{0,4}"},
      {"(ab){2}+", "(?:(ab){2})+"},
      {"[\\h]\\H", "[0-9a-fA-F][^0-9a-fA-F]"},
      {"\\u4e00\\v", "\\x{4e00}\\x0b"},
      {"\\p{Letter}\\P{^Han}", "\\p{L}\\P{^sc:Han}"},
      {"\\p{Old_Italic}\\p{Old-Italic}\\p{Old Italic}",
       "\\p{sc:Old_Italic}\\p{sc:Old-Italic}\\p{sc:Old Italic}"},
      {"[a&&[^b]]", "(?:(?=(?:[^b]))[a])"},
      {"[^a&&b]", "(?:(?!(?=[b])[a])(?s:.))"},
      {"[a[bc]]", "[abc]"},
      {"(?mi:.)", "(?si:.)"},
      {"x?+y*+", "x?+y*+"},
  };
  for (const auto& [pattern, pcre] : kPatterns) {
    const auto rewritten = PcrePattern(pattern);
    ASSERT_TRUE(rewritten.ok()) << rewritten.status().message();
    EXPECT_EQ(*rewritten, pcre) << pattern;
  }
}

}  // namespace
}  // namespace minisgl::text
