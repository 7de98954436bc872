// GGUF files as models: what their metadata say, and that a file that cannot run gives one error.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "gguf_builder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "test_files.h"

namespace minisgl {
namespace {

class GgufModelFileTest : public testing::Test {
 protected:
  GgufBuilder file_ = GgufBuilder::Llama();
  TempDir dir_;

  std::string Path() {
    dir_.Write("model.gguf", file_.Write());
    return dir_.File("model.gguf");
  }
  ModelConfig Config() {
    auto config = LoadModelConfig(Path());
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? *std::move(config) : ModelConfig();
  }
  // The file is changed by `change`, and opening it fails with `part` of a message.
  void ExpectFails(const std::function<void(GgufBuilder*)>& change, const std::string& part) {
    SCOPED_TRACE(part);
    GgufBuilder changed = file_;
    change(&changed);
    dir_.Write("changed.gguf", changed.Write());
    const Status status = Checkpoint::Open(dir_.File("changed.gguf")).status();
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_NE(status.message().find("changed.gguf: "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
};

TEST_F(GgufModelFileTest, TheMetadataAreTheConfiguration) {
  file_.Float("llama.rope.freq_base", 500000);
  file_.Int("tokenizer.ggml.bos_token_id", 3);
  file_.Int("tokenizer.ggml.eos_token_id", 4);
  file_.Int("tokenizer.ggml.eot_token_id", 5);
  const ModelConfig config = Config();
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 20);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_EQ(config.num_layers, 1);
  EXPECT_EQ(config.num_heads, 2);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_seq_len, 64);
  EXPECT_EQ(config.norm_eps, 1e-5);  // not the f32 nearest to it
  EXPECT_EQ(config.ropes[0].theta, 500000);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_EQ(config.bos_token_id, 3);
  EXPECT_EQ(config.eos_token_ids, (std::vector<TokenId>{4, 5}));
  const auto checkpoint = Checkpoint::Open(Path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->Names().size(), 11u);
  EXPECT_EQ((*checkpoint)->Files().size(), 1u);
  EXPECT_TRUE((*checkpoint)->Has("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_EQ((*checkpoint)->BytesOfLayer(-1).size(), 2u);
  EXPECT_EQ((*checkpoint)->BytesOfLayer(0).size(), 9u);
  EXPECT_TRUE((*checkpoint)->BytesOfLayer(1).empty());
}

TEST_F(GgufModelFileTest, TheTypeIsThatOfMostWeights) {
  for (auto& [name, tensor] : file_.tensors) {
    if (tensor.shape.size() > 1) tensor.type = 1;  // F16
  }
  EXPECT_EQ(Config().dtype, DType::kF16);
  for (auto& [name, tensor] : file_.tensors) {
    if (tensor.shape.size() > 1) tensor.type = 8;  // Q8_0
  }
  EXPECT_EQ(Config().dtype, DType::kBF16);
}

TEST_F(GgufModelFileTest, TokensThatEndATurnAreFoundByTheirText) {
  file_.Texts("tokenizer.ggml.tokens", {"a", "<eos>", "<end_of_turn>", "<|im_end|>"});
  file_.Ints("tokenizer.ggml.token_type", {1, 3, 3, 1});  // the last is ordinary text
  file_.Int("tokenizer.ggml.eos_token_id", 1);
  EXPECT_EQ(Config().eos_token_ids, (std::vector<TokenId>{1, 2}));
  file_.Texts("tokenizer.ggml.tokens", {"a", "<eos>", "[e~[", "<｜end▁of▁sentence｜>"});
  file_.Ints("tokenizer.ggml.token_type", {1, 3, 3, 3});
  EXPECT_EQ(Config().eos_token_ids, (std::vector<TokenId>{1, 2, 3}));
}

// Files keep the layers that draft tokens behind the model's; lists of layers count them, too.
TEST_F(GgufModelFileTest, LayersThatDraftTokensAreLeftOut) {
  file_.Int("llama.block_count", 2);
  file_.Int("llama.nextn_predict_layers", 1);
  file_.Ints("llama.attention.head_count_kv", {1, 1});
  file_.tensors["blk.1.nextn.eh_proj.weight"] = {{32, 64}};
  file_.tensors["blk.1.attn_norm.weight"] = {{32}};
  EXPECT_EQ(Config().num_layers, 1);
  const auto checkpoint = Checkpoint::Open(Path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_FALSE((*checkpoint)->Has("model.layers.1.input_layernorm.weight"));
  ExpectFails([](GgufBuilder* file) { file->Int("llama.nextn_predict_layers", 0); },
              "has no tensor \"blk.1.");
}

TEST_F(GgufModelFileTest, WrongMetadataAreOneError) {
  using File = GgufBuilder;
  ExpectFails([](File* file) { file->values.erase("general.architecture"); },
              "\"general.architecture\" is missing");
  ExpectFails([](File* file) { file->Text("general.architecture", "mamba"); },
              "architecture \"mamba\" are not run; supported: llama, mistral3");
  for (const char* key :
       {"block_count", "context_length", "embedding_length", "attention.head_count"}) {
    ExpectFails([&](File* file) { file->values.erase(std::string("llama.") + key); },
                fmt::format("key \"llama.{}\": an integer from", key));
  }
  ExpectFails([](File* file) { file->Int("llama.block_count", 0); }, "(found 0)");
  ExpectFails([](File* file) { file->Int("llama.block_count", 4'000'000'000); }, "to 10000");
  ExpectFails([](File* file) { file->Text("llama.block_count", "one"); }, "(found \"one\")");
  ExpectFails(
      [](File* file) {
        file->Ints("llama.attention.head_count", {2, 4});
      },
      "one number for all layers");
  ExpectFails([](File* file) { file->Int("llama.attention.head_count", 3); }, "a divisor of 32");
  ExpectFails([](File* file) { file->Int("llama.attention.value_length", 8); }, "16 is needed");
  ExpectFails([](File* file) { file->Int("llama.rope.dimension_count", 8); }, "all of a head");
  ExpectFails([](File* file) { file->Text("llama.rope.scaling.type", "odd"); }, "\"yarn\"");
  ExpectFails(
      [](File* file) {
        file->Float("llama.rope.freq_base", std::numeric_limits<float>::infinity());
      },
      "a finite number is needed");
  ExpectFails([](File* file) { file->Int("tokenizer.ggml.bos_token_id", 20); },
              "bos_token_id\": a token's id below 20 is needed (found 20)");
  ExpectFails([](File* file) { file->values.erase("llama.attention.layer_norm_rms_epsilon"); },
              "layer_norm_rms_epsilon\": a number is needed (found nothing)");
  ExpectFails([](File* file) { file->Int("tokenizer.ggml.eos_token_id", 20); },
              "eos_token_id\": a token's id below 20 is needed (found 20)");
  ExpectFails([](File* file) { file->Text("tokenizer.ggml.eot_token_id", "x"); },
              "(found no integer)");
}

// Errors that a config.json would give name the file's keys.
TEST_F(GgufModelFileTest, ErrorsNameKeysOfTheMetadata) {
  using File = GgufBuilder;
  ExpectFails([](File* file) { file->Float("llama.attention.layer_norm_rms_epsilon", -1); },
              "key \"llama.attention.layer_norm_rms_epsilon\": found -1");
  ExpectFails([](File* file) { file->Int("llama.attention.head_count_kv", 3); },
              "key \"llama.attention.head_count_kv\": found 3");
  ExpectFails([](File* file) { file->Float("llama.rope.freq_base", 0); },
              "key \"llama.rope.freq_base\": found 0");
  ExpectFails(
      [](File* file) { file->tensors["rope_freqs.weight"] = {{5}}; },
      "key \"rope_freqs.weight or rope_factors_short.weight\": found 5 values; an array of 8");
}

// Nothing is planned with sizes that the tensors do not have: the file is wrong, not the memory.
TEST_F(GgufModelFileTest, SizesThatTheTensorsDoNotHaveAreAnErrorOfTheFile) {
  file_.Int("llama.feed_forward_length", 1 << 24);
  const Status status = LoadModelConfig(Path()).status();
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("model.gguf: tensor \"blk.0.ffn_gate.weight\": its shape"),
            std::string::npos)
      << status.message();
}

// Keys that the newer families need beyond sizes. A test takes a key away by giving it another
// name.
TEST_F(GgufModelFileTest, KeysThatAFamilyNeedsAreNamed) {
  const auto expect_needed = [&](const std::string& model, const std::string& name,
                                 const std::string& words) {
    SCOPED_TRACE(name);
    std::string bytes = *ReadFile(MINISGL_SOURCE_DIR "/tests/golden/gguf/" + model, 1 << 20);
    const size_t at = bytes.find(name);
    ASSERT_NE(at, std::string::npos);
    bytes[at + name.size() - 1] = '_';
    dir_.Write("changed.gguf", bytes);
    const Status status = LoadModelConfig(dir_.File("changed.gguf")).status();
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  const char *const latent = "deepseek_v2.gguf", *const sigmoid = "deepseek_v3.gguf";
  expect_needed(latent, "deepseek2.rope.scaling.yarn_log_multiplier",
                "yarn_log_multiplier\": a number is needed with yarn (found nothing)");
  expect_needed(latent, "deepseek2.attention.kv_lora_rank", "kv_lora_rank\": an integer from");
  expect_needed(latent, "deepseek2.expert_count", "expert_count\": an integer from 1");
  expect_needed(latent, "blk.1.attn_k_b.weight", "has no tensor \"blk.1.attn_k_b.weight\"");
  // Without the key they are scored by softmax.
  expect_needed(sigmoid, "deepseek2.expert_gating_func",
                "key \"deepseek2.expert_weights_norm\": found true; only false is supported");
  expect_needed("nemotron_h.gguf", "nemotron_h.ssm.inner_size",
                "ssm.inner_size\": an integer from");
  expect_needed("nemotron_h.gguf", "nemotron_h.feed_forward_length", "feed_forward_length\": an");
  expect_needed("nemotron_h_moe.gguf", "blk.1.exp_probs_b.bias", "\"blk.1.exp_probs_b.bias\"");
  expect_needed("gemma4_text.gguf", "gemma4.attention.key_length_swa",
                "key_length_swa\": an integer");
  expect_needed("gemma4_text.gguf", "rope_freqs.weight", "ones, and then 1e30 or more, are needed");
  expect_needed("gemma4_text.gguf", "blk.3.attn_q_norm.weight", "\"blk.3.attn_q_norm.weight\"");
  expect_needed("gemma4_moe.gguf", "blk.2.ffn_gate_up_exps.weight",
                "\"blk.2.ffn_gate_exps.weight\"");
  expect_needed("apertus.gguf", "xielu.beta",
                "key \"xielu.beta\": a list of 2 numbers, one for each layer, is needed");
  expect_needed("cohere2.gguf", "cohere2.attention.layer_norm_epsilon",
                "layer_norm_epsilon\": a number is needed (found nothing)");
  expect_needed("glm4_moe.gguf", "glm4moe.expert_shared_count",
                "expert_shared_count\": an integer");
  expect_needed("granitemoehybrid.gguf", "granitehybrid.ssm.time_step_rank",
                "ssm.time_step_rank\": an integer");
  expect_needed("ministral3.gguf", "mistral3.rope.scaling.type",
                "\"yarn\" is needed where queries are scaled by their position");
  expect_needed("muse_glimmer.gguf", "blk.0.attn_q_norm.weight", "one number throughout is needed");
  expect_needed("muse_glimmer.gguf", "blk.1.attn_q_norm.weight", "unknown tensor \"blk.1.attn_q");
  expect_needed("qwen3_next.gguf", "qwen3next.ssm.group_count", "ssm.group_count\": an integer");
  expect_needed("qwen3_next.gguf", "blk.0.ssm_ba.weight", "\"blk.0.ssm_ba.weight\"");
  expect_needed("stablelm_parallel.gguf", "blk.1.attn_k_norm.weight",
                "\"blk.1.attn_k_norm.weight\"");
}

// It replaces the one that follows from the scaling.
TEST_F(GgufModelFileTest, AFactorOfYarnIsTheAttentionFactor) {
  file_.Text("llama.rope.scaling.type", "yarn");
  file_.Float("llama.rope.scaling.factor", 8);
  file_.Float("llama.rope.scaling.yarn_attn_factor", 1.25f);
  EXPECT_EQ(Config().ropes[0].attention_factor, 1.25);
  file_.Float("llama.rope.scaling.yarn_attn_factor", 1);  // what llama.cpp writes for none
  EXPECT_GT(Config().ropes[0].attention_factor, 1.2);
  EXPECT_LT(Config().ropes[0].attention_factor, 1.21);
}

// Rates are stored as -exp(w).
TEST_F(GgufModelFileTest, ADecayRateThatIsNoPowerIsRefused) {
  const std::string golden = MINISGL_SOURCE_DIR "/tests/golden/gguf/nemotron_h.gguf";
  std::string bytes = *ReadFile(golden, 1 << 20);
  const auto header = GgufHeader::Parse(AsBytes(bytes));
  ASSERT_TRUE(header.ok()) << header.status().message();
  for (const GgufTensor& tensor : header->tensors) {
    if (tensor.name != "blk.0.ssm_a") continue;
    for (const float rate : {0.5f, 0.f, std::numeric_limits<float>::quiet_NaN()}) {
      std::memcpy(bytes.data() + tensor.begin + sizeof(float), &rate, sizeof(rate));
      dir_.Write("changed.gguf", bytes);
      const Status status = Checkpoint::Open(dir_.File("changed.gguf")).status();
      EXPECT_EQ(status.code(), StatusCode::kBadInput);
      EXPECT_NE(status.message().find("tensor \"blk.0.ssm_a\": numbers below 0 are needed (found"),
                std::string::npos)
          << status.message();
    }
  }
}

TEST_F(GgufModelFileTest, AFactorWithoutATypeScalesLinearly) {
  EXPECT_EQ(Config().ropes[0].scaling, RopeScaling::kNone);
  file_.Float("llama.rope.scaling.factor", 8);
  EXPECT_EQ(Config().ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(Config().ropes[0].factor, 8);
  file_.values.erase("llama.rope.scaling.factor");
  file_.Float("llama.rope.scale_linear", 4);
  EXPECT_EQ(Config().ropes[0].factor, 4);
  file_.Text("llama.rope.scaling.type", "none");
  EXPECT_EQ(Config().ropes[0].scaling, RopeScaling::kNone);
}

TEST_F(GgufModelFileTest, RotaryFactorsThatDoNotFitTogetherAreRefused) {
  using File = GgufBuilder;
  const auto scales = [](File* file, const char* type) {
    file->Text("llama.rope.scaling.type", type);
    file->Float("llama.rope.scaling.factor", 8);
  };
  ExpectFails(
      [&](File* file) {
        scales(file, "linear");
        file->tensors["rope_freqs.weight"] = {{8}};
      },
      "none is supported beside tensors of factors");
  ExpectFails([](File* file) { file->tensors["rope_factors_long.weight"] = {{8}}; },
              "the model needs both");
  ExpectFails([&](File* file) { scales(file, "longrope"); }, "tensors of factors are needed");
  ExpectFails([](File* file) { file->Text("llama.rope.scaling.type", "yarn"); },
              "rope.scaling.factor\": a number is needed");
  ExpectFails(
      [&](File* file) {
        scales(file, "yarn");
        file->Float("llama.rope.scaling.attn_factor", 3);
      },
      "attn_factor\": 1 is supported");
}

TEST_F(GgufModelFileTest, WrongTensorsAreOneError) {
  using File = GgufBuilder;
  ExpectFails([](File* file) { file->tensors.erase("token_embd.weight"); }, "token_embd.weight");
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    ExpectFails([&](File* file) { file->tensors.erase(name); },
                fmt::format("has no tensor \"{}\"", name));
  }
  ExpectFails(
      [](File* file) {
        file->tensors["blk.0.attn_q.weight"].shape = {32, 64};
      },
      "(found [32, 64]); wanted [32, 32]");
  ExpectFails([](File* file) { file->tensors["blk.0.attn_norm.weight"].shape = {31}; },
              "(found [31]); wanted [32]");
  ExpectFails([](File* file) { file->tensors["blk.0.attn_q.weight"].type = 24; },
              "elements of type I8, which is not run");
  ExpectFails([](File* file) { file->tensors["blk.0.attn_norm.weight"].type = 8; },
              "elements of type Q8_0; F32, F16 and BF16 are supported there");
  ExpectFails([](File* file) { file->tensors["blk.0.extra.weight"] = {{32}}; },
              "unknown tensor \"blk.0.extra.weight\"");
  ExpectFails([](File* file) { file->tensors["rope_freqs.weight"] = {{8}, 1}; }, "of type F32");
  // A column of one element a row, stored as a row of whole blocks.
  ExpectFails(
      [](File* file) {
        file->Int("llama.feed_forward_length", 1);
        for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"}) {
          file->tensors[name].shape = {1, 32};
        }
        file->tensors["blk.0.ffn_down.weight"] = {{32}, 8};
      },
      "rows of 1 elements are no whole blocks of 32 (Q8_0)");
}

}  // namespace
}  // namespace minisgl
