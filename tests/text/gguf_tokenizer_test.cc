// Tokenizers of GGUF files (golden/make_gguf.py): the same as those that they were made from.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "generated_lines.h"
#include "gguf_builder.h"
#include "minisgl/base/log.h"
#include "minisgl/text/chat_template.h"
#include "text/gguf_splits.h"
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

// A file with the vocabulary of `folder` that is cut as `kind` says.
GgufBuilder OfKind(const std::string& kind, const std::string& folder) {
  constexpr uint32_t kNormal = 1, kControl = 3, kUnused = 5, kByte = 6;
  const Json json = *ParseJson(ReadBytes(folder + "/tokenizer.json"));
  const Json& model = *json.Find("model");
  std::vector<std::string> tokens;
  for (const auto& [text, id] : model.Find("vocab")->as_object()) {
    const auto place = static_cast<size_t>(id.as_int());
    tokens.resize(std::max(tokens.size(), place + 1));
    tokens[place] = text;
  }
  std::vector<uint32_t> types(tokens.size(), kNormal);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].starts_with("<0x") && tokens[i].size() == 6) types[i] = kByte;
    if (tokens[i] == "<unk>") types[i] = kControl;
    if (!tokens[i].empty()) continue;
    tokens[i] = fmt::format("[PAD{}]", i);
    types[i] = kUnused;
  }
  std::vector<std::string> merges;
  for (const Json& merge : model.Find("merges")->as_array()) {
    const Json::Array& pair = merge.as_array();
    merges.push_back(pair[0].as_string() + " " + pair[1].as_string());
  }
  GgufBuilder file;
  const bool is_byte_level = kind != "gemma4";
  file.Text("tokenizer.ggml.model", is_byte_level ? "gpt2" : kind);
  if (is_byte_level) file.Text("tokenizer.ggml.pre", kind);
  if (!is_byte_level) file.Int("tokenizer.ggml.unknown_token_id", 3);
  file.Texts("tokenizer.ggml.tokens", tokens);
  file.Ints("tokenizer.ggml.token_type", types);
  file.Texts("tokenizer.ggml.merges", merges);
  return file;
}

std::unique_ptr<Tokenizer> TokenizerOfKind(const std::string& kind) {
  if (kind == "llama") return LoadTokenizer(kTokenizerFolder + "/gguf/wren.gguf");
  const ModelDir dir;
  const std::string folder = kTokenizerFolder + (kind == "gemma4" ? "/gemma" : "/qwen2");
  dir.Write("model.gguf", OfKind(kind, folder).Write());
  return LoadTokenizer(dir.path() + "/model.gguf");
}

const std::vector<Json>& ReferenceRows() {
  static const auto& rows =
      *new std::vector<Json>(ReadRows(MINISGL_SOURCE_DIR "/tests/text/gguf_tokenizer_cases.jsonl"));
  return rows;
}

const std::vector<std::string>& Lines() {
  static const auto& lines = *new std::vector<std::string>(GeneratedLines());
  return lines;
}

TEST(GgufTokenizerTest, TheLinesAreThoseOfTheReferences) {
  LineHash hash;
  for (const std::string& line : Lines()) {
    for (const char byte : line + "\n") hash.Add(static_cast<unsigned char>(byte), 1);
  }
  EXPECT_EQ(hash.Hex(), ReferenceRows()[0].Find("lines")->as_string());
  EXPECT_EQ(Lines().size(), 5000u);
  EXPECT_EQ(ReferenceRows().size(), 1u + 35);
}

