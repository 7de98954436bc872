// Compares streams of tokens with the library's decoding of the whole, for random ids and real
// texts.
#include "minisgl/text/stream_decoder.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "minisgl/base/utf8.h"
#include "text_test_util.h"

namespace minisgl {
namespace {

// The file contains the output of the library, written by make_decode_cases.py.
TEST(StreamDecoderTest, RandomIdsDecodeAsTheLibraryDecodesThem) {
  const auto rows = ReadRows(MINISGL_SOURCE_DIR "/tests/text/decode_cases.jsonl");
  ASSERT_GE(rows.size(), 700u);
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  for (const Json& row : rows) {
    const std::string model = row.Find("model")->as_string();
    auto& tokenizer = tokenizers[model];
    if (tokenizer == nullptr) {
      tokenizer = MakeTokenizer(ReadBytes(MINISGL_SOURCE_DIR "/tests/" + model));
    }
    ASSERT_NE(tokenizer, nullptr) << model;
    const auto ids = Ids(*row.Find("ids"));
    ASSERT_EQ(tokenizer->Decode(ids), row.Find("decoded")->as_string()) << model;
    ASSERT_EQ(Streamed(*tokenizer, ids), row.Find("decoded")->as_string()) << model;
  }
}

// Every tokenizer, at every split: the result does not depend on how the ids are divided.
TEST(StreamDecoderTest, JoinedPiecesAreTheWholeForRandomIds) {
  SCOPED_TRACE("seed 7");
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(LoadTokenizer(kWrenDir));
  for (const std::string name : {"mistral-v1", "mistral-v3"}) {
    if (!HasShared("tokenizers/" + name + ".model")) continue;
    tokenizers.push_back(MakeTokenizer(ReadBytes(SharedDir() + "/tokenizers/" + name + ".model")));
  }
  for (const auto& tokenizer : tokenizers) {
    ASSERT_NE(tokenizer, nullptr);
    const TokenId first_byte = *tokenizer->IdOf("<0x00>");
    for (int i = 0; i < 500; ++i) {
      std::vector<TokenId> ids(random() % 24);
      for (TokenId& id : ids) {
        id = random() % 2 == 0 ? first_byte + static_cast<TokenId>(0x80 + random() % 128)
                               : static_cast<TokenId>(random() % tokenizer->vocab_size());
      }
      ASSERT_EQ(Streamed(*tokenizer, ids), tokenizer->Decode(ids));
    }
  }
}

TEST(StreamDecoderTest, ACharacterOfFourBytesComesAtOnce) {
  const auto tokenizer = LoadTokenizer(kWrenDir);
  ASSERT_NE(tokenizer, nullptr);
  const auto ids = EncodedText(*tokenizer, "\xF0\x9F\x98\x80");
  ASSERT_EQ(ids.size(), 4u);
  StreamDecoder decoder(tokenizer.get());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(decoder.Push(ids[i]), "");
  EXPECT_EQ(decoder.Push(ids[3]), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoderTest, BytesOfACharacterThatNeverCameAreReplacedOneByOne) {
  const auto tokenizer = LoadTokenizer(kWrenDir);
  ASSERT_NE(tokenizer, nullptr);
  const TokenId first_byte = *tokenizer->IdOf("<0x00>");
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Push(first_byte + 0xE2), "");
  EXPECT_EQ(decoder.Push(first_byte + 0x82), "");
  EXPECT_EQ(decoder.Push(first_byte + 'A'),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(decoder.Push(first_byte + 0xFF), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.Push(first_byte + 0xF0), "");
  EXPECT_EQ(decoder.Finish(), "\xEF\xBF\xBD");
}

TEST(StreamDecoderTest, OneLeadingSpaceIsDroppedAtTheStartOnly) {
  const auto tokenizer =
      MakeTokenizer(ReadBytes(MINISGL_SOURCE_DIR "/tests/fuzz/corpus/tokenizer/small_bpe.model"));
  ASSERT_NE(tokenizer, nullptr);
  ASSERT_TRUE(tokenizer->DropsLeadingSpace());
  const auto ids = EncodedText(*tokenizer, "the fox");
  StreamDecoder at_start(tokenizer.get(), /*at_start=*/true),
      after_prompt(tokenizer.get(), /*at_start=*/false);
  std::string first, second;
  for (TokenId id : ids) {
    first += at_start.Push(id);
    second += after_prompt.Push(id);
  }
  EXPECT_EQ(first + at_start.Finish(), "the fox");
  EXPECT_EQ(second + after_prompt.Finish(), " the fox");
}

// A model's vocabulary is often larger than its tokenizer's, and such an id can be sampled.
TEST(StreamDecoderTest, IdsThatTheTokenizerDoesNotHaveAreNoText) {
  const auto tokenizer = LoadTokenizer(kWrenDir);
  ASSERT_NE(tokenizer, nullptr);
  for (const TokenId id :
       {tokenizer->vocab_size(), tokenizer->vocab_size() + 1000,
        std::numeric_limits<TokenId>::max(), TokenId{-1}, std::numeric_limits<TokenId>::min()}) {
    EXPECT_FALSE(tokenizer->IsSpecial(id)) << id;
    EXPECT_EQ(tokenizer->PieceText(id), "") << id;
    EXPECT_EQ(tokenizer->PieceBytes(id), "") << id;
    auto ids = EncodedText(*tokenizer, "one two");
    const std::string text = tokenizer->Decode(ids);
    ids.insert(ids.begin() + 1, id);
    ids.push_back(id);
    for (bool keep_special : {false, true}) EXPECT_EQ(tokenizer->Decode(ids, keep_special), text);
    EXPECT_EQ(Streamed(*tokenizer, ids), text);
  }
}

TEST(StreamDecoderTest, EveryPrefixOfARealTextIsAPrefixOfItsStream) {
  const auto tokenizer = LoadTokenizer(kWrenDir);
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = "na\xC3\xAFve \xE4\xB8\xAD\xE6\x96\x87\n \xF0\x9F\x98\x80 end";
  const auto ids = EncodedText(*tokenizer, text);
  StreamDecoder decoder(tokenizer.get());
  std::string so_far;
  for (TokenId id : ids) {
    so_far += decoder.Push(id);
    EXPECT_TRUE(text.starts_with(so_far));
  }
  EXPECT_EQ(so_far + decoder.Finish(), text);
}

}  // namespace
}  // namespace minisgl
