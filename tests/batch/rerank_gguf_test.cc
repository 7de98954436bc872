// `minisgl rerank` with a GGUF file: the scores of the directory that it was made of, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gguf_builder.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/weights/checkpoint.h"
#include "program/program.h"
#include "program/run_fixture.h"
#include "vision/vision_test_util.h"

namespace minisgl::batch {
namespace {

const std::string kReranker = MINISGL_SOURCE_DIR "/tests/golden/scoring/reranker";

// The name of a tensor in GGUF files.
std::string GgufName(std::string name) {
  static const std::pair<const char*, const char*> kParts[] = {
      {"model.embed_tokens.", "token_embd."},
      {"model.norm.", "output_norm."},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : kParts) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, std::strlen(from), to);
  }
  return name;
}

void AddTokenizer(const Json& file, int64_t vocab_size, GgufBuilder* gguf) {
  std::map<int64_t, std::pair<std::string, uint32_t>> tokens;  // by id, with their types
  for (const auto& [piece, id] : file.Find("model")->Find("vocab")->as_object()) {
    tokens[id.as_int()] = {piece, 1};
  }
  for (const Json& added : file.Find("added_tokens")->as_array()) {
    const bool is_control = *added.Find("special") == Json(true);
    tokens[added.Find("id")->as_int()] = {added.Find("content")->as_string(), is_control ? 3 : 4};
  }
  std::vector<std::string> pieces, merges;
  std::vector<uint32_t> types;
  for (int64_t id = 0; id < vocab_size; ++id) {
    const auto token = tokens.find(id);
    pieces.push_back(token == tokens.end() ? "[PAD" + std::to_string(id) + "]"
                                           : token->second.first);
    types.push_back(token == tokens.end() ? 5 : token->second.second);
  }
  for (const Json& merge : file.Find("model")->Find("merges")->as_array()) {
    merges.push_back(merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string());
  }
  gguf->Text("tokenizer.ggml.model", "gpt2");
  gguf->Text("tokenizer.ggml.pre", "gpt-2");
  gguf->Texts("tokenizer.ggml.tokens", pieces);
  gguf->Ints("tokenizer.ggml.token_type", types);
  gguf->Texts("tokenizer.ggml.merges", merges);
}

// The model of tests/golden/make_scoring.py as llama.cpp's converter writes it.
std::string RerankerFile() {
  GgufBuilder gguf;
  gguf.Text("general.architecture", "qwen3");
  const std::pair<const char*, uint32_t> numbers[] = {
      {"block_count", 2},          {"context_length", 512},      {"embedding_length", 32},
      {"feed_forward_length", 48}, {"attention.head_count", 4},  {"attention.head_count_kv", 2},
      {"attention.key_length", 8}, {"attention.value_length", 8}};
  for (const auto& [key, value] : numbers) gguf.Int(std::string("qwen3.") + key, value);
  gguf.Float("qwen3.attention.layer_norm_rms_epsilon", 1e-6F);
  gguf.Float("qwen3.rope.freq_base", 10000);
  const auto tokenizer = ParseJson(*ReadFile(kReranker + "/tokenizer.json", 1 << 20));
  EXPECT_TRUE(tokenizer.ok());
  if (tokenizer.ok()) AddTokenizer(*tokenizer, 448, &gguf);
  const auto checkpoint = Checkpoint::Open(kReranker);
  EXPECT_TRUE(checkpoint.ok());
  if (!checkpoint.ok()) return "";
  for (const std::string& name : (*checkpoint)->Names()) {
    const TensorView tensor = *(*checkpoint)->Get(name);
    GgufBuilder::Tensor written;
    written.shape.assign(tensor.shape.begin(), tensor.shape.end());
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
      const float value = tensor.At(i);
      char bytes[4];
      std::memcpy(bytes, &value, 4);
      written.data.append(bytes, 4);
    }
    gguf.tensors[GgufName(name)] = std::move(written);
  }
  return gguf.Write();
}

using RerankGgufTest = RunProgramTest;

TEST_F(RerankGgufTest, AFileGivesTheScoresOfItsDirectory) {
  const std::string file = folder_.Write("reranker.gguf", RerankerFile());
  std::string rows;
  for (const Json& row : ReadJsonLines(kReranker + "/expected.jsonl")) {
    Json out = Json(Json::Object());
    for (const char* key : {"query", "documents", "instruction"}) out.Set(key, *row.Find(key));
    rows += out.Dump() + "\n";
  }
  const auto rank = [&](const std::string& model) {
    return RunProgram({"rerank", "-q", "-m", model, "--num-pages", "512", "--threads", "1"},
                      {rows, "", {}});
  };
  const ProgramResult of_file = rank(file);
  EXPECT_EQ(of_file.exit_code, 0) << of_file.err;
  EXPECT_EQ(Rows(of_file.out).size(), 2u);
  EXPECT_EQ(of_file.out, rank(kReranker).out);
}

}  // namespace
}  // namespace minisgl::batch