// Each kind encodes 5,000 lines as the library that defines it, by hashes of 50 lines. The ids of
// lines with another hash are written to a file, in which make_gguf_tokenizer_cases.py finds the
// line.
class GgufKindTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufKindTest, IdsAreTheReferences) {
  const std::string kind = GetParam();
  const auto row = std::find_if(ReferenceRows().begin() + 1, ReferenceRows().end(),
                                [&](const Json& one) { return *one.Find("kind") == Json(kind); });
  ASSERT_NE(row, ReferenceRows().end());
  const auto tokenizer = TokenizerOfKind(kind);
  ASSERT_NE(tokenizer, nullptr);
  const Json::Array& hashes = row->Find("hashes")->as_array();
  ASSERT_EQ(hashes.size(), 100u);
  const size_t block_lines = Lines().size() / hashes.size();
  for (size_t block = 0; block < hashes.size(); ++block) {
    LineHash hash;
    Json all = Json(Json::Array());
    for (size_t line = block * block_lines; line < (block + 1) * block_lines; ++line) {
      Json ids = Json(Json::Array());
      for (const TokenId id : EncodedText(*tokenizer, Lines()[line])) {
        hash.Add(static_cast<uint64_t>(id), 4);
        ids.Append(int64_t{id});
      }
      hash.Add(0xFFFFFFFF, 4);
      all.Append(std::move(ids));
    }
    if (hash.Hex() == hashes[block].as_string()) continue;
    const std::string path = ::testing::TempDir() + "gguf_tokenizer_" + kind + ".json";
    Json found = Json(Json::Object());
    found.Set("kind", kind).Set("block", static_cast<int64_t>(block)).Set("ids", std::move(all));
    std::ofstream(path) << found.Dump();
    FAIL() << "lines " << block * block_lines << " and the next differ; see\n"
           << "python3 tests/text/make_gguf_tokenizer_cases.py --compare " << path;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufKindTest,
    testing::Values("llama-bpe", "smaug-bpe", "glm4", "qwen2", "stablelm2", "qwen35", "gpt-4o",
                    "tekken", "deepseek-v3", "deepseek-llm", "deepseek-coder", "gpt-2", "starcoder",
                    "default", "gemma4", "llama", "jais-2", "lfm2.5", "bailingmoe", "seed-coder",
                    "ufakzeka", "laguna", "minicpm5", "exaone-moe", "tiny_aya", "youtu", "kimi-k2",
                    "spark2_5", "afmoe", "chameleon", "superbpe", "bloom", "viking", "falcon",
                    "minimax-m2"),
    [](const auto& kind) {
      std::string name = kind.param;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

// The names of llama.cpp's table, but for "whitespace", of one model that gives vectors alone.
TEST(GgufTokenizerTest, EveryNameOfTheTableIsKnown) {
  constexpr const char* kNames =
      "default minicpm5 llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 "
      "jina-v5-nano deepseek-llm deepseek-coder deepseek-v3 spark2_5 youtu falcon mpt starcoder "
      "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
      "jais-2 jina-v1-en jina-v2-code roberta-bpe refact command-r qwen2 deepseek-r1-qwen kormo "
      "f2llmv2 qwen35 stablelm2 olmo dbrx smaug-bpe poro-chat chatglm-bpe glm4 glm5 viking jais "
      "tekken smollm codeshell bloom gpt3-finnish exaone exaone4 exaone-moe chameleon minerva-7b "
      "megrez gpt-4o llama4 kanana2 talkie granite-embed-multi-97m tiny_aya cohere2moe superbpe "
      "trillion granite-docling bailingmoe bailingmoe2 llada-moe seed-coder hunyuan hunyuan-dense "
      "hy_v4 joyai-llm kimi-k2 ufakzeka grok-2 afmoe laguna minimax-m2 solar-open mellum2";
  std::istringstream names(kNames);
  for (std::string name; names >> name;) EXPECT_NE(FindGgufSplit(name), nullptr) << name;
  for (const char* name : {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}) {
    EXPECT_TRUE(IsUncut(name)) << name;
  }
}

// Files of LFM2.5-8B-A1B, whose table is larger than LFM2's, name the cut of LFM2.
TEST(GgufTokenizerTest, TheTableTellsTheCutsOfLfm2Apart) {
  EXPECT_EQ(FindGgufSplit("lfm2", 65536), FindGgufSplit("llama-bpe"));
  EXPECT_EQ(FindGgufSplit("lfm2", 128000), FindGgufSplit("lfm2.5"));
}

// Texts that are not cut have the ids of Gemma 4's.
TEST(GgufTokenizerTest, UncutTextsHaveOneNameForEachFamily) {
  const auto wanted = TokenizerOfKind("gemma4");
  GgufBuilder file = OfKind("gemma4", kTokenizerFolder + "/gemma");
  file.Text("tokenizer.ggml.model", "gpt2");
  file.Text("tokenizer.ggml.pre", "sarvam-moe");
  const ModelDir dir;
  dir.Write("model.gguf", file.Write());
  const auto found = LoadTokenizer(dir.path() + "/model.gguf");
  ASSERT_TRUE(wanted != nullptr && found != nullptr);
  for (const char* text : {"Two  words", "1234 \n\n x"}) {
    EXPECT_EQ(EncodedText(*found, text), EncodedText(*wanted, text));
  }
}

// Every name that is accepted stands for one of the kinds that were compared.
TEST(GgufTokenizerTest, EveryWayOfCuttingTextIsCompared) {
  std::set<const GgufSplit*> compared;
  for (const Json& row : ReferenceRows()) {
    if (row.Find("kind") != nullptr) compared.insert(FindGgufSplit(row.Find("kind")->as_string()));
  }
  std::istringstream names(GgufSplitNames());
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    EXPECT_TRUE(compared.contains(FindGgufSplit(name))) << name;
  }
}

// Files from before the key existed are cut as llama.cpp cuts them, and that is said.
TEST(GgufTokenizerTest, AFileThatDoesNotSayHowIsCutByTheDefaultWithAWarning) {
  const std::string folder = kTokenizerFolder + "/qwen2";
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::kWarning) warnings.push_back(line);
  });
  const auto load = [&](const GgufBuilder& file) {
    const ModelDir dir;
    dir.Write("model.gguf", file.Write());
    return LoadTokenizer(dir.path() + "/model.gguf");
  };
  GgufBuilder file = OfKind("default", folder);
  const auto named = load(file);
  file.values.erase("tokenizer.ggml.pre");
  const auto unnamed = load(file);
  load(OfKind("qwen2", folder));
  SetLogSink(nullptr);
  ASSERT_TRUE(named != nullptr && unnamed != nullptr);
  EXPECT_EQ(EncodedText(*named, "It's 1234, ok?"), EncodedText(*unnamed, "It's 1234, ok?"));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("model.gguf: key \"tokenizer.ggml.pre\" is \"default\""),
            std::string::npos)
      << warnings[0];
  EXPECT_NE(warnings[1].find("is missing: text is cut as llama.cpp"), std::string::npos);
}

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

