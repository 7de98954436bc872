// Configurations of multimodal models as they are published: their text model is read, settings may
// stand at either level, and an unknown model is refused by its name and its text model's.
#include "weights/wrappers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config_check.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/architecture_table.h"
#include "weights/architectures.h"

namespace minisgl {
namespace {

constexpr const char* kGemma = R"({"architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106],
    "image_token_index": 262144, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024},
    "torch_dtype": "bfloat16", "vision_config": {"model_type": "siglip_vision_model"}})";

// `text` with the object `more` as its text_config.
std::string WithText(const char* text, const std::string& more) {
  auto json = ParseJson(text);
  const auto added = ParseJson(more);
  EXPECT_TRUE(json.ok() && added.ok());
  Json inner = *json->Find("text_config");
  for (const auto& [key, value] : added->as_object()) inner.Set(key, value);
  return json->Set("text_config", std::move(inner)).Dump();
}

TEST(WrappersTest, Gemma3LeavesOutWhatItsClassHas) {
  const ModelConfig config = Config(kGemma);
  EXPECT_EQ(config.wrapper, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(config.architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(config.text_prefix, "model.language_model.");
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.eos_token_ids, (std::vector<TokenId>{1, 106}));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.layers[5].sliding_window, 0);
  EXPECT_EQ(config.layers[4].sliding_window, 1024);
  EXPECT_EQ(CountParameters(config), 3'880'263'168);
  const ModelConfig large = Config(WithText(kGemma, R"({"head_dim": 128, "hidden_size": 5376,
      "intermediate_size": 21504, "num_attention_heads": 32, "num_hidden_layers": 62,
      "num_key_value_heads": 16, "query_pre_attn_scalar": 168})"));
  EXPECT_EQ(CountParameters(large), 27'009'346'304);
}

TEST(WrappersTest, MistralSmall) {
  constexpr const char* kText = R"({"architectures": ["Mistral3ForConditionalGeneration"],
      "image_token_index": 10, "model_type": "mistral3", "spatial_merge_size": 2,
      "text_config": {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
          "hidden_size": 5120, "intermediate_size": 32768, "max_position_embeddings": 131072,
          "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0,
          "sliding_window": null, "vocab_size": 131072},
      "torch_dtype": "bfloat16", "vision_config": {"model_type": "pixtral"}})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.architecture, "MistralForCausalLM");
  EXPECT_EQ(config.ropes[0].theta, 1e9);
  EXPECT_EQ(CountParameters(config), 23'572'403'200);
  EXPECT_EQ(
      Config(WithText(kText, R"({"model_type": "ministral3", "rope_theta": null})")).architecture,
      "Ministral3ForCausalLM");
}

TEST(WrappersTest, Qwen3Vl) {
  constexpr const char* kText = R"({"architectures": ["Qwen3VLForConditionalGeneration"],
      "image_token_id": 151655, "model_type": "qwen3_vl",
      "text_config": {"attention_bias": false, "bos_token_id": 151643, "dtype": "bfloat16",
          "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
          "intermediate_size": 6144, "max_position_embeddings": 262144,
          "model_type": "qwen3_vl_text", "num_attention_heads": 16, "num_hidden_layers": 28,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
          "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20],
              "rope_type": "default"},
          "rope_theta": 5000000, "tie_word_embeddings": true, "vocab_size": 151936},
      "tie_word_embeddings": true, "vision_config": {}})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.ropes[0].theta, 5e6);
  EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kNone);
  EXPECT_EQ(CountParameters(config), 1'720'574'976);
  EXPECT_FALSE(Config(kText, R"({"tie_word_embeddings": false})").tie_word_embeddings);
}

TEST(WrappersTest, Qwen3VlMoe) {
  const ModelConfig config = Config(R"({"architectures": ["Qwen3VLMoeForConditionalGeneration"],
      "model_type": "qwen3_vl_moe", "tie_word_embeddings": false, "vision_config": {},
      "text_config": {"attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
          "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 262144,
          "mlp_only_layers": [], "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 768,
          "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
          "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
          "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20],
              "rope_type": "default"},
          "rope_theta": 5000000, "vocab_size": 151936}})");
  EXPECT_EQ(config.experts.num_experts, 128);
  EXPECT_TRUE(config.experts.routing.renormalize);
  EXPECT_EQ(CountParameters(config), 30'532'122'624);
}

