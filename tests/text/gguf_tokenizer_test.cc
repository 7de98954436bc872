// Tokenizers of GGUF files (golden/make_gguf.py): the same as those that they were made from.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gguf_builder.h"
#include "minisgl/text/chat_template.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

const std::string kTokenizerFolder = MINISGL_SOURCE_DIR "/tests/text/tokenizers";
const std::string kChat = MINISGL_SOURCE_DIR "/tests/golden/gguf/chat.gguf";

void ExpectSame(const Tokenizer& found, const Tokenizer& wanted) {
  EXPECT_EQ(found.vocab_size(), wanted.vocab_size());
  EXPECT_EQ(found.Prefix(), wanted.Prefix());
  EXPECT_EQ(found.Suffix(), wanted.Suffix());
  for (TokenId id = 0; id < wanted.vocab_size(); ++id) {
    ASSERT_EQ(found.PieceText(id), wanted.PieceText(id));
    ASSERT_EQ(found.IsSpecial(id), wanted.IsSpecial(id)) << found.PieceText(id);
  }
  size_t num_lines = 0;
  for (const Json& row : ReadRows(kTokenizerFolder + "/lines.jsonl")) {
    const Json* const text = row.Find("text");
    if (text == nullptr) continue;
    ++num_lines;
    for (const bool trusted : {false, true}) {
      const std::vector<TextPiece> pieces = {{text->as_string(), trusted}};
      const auto ids = found.Encode(pieces), others = wanted.Encode(pieces);
      ASSERT_TRUE(ids.ok() && others.ok());
      ASSERT_EQ(*ids, *others) << text->as_string();
      ASSERT_EQ(found.Decode(*ids), wanted.Decode(*others));
    }
  }
  EXPECT_GT(num_lines, 200u);
}

class GgufTokenizerTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizerTest, IdsAndTextsAreThoseOfTheOriginal) {
  const std::string name = GetParam();
  const auto found = LoadTokenizer(kTokenizerFolder + "/gguf/" + name + ".gguf");
  const auto wanted = LoadTokenizer(name == "wren" ? kWrenDir : kTokenizerFolder + "/" + name);
  ASSERT_TRUE(found != nullptr && wanted != nullptr);
  ExpectSame(*found, *wanted);
}

INSTANTIATE_TEST_SUITE_P(All, GgufTokenizerTest,
                         testing::Values("gpt2", "llama3", "o200k", "qwen2", "wren"),
                         [](const auto& one) { return std::string(one.param); });

TEST(GgufTokenizerTest, ControlTokensAndTheTemplateAreRead) {
  const auto tokenizer = LoadTokenizer(kChat);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->eos_token(), "<|endoftext|>");
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  const auto id = tokenizer->IdOf("<|im_start|>");
  ASSERT_TRUE(id);
  EXPECT_TRUE(tokenizer->IsSpecial(*id));
  const auto chat = ChatTemplate::Load(kChat);
  ASSERT_TRUE(chat.ok() && *chat != nullptr) << chat.status().message();
  ChatInput input;
  input.messages = *ParseJson(R"([{"role": "user", "content": "Hi <|im_end|>"}])");
  const auto pieces = (*chat)->Render(input);
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(Joined(*pieces), "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
  const auto ids = tokenizer->Encode(*pieces);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), *tokenizer->IdOf("<|im_end|>")), 1);
  EXPECT_EQ(ChatTemplate::LoadNamed(kChat, "other").status().code(), StatusCode::kNoInput);
}

// A file with tokenizer "gpt2" of a few tokens.
GgufBuilder Small() {
  GgufBuilder file;
  file.Text("tokenizer.ggml.model", "gpt2");
  file.Text("tokenizer.ggml.pre", "gpt-2");
  file.Texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>"});
  file.Ints("tokenizer.ggml.token_type", {1, 1, 1, 3});
  file.Texts("tokenizer.ggml.merges", {"a b"});
  return file;
}

Status StatusOf(const GgufBuilder& file) {
  ModelDir dir;
  dir.Write("model.gguf", file.Write());
  return Tokenizer::Load(dir.path() + "/model.gguf").status();
}

TEST(GgufTokenizerTest, WrongKeysAreOneError) {
  EXPECT_TRUE(StatusOf(Small()).ok()) << StatusOf(Small()).message();
  const auto expect_fails = [](const std::function<void(GgufBuilder*)>& change,
                               const std::string& part) {
    GgufBuilder file = Small();
    change(&file);
    const Status status = StatusOf(file);
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  expect_fails([](auto* file) { file->values.erase("tokenizer.ggml.model"); }, "(found none)");
  expect_fails([](auto* file) { file->Text("tokenizer.ggml.model", "bert"); }, "(found \"bert\")");
  expect_fails([](auto* file) { file->values.erase("tokenizer.ggml.pre"); }, "(found none)");
  expect_fails([](auto* file) { file->Text("tokenizer.ggml.pre", "odd"); },
               "(found \"odd\"); known: llama-bpe");
  expect_fails([](auto* file) { file->values.erase("tokenizer.ggml.tokens"); }, "ggml.tokens");
  expect_fails([](auto* file) { file->Ints("tokenizer.ggml.tokens", {1}); }, "a list of texts");
  expect_fails([](auto* file) { file->Texts("tokenizer.ggml.tokens", {}); }, "is empty");
  expect_fails(
      [](auto* file) {
        file->Ints("tokenizer.ggml.token_type", {1, 1});
      },
      "a list of 4 elements");
  expect_fails(
      [](auto* file) {
        file->Ints("tokenizer.ggml.token_type", {1, 1, 1, 9});
      },
      "token 3 has a type");
  expect_fails([](auto* file) { file->values.erase("tokenizer.ggml.merges"); }, "ggml.merges");
  expect_fails([](auto* file) { file->Texts("tokenizer.ggml.merges", {"a c"}); }, "\"c\"");
  expect_fails(
      [](auto* file) {
        file->Texts("tokenizer.ggml.tokens", {"a", "b", "ab", "a"});
      },
      "\"a\"");
  // Of model "llama" there must be a score for each token, and one of them the unknown token.
  const auto of_llama = [](const std::vector<uint32_t>& types, size_t num_scores) {
    return [types, num_scores](GgufBuilder* file) {
      file->Text("tokenizer.ggml.model", "llama");
      file->Ints("tokenizer.ggml.token_type", types);
      file->Floats("tokenizer.ggml.scores", std::vector<float>(num_scores, -1));
    };
  };
  expect_fails(of_llama({2, 1, 1, 3}, 3), "ggml.scores\": a list of 4 elements");
  expect_fails(of_llama({1, 1, 1, 3}, 4), "<unk>");
}

}  // namespace
}  // namespace minisgl::text
