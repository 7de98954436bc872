// Damaged and crafted tokenizer.model files: either rejected with a reason, or loaded so that
// encoding and decoding work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "processor_seconds.h"
#include "text/sentencepiece/charsmap.h"
#include "text/sentencepiece/model.h"
#include "text/sentencepiece/tokenizer.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

const std::string kCorpus = MINISGL_SOURCE_DIR "/tests/fuzz/corpus/tokenizer/";

SentencePieceModel GoodModel(const std::string& file = kWrenDir + "/tokenizer.model") {
  auto model = SentencePieceModel::Read(ReadBytes(file));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

// Reads `bytes`; on success, uses the tokenizer as a run would. False if they are rejected.
bool LoadsAndWorks(const std::string& bytes) {
  auto model = SentencePieceModel::Read(bytes);
  auto tokenizer = model.ok() ? SentencePieceTokenizer::Create(std::move(*model), TokenizerConfig())
                              : Result<std::unique_ptr<Tokenizer>>(model.status());
  if (!tokenizer.ok()) {
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kBadInput);
    EXPECT_FALSE(tokenizer.status().message().empty());
    return false;
  }
  for (const std::string text : {"", "Hello </s> <|user|>\n", "\xEF\xAC\x81 \xC3\xA9\xFF  x",
                                 "\xE3\x80\x80"
                                 "A\xCC\x80"}) {
    const auto ids =
        (*tokenizer)->Encode(std::vector<TextPiece>{{"<s>", true}, {text, false}, {text, true}});
    if (!ids.ok()) continue;
    for (TokenId id : *ids) EXPECT_TRUE(id >= 0 && id < (*tokenizer)->vocab_size());
    (*tokenizer)->Decode(*ids);
  }
  return true;
}

struct BadModel {
  const char* what;
  std::function<void(SentencePieceModel*)> damage;
  const char* says;
};