// Qwen2.5-VL was published without a text_config.
TEST(WrappersTest, OlderQwensAreFlat) {
  constexpr const char* kText = R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"],
      "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944,
      "max_position_embeddings": 128000, "max_window_layers": 28, "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": false,
      "use_sliding_window": false, "vocab_size": 152064, "vision_config": {"depth": 32},
      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})";
  EXPECT_EQ(CountParameters(Config(kText)), 7'615'616'512);
  EXPECT_EQ(RefusedKey(kText, R"({"hidden_size": 0})"), "hidden_size");
  EXPECT_EQ(RefusedKey(kGemma, R"({"text_config": null})"), "text_config");
  // Sections of positions are of models that see.
  EXPECT_EQ(RefusedKey(kText, R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"})"),
            "rope_scaling.type");
}

TEST(WrappersTest, LlavaLeavesOutLlamasSizes) {
  const ModelConfig config = Config(R"({"architectures": ["LlavaForConditionalGeneration"],
      "model_type": "llava", "image_token_index": 32000, "torch_dtype": "float16",
      "text_config": {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096,
          "model_type": "llama", "rms_norm_eps": 1e-05, "vocab_size": 32064},
      "vision_config": {}})");
  EXPECT_EQ(config.dtype, DType::kF16);
  EXPECT_EQ(CountParameters(config), 6'738'939'904);
}

TEST(WrappersTest, Glm4v) {
  const ModelConfig config = Config(R"({"architectures": ["Glm4vForConditionalGeneration"],
      "model_type": "glm4v", "tie_word_embeddings": false, "vision_config": {},
      "text_config": {"model_type": "glm4v_text", "attention_bias": true, "hidden_size": 4096,
          "intermediate_size": 13696, "max_position_embeddings": 65536, "num_attention_heads": 32,
          "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
          "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
          "rope_scaling": {"type": "default", "mrope_section": [8, 12, 12]},
          "vocab_size": 151552}})");
  EXPECT_EQ(config.ropes[0].dim, 64);
  EXPECT_EQ(CountParameters(config), 9'400'279'040);
}

constexpr const char* kGemma4 = R"({"architectures": ["Gemma4ForConditionalGeneration"],
    "audio_config": null, "eos_token_id": [1, 106], "image_token_id": 258880,
    "model_type": "gemma4", "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "text_config": {"model_type": "gemma4_text", "attention_bias": false,
        "attention_k_eq_v": false, "enable_moe_block": false, "final_logit_softcapping": 30.0,
        "global_head_dim": 512, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 1536, "hidden_size_per_layer_input": 256, "intermediate_size": 6144,
        "layer_types": null, "max_position_embeddings": 131072, "num_attention_heads": 8,
        "num_hidden_layers": 35, "num_key_value_heads": 1, "num_kv_shared_layers": 20,
        "rms_norm_eps": 1e-06, "sliding_window": 512, "use_double_wide_mlp": true,
        "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25,
            "rope_theta": 1000000.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
        "vocab_size": 262144, "vocab_size_per_layer_input": 262144},
    "vision_config": {"model_type": "gemma4_vision"}})";

// layer_types with full attention in the last of each `period` layers.
std::string Types(int num_layers, int period) {
  Json types = Json::Array{};
  for (int i = 1; i <= num_layers; ++i) {
    types.Append(i % period == 0 ? "full_attention" : "sliding_attention");
  }
  return "{\"layer_types\": " + types.Dump() + "}";
}