// Files of Phi-3 have fillers of the same type as the unknown token.
TEST(GgufTokenizerTest, FillersAreNotTheUnknownToken) {
  for (const bool is_named : {false, true}) {
    GgufBuilder file;
    file.Text("tokenizer.ggml.model", "llama");
    file.Texts("tokenizer.ggml.tokens", {"[PAD0]", "<unk>", "a", "[PAD3]"});
    file.Ints("tokenizer.ggml.token_type", {2, 2, 1, 2});
    file.Floats("tokenizer.ggml.scores", {0, 0, -1, 0});
    if (is_named) file.Int("tokenizer.ggml.unknown_token_id", 1);
    file.Int("tokenizer.ggml.add_space_prefix", 0);
    const ModelDir dir;
    dir.Write("model.gguf", file.Write());
    const auto tokenizer = LoadTokenizer(dir.path() + "/model.gguf");
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(EncodedText(*tokenizer, "aba"), (std::vector<TokenId>{2, is_named ? 1 : 0, 2}));
  }
}

// Otherwise every conversation would be rendered as nothing.
TEST(GgufTokenizerTest, AnEmptyTemplateIsNone) {
  for (const char* text : {"", " \n"}) {
    GgufBuilder file = Small();
    file.Text("tokenizer.chat_template", text);
    ModelDir dir;
    dir.Write("model.gguf", file.Write());
    const auto chat = ChatTemplate::Load(dir.path() + "/model.gguf");
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    EXPECT_EQ(*chat, nullptr);
  }
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
  expect_fails([](auto* file) { file->Text("tokenizer.ggml.model", "rwkv"); }, "(found \"rwkv\")");
  expect_fails([](auto* file) { file->Text("tokenizer.ggml.model", "bert"); },
               "ggml.tokens\": the list has no \"[CLS]\"");
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
  // The model "llama" needs a score for each token, and an unknown token.
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