TEST(HostileTokenizerTest, ModelsThatBreakARuleAreRefusedWithTheReason) {
  const auto replace_byte_piece = [](const char* text) {
    return [text](SentencePieceModel* model) { model->pieces[7].text = text; };
  };
  const BadModel kCases[] = {
      {"no pieces", [](auto* model) { model->pieces.clear(); }, "no pieces"},
      {"no unk", [](auto* model) { model->pieces[0].type = PieceType::kControl; }, "<unk>"},
      {"two unks", [](auto* model) { model->pieces[1].type = PieceType::kUnknown; }, "<unk>"},
      {"empty piece", [](auto* model) { model->pieces[500].text = ""; }, "empty"},
      {"huge piece", [](auto* model) { model->pieces[500].text.assign(200'000, 'a'); },
       "200000 bytes"},
      {"piece twice", [](auto* model) { model->pieces[500].text = model->pieces[501].text; },
       "twice"},
      {"control twice", [](auto* model) { model->pieces[2].text = "<s>"; }, "twice"},
      {"ill-formed piece", [](auto* model) { model->pieces[500].text = "\xC3"; }, "UTF-8"},
      {"zero byte in a symbol", [](auto* model) { model->pieces[4].text = std::string("<\0>", 3); },
       "zero byte"},
      {"score that is no number",
       [](auto* model) { model->pieces[500].score = std::numeric_limits<float>::quiet_NaN(); },
       "score"},
      {"infinite score",
       [](auto* model) { model->pieces[500].score = std::numeric_limits<float>::infinity(); },
       "score"},
      {"byte piece with a sign", replace_byte_piece("<0x-1>"), "<0xNN>"},
      {"byte piece with a plus", replace_byte_piece("<0x+1>"), "<0xNN>"},
      {"byte piece with a blank", replace_byte_piece("<0x 7>"), "<0xNN>"},
      {"byte piece with a letter", replace_byte_piece("<0x4G>"), "<0xNN>"},
      {"byte piece in small letters", replace_byte_piece("<0xab>"), "<0xNN>"},
      {"byte piece that is too long", replace_byte_piece("<0x000>"), "<0xNN>"},
      {"a missing byte", [](auto* model) { model->pieces[7].type = PieceType::kNormal; }, "256"},
      {"bytes without fallback", [](auto* model) { model->byte_fallback = false; },
       "byte_fallback"},
      {"table of one byte", [](auto* model) { model->charsmap = "a"; }, "truncated"},
      {"table of three bytes", [](auto* model) { model->charsmap = "abc"; }, "truncated"},
      {"table larger than itself",
       [](auto* model) { model->charsmap = std::string("\0\1\0\0abcd", 8); }, "table"},
      {"table of half units",
       [](auto* model) { model->charsmap = std::string("\3\0\0\0abcd\0", 9); }, "table"},
      {"table without a trie", [](auto* model) { model->charsmap = std::string("\0\0\0\0\0", 5); },
       "table"},
      {"table without an end",
       [](auto* model) { model->charsmap = std::string("\4\0\0\0\0\0\0\0a", 9); },
       "not terminated"},
      {"root past the trie",
       [](auto* model) { model->charsmap = std::string("\4\0\0\0\0\xFF\xFF\x7F\0", 9); },
       "outside"},
      {"trie shorter than a block",
       [](auto* model) { model->charsmap = std::string("\4\0\0\0\0\4\0\0\0", 9); }, "outside"},
      {"70 symbols in a chain",
       [](auto* model) {
         for (int i = 0; i < 70; ++i) {
           model->pieces[400 + i] = {std::string(static_cast<size_t>(i) + 1, '\n') + " ", 0,
                                     PieceType::kUserDefined};
         }
         for (int i = 0; i < 70; ++i)
           model->pieces[400 + i].text = std::string(static_cast<size_t>(i) + 2, '\n');
       },
       "64"},
  };
  const SentencePieceModel good = GoodModel();
  const ModelDir dir;
  for (const BadModel& bad : kCases) {
    SentencePieceModel model = good;
    bad.damage(&model);
    std::filesystem::remove(dir.path() + "/tokenizer.model");
    dir.Write("tokenizer.model", model.Write());
    const auto tokenizer = Tokenizer::Load(dir.path());
    ASSERT_FALSE(tokenizer.ok()) << bad.what;
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kBadInput) << bad.what;
    EXPECT_NE(tokenizer.status().message().find(bad.says), std::string::npos)
        << bad.what << ": " << tokenizer.status().message();
  }
}

TEST(HostileTokenizerTest, ProtocolBufferDamageIsRefused) {
  const std::string good = ReadBytes(kWrenDir + "/tokenizer.model");
  const std::string kTails[] = {
      "\x0B",                       // a group begins (field 1)
      std::string(20'000, '\x0B'),  // twenty thousand of them
      "\x0C",                       // a group ends
      "\x0F",                       // wire type 7
      std::string(1, '\0'),         // field 0
      "\x0A",                       // a length is missing
      "\x0A\x05"
      "ab",  // a length past the end
      "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"
      "a",                                             // a length of 2^64 - 1
      "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  // a tag of eleven bytes
      "\x08\x01",                                      // a piece that is a number
      "\x0A\x02\x08\x01",                              // a piece's text that is a number
      "\x0A\x05\x0A\x01z\x18\x09",                     // a piece of type 9
      "\x0A\x02\x15\x00",                              // a score of one byte
      "\x12\x02\x18\x03",                              // a word model
      "\x12\x03\xC0\x01\x01",                          // white space as a suffix
      "\x2A\x03\x12\x01x",                             // a denormaliser
      "\x1A\x02\x10\x01",                              // a table that is a number
  };
  for (const std::string& tail : kTails) {
    EXPECT_FALSE(SentencePieceModel::Read(good + tail).ok())
        << "tail of " << tail.size() << " bytes";
  }
  EXPECT_FALSE(SentencePieceModel::Read("").ok());
  EXPECT_FALSE(SentencePieceModel::Read("IQ== 0\nIg== 1\n").ok());
}

TEST(HostileTokenizerTest, UnknownFieldsArePassedOver) {
  const std::string good = ReadBytes(kWrenDir + "/tokenizer.model");
  EXPECT_TRUE(LoadsAndWorks(good + "\xD0\x0F\x07" + "\xD2\x0F\x02hi"));
}

TEST(HostileTokenizerTest, EveryCutOfASmallModelIsHarmless) {
  const std::string good = ReadBytes(kCorpus + "small_unigram.model");
  for (size_t size = 0; size < good.size(); ++size) LoadsAndWorks(good.substr(0, size));
}

TEST(HostileTokenizerTest, RandomDamageIsHarmless) {
  constexpr int kSeed = 11;
  SCOPED_TRACE("seed 11");
  std::mt19937 random(kSeed);
  for (const char* file : {"small_unigram.model", "small_bpe.model"}) {
    const std::string good = ReadBytes(kCorpus + file);
    for (int i = 0; i < 400; ++i) {
      std::string bytes = good;
      for (size_t edits = 1 + random() % 4; edits > 0; --edits) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      LoadsAndWorks(bytes);
    }
  }
}

// Flips the bits of every unit of the table, without the protocol buffer around it.
TEST(HostileTokenizerTest, DamagedNormalisationTablesAreHarmless) {
  const SentencePieceModel good = GoodModel(kCorpus + "small_unigram.model");
  ASSERT_FALSE(good.charsmap.empty());
  std::mt19937 random(13);
  SCOPED_TRACE("seed 13");
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    SentencePieceModel model = good;
    for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
      model.charsmap[4 + random() % (model.charsmap.size() - 4)] ^=
          static_cast<char>(1 << random() % 8);
    }
    refused += LoadsAndWorks(model.Write()) ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

// A cyclic trie with a rule would give the library more results than its array can hold.
TEST(HostileTokenizerTest, ATableWithACycleOfRulesIsRefused) {
  constexpr uint32_t kUnits = 256;
  const uint32_t rule = 1u << 8;
  std::string trie(kUnits * 4, '\0');
  const auto set = [&](uint32_t index, uint32_t unit) { std::memcpy(&trie[index * 4], &unit, 4); };
  set(0, 0);                             // root: children at 0 ^ label
  set('a', ('a' | rule) | ('a' << 10));  // 'a': its base is 0 again, so 'a' can follow 'a' forever
  const std::string size("\0\4\0\0", 4);
  EXPECT_FALSE(CheckCharsmap(size + trie + std::string("x\0", 2)).ok());
}

// A walk begins at the root without looking for a rule, but looks for one if a text leads back to
// it.
TEST(HostileTokenizerTest, ATableThatLeadsBackToItsRootIsCheckedThere) {
  constexpr uint32_t kUnits = 2048, kRule = 1u << 8, kBase = 0x100, kChild = kBase ^ 'B';
  std::string trie;
  const auto set = [&](uint32_t index, uint32_t unit) { std::memcpy(&trie[index * 4], &unit, 4); };
  for (const uint32_t place : {0u, 0x70000000u}) {
    trie.assign(kUnits * 4, '\xFF');  // leaves that no text reaches
    set(0, kBase << 10 | kRule | 'A');
    set(kChild, (kChild ^ 'A') << 10 | 'B');  // 'A' after 'B' is the root again
    set(kBase, place | 1u << 31);             // the text of the root's rule
    const std::string size("\0\x20\0\0", 4);
    EXPECT_FALSE(CheckCharsmap(size + trie + std::string("x\0", 2)).ok()) << place;
  }
}

TEST(HostileTokenizerTest, LongSymbolsDoNotMakeMatchingSlow) {
  SentencePieceModel model = GoodModel();
  model.pieces[500] = {"<" + std::string(4000, 'a') + ">", 0, PieceType::kControl};
  model.pieces[501] = {"aaa", 0, PieceType::kControl};
  const auto tokenizer =
      MakeTokenizer(model.Write(), R"({"added_tokens_decoder": {"502": {"content": ")" +
                                       std::string(4000, 'a') + R"(b", "special": true}}})");
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = std::string(1'000'000, 'a');
  const double begin = ProcessorSeconds();
  EXPECT_EQ(tokenizer->Decode(Encoded(*tokenizer, {{"a " + text, true}}), true), "a " + text);
  EXPECT_LT(ProcessorSeconds() - begin, 5.0);
}

TEST(HostileTokenizerTest, AControlPieceOfOneLetterNeverComesFromText) {
  SentencePieceModel model = GoodModel();
  model.pieces[1].text = "x";  // the vocabulary also has a plain "x"
  const auto tokenizer = MakeTokenizer(model.Write());
  ASSERT_NE(tokenizer, nullptr);
  const auto ids = Encoded(*tokenizer, {{"x axe", false}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0);
  EXPECT_EQ(tokenizer->Decode(ids), "x axe");
}

}  // namespace
}  // namespace minisgl::text