TEST(WrappersTest, Gemma4E2B) {
  const ModelConfig config = Config(WithText(kGemma4, Types(35, 5)));
  EXPECT_EQ(CountParameters(config), 4'628'569'379);
  EXPECT_EQ(config.per_layer_width, 256);
  EXPECT_EQ(config.logit_softcap, 30);
  EXPECT_EQ(LayerShapeOf(config, 4).head_dim, 512);
  EXPECT_EQ(LayerShapeOf(config, 3).head_dim, 256);
  EXPECT_EQ(config.layers[14].kv_layer, -1);
  EXPECT_EQ(config.layers[15].kv_layer, 13);  // the last window before layer 15
  EXPECT_EQ(config.layers[34].kv_layer, 14);
  EXPECT_EQ(LayerShapeOf(config, 14).intermediate_size, 6144);
  EXPECT_EQ(LayerShapeOf(config, 15).intermediate_size, 12288);
  EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kProportional);
  EXPECT_EQ(config.ropes[0].dim, 512);
  EXPECT_EQ(config.ropes[1].dim, 256);
  EXPECT_FALSE(HasUniformAttention(config));
}

TEST(WrappersTest, Gemma4InItsOtherSizes) {
  const auto count = [](const std::string& types, const char* more) {
    return CountParameters(Config(WithText(WithText(kGemma4, types).c_str(), more)));
  };
  EXPECT_EQ(count(Types(42, 6), R"({"hidden_size": 2560, "intermediate_size": 10240,
                "num_hidden_layers": 42, "num_key_value_heads": 2, "num_kv_shared_layers": 18,
                "use_double_wide_mlp": false})"),
            7'463'013'418);
  EXPECT_EQ(count(Types(60, 6), R"({"hidden_size": 5376, "intermediate_size": 21504,
                "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
                "num_global_key_value_heads": 4, "num_kv_shared_layers": 0,
                "attention_k_eq_v": true, "hidden_size_per_layer_input": 0,
                "sliding_window": 1024})"),
            30'697'345'340);
  EXPECT_EQ(count(Types(30, 6), R"({"hidden_size": 2816, "intermediate_size": 2112,
                "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
                "num_global_key_value_heads": 2, "num_kv_shared_layers": 0,
                "attention_k_eq_v": true, "hidden_size_per_layer_input": 0,
                "enable_moe_block": true, "num_experts": 128,
                "top_k_experts": 8, "moe_intermediate_size": 704})"),
            25'233'141'790);
}

TEST(WrappersTest, Gemma4RefusesWhatDoesNotFit) {
  const auto refused = [](const char* more) { return RefusedKey(WithText(kGemma4, more), "{}"); };
  EXPECT_EQ(refused(R"({"num_kv_shared_layers": 35})"), "text_config.num_kv_shared_layers");
  EXPECT_EQ(refused(R"({"num_kv_shared_layers": 33})"), "text_config.num_kv_shared_layers");
  EXPECT_EQ(refused(R"({"vocab_size_per_layer_input": 262143})"),
            "text_config.vocab_size_per_layer_input");
  EXPECT_EQ(refused(R"({"global_head_dim": 511})"), "text_config.global_head_dim");
  EXPECT_EQ(refused(R"({"attention_k_eq_v": true, "num_global_key_value_heads": 3})"),
            "text_config.num_global_key_value_heads");
  EXPECT_EQ(refused(R"({"enable_moe_block": true})"), "text_config.num_experts");
  EXPECT_EQ(refused(R"({"use_bidirectional_attention": "all"})"),
            "text_config.use_bidirectional_attention");
  EXPECT_EQ(refused(R"({"use_bidirectional_attention": "vision"})"), "");
  // transformers 5 states the sizes layer by layer.
  EXPECT_EQ(refused(R"({"per_layer_config": {"0": {"head_dim": 128}}})"),
            "text_config.per_layer_config.0");
  EXPECT_EQ(refused(R"({"per_layer_config": {"5": {"head_dim": 128}}})"),
            "text_config.per_layer_config.11");
}

TEST(WrappersTest, MuseGlimmerLeavesOutEverything) {
  constexpr const char* kText = R"({"architectures": ["MuseGlimmerForConditionalGeneration"],
      "model_type": "muse_glimmer", "torch_dtype": "bfloat16", "vision_config": {},
      "text_config": {"model_type": "muse_glimmer_text"}})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(CountParameters(config), 27'854'780'928);
  EXPECT_EQ(config.layers[51].rope, -1);
  EXPECT_EQ(config.layers[51].sliding_window, 0);
  EXPECT_EQ(config.layers[50].rope, 0);
  EXPECT_EQ(config.layers[50].sliding_window, 2048);
  EXPECT_EQ(config.post_norm_eps, 1e-8);
  EXPECT_TRUE(HasUniformAttention(config));
  // Every fourth from the last.
  const ModelConfig odd = Config(WithText(kText, R"({"num_hidden_layers": 3})"));
  EXPECT_EQ(odd.layers[2].rope, -1);
  EXPECT_EQ(odd.layers[0].sliding_window, 2048);
  EXPECT_EQ(RefusedKey(WithText(kText, R"({"layer_rope_theta": [1, 2]})"), "{}"),
            "text_config.layer_rope_theta");
  EXPECT_EQ(RefusedKey(WithText(kText, R"({"num_hidden_layers": 2,
                "layer_rope_theta": [0, 5000]})"),
                       "{}"),
            "text_config.layer_rope_theta");
}

TEST(WrappersTest, SettingsMayStandAtEitherLevel) {
  constexpr const char* kFp8 = R"({"quantization_config": {"quant_method": "fp8",
      "weight_block_size": [128, 128]}})";
  EXPECT_EQ(Config(kGemma, kFp8).quantization.method, "fp8");
  EXPECT_EQ(Config(WithText(kGemma, kFp8)).quantization.method, "fp8");
  EXPECT_EQ(Config(WithText(kGemma, R"({"torch_dtype": "float32"})")).dtype, DType::kF32);
  EXPECT_EQ(Config(WithText(kGemma, R"({"eos_token_id": 7})")).eos_token_ids,
            (std::vector<TokenId>{7, 1, 106}));
  EXPECT_FALSE(Config(WithText(kGemma, R"({"tie_word_embeddings": false})")).tie_word_embeddings);
  // Keys of the model itself count inside alone.
  EXPECT_EQ(Config(kGemma, R"({"hidden_size": 128})").hidden_size, 2560);
}

TEST(WrappersTest, ErrorsNameTheKeyAndItsLevel) {
  const auto refused = [](const std::string& text) { return RefusedKey(text, "{}"); };
  EXPECT_EQ(refused(WithText(kGemma, R"({"hidden_size": "a"})")), "text_config.hidden_size");
  EXPECT_EQ(refused(WithText(kGemma, R"({"rope_scaling": {"rope_type": "axial"}})")),
            "text_config.rope_scaling.rope_type");
  EXPECT_EQ(RefusedKey(kGemma, R"({"torch_dtype": "int8"})"), "torch_dtype");
  EXPECT_EQ(RefusedKey(kGemma, R"({"quantization_config": {"quant_method": "x"}})"),
            "quantization_config.quant_method");
  EXPECT_EQ(RefusedKey(kGemma, R"({"eos_token_id": 999999999})"), "eos_token_id");
  EXPECT_EQ(RefusedKey(kGemma, R"({"model_type": "gemma2"})"), "model_type");
}

TEST(WrappersTest, WhatIsNotKnownIsRefusedWithItsText) {
  const auto status = [](const std::string& text) {
    return ParseModelConfig(text, "config.json").status();
  };
  const Status outer = status(Joined(kGemma, R"({"model_type": "gemma3n",
      "architectures": ["Gemma3nForConditionalGeneration"]})"));
  ExpectError(outer, StatusCode::kBadInput, "Gemma3nForConditionalGeneration");
  ExpectError(outer, StatusCode::kBadInput, "around \"gemma3_text\"");
  const Status inner = status(WithText(kGemma, R"({"model_type": "opt"})"));
  ExpectError(inner, StatusCode::kBadInput, "key \"text_config.model_type\": found \"opt\"");
  ExpectError(inner, StatusCode::kBadInput, "Gemma3ForConditionalGeneration: \"gemma3_text\"");
}

// Python reads and writes them; the hub's configurations of hybrids have them.
TEST(WrappersTest, BareInfinityIsRead) {
  const auto with = [](const std::string& member) {
    std::string text = WithText(kGemma, "{}");
    return text.insert(1, member + ", ");
  };
  const auto config = ParseModelConfig(with(R"("time_step_limit": [0.0, Infinity, -Infinity, NaN],
      "note": "\"Infinity, NaN")"),
                                       "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  const auto inside = [](const std::string& key, const std::string& value) {
    std::string text = kGemma;
    text.insert(text.find("\"hidden_size\""), "\"" + key + "\": " + value + ", ");
    return ParseModelConfig(text, "config.json").status();
  };
  ExpectError(inside("rope_theta", "Infinity"), StatusCode::kBadInput, "text_config.rope_theta");
  ExpectError(inside("rms_norm_eps", "NaN"), StatusCode::kBadInput, "text_config.rms_norm_eps");
  ExpectError(inside("rms_norm_eps", "Infinit"), StatusCode::kBadInput, "not valid JSON at byte");
}

// A configuration without `architectures` is found by its type.
TEST(WrappersTest, TheTypeAloneIsEnough) {
  EXPECT_EQ(Config(kGemma, R"({"architectures": null})").wrapper, "Gemma3ForConditionalGeneration");
  for (const weights::Wrapper& wrapper : weights::Wrappers()) {
    EXPECT_EQ(weights::FindWrapper(wrapper.name), &wrapper);
    EXPECT_EQ(weights::FindWrapperOfType(wrapper.model_type), &wrapper);
    EXPECT_NE(weights::SupportedWrappers().find(wrapper.model_type), std::string::npos);
  }
}

TEST(WrappersTest, OtherPartsAreKnownByTheirNames) {
  EXPECT_EQ(weights::OtherPartOf("vision_tower.vision_model.embeddings.weight"), "images");
  EXPECT_EQ(weights::OtherPartOf("model.visual.blocks.0.attn.qkv.weight"), "images");
  EXPECT_EQ(weights::OtherPartOf("model.audio_tower.layers.0.weight"), "audio");
  EXPECT_TRUE(weights::IsOfPredictionLayer(Config(kGemma), "mtp.layers.0.weight"));
  EXPECT_EQ(weights::OtherPartOf("model.language_model.layers.0.mlp.up_proj.weight"), "");
  EXPECT_EQ(weights::OtherPartOf("model.layers.0.visual.weight"), "");
}

// The files of Gemma 4 have one tensor of all experts, its quantized files a tensor for each, also
// where the text model stands alone.
TEST(WrappersTest, ExpertsOneByOneAreFoundByTheirNames) {
  const auto down_of_2 = [](const std::string& stored) {
    ModelConfig config = Config(R"({"architectures": ["Gemma4ForCausalLM"], "vocab_size": 100,
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "enable_moe_block": true, "num_experts": 3, "top_k_experts": 2,
        "moe_intermediate_size": 16, "hidden_size_per_layer_input": 0})");
    const auto checkpoint =
        Checkpoint::FromViews({{"model.norm.weight", {}}, {stored, {}}}, nullptr, "memory");
    weights::FindStoredForm(*checkpoint, &config);
    std::string last;
    for (const weights::TensorSpec& spec : weights::LayerTensors(config, 0)) {
      if (spec.role == weights::TensorRole::kExpertDown) last = spec.name;
    }
    return last;
  };
  EXPECT_EQ(down_of_2("model.layers.0.experts.0.down_proj.weight_packed"),
            "model.layers.0.experts.2.down_proj.weight");
  EXPECT_EQ(down_of_2("model.layers.0.experts.down_proj"), "model.layers.0.experts.down_proj");
  EXPECT_TRUE(weights::FindArchitecture("Gemma4ForCausalLM")->has_forms);
}

}  // namespace
}  // namespace minisgl
