// config.json: both spellings, every key against a table of bad values, and every option that is
// not supported.
#include "minisgl/weights/model_config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "test_files.h"

namespace minisgl {
namespace {

constexpr const char* kConfigFile = "dir/config.json";

// A small good configuration in the older spelling.
Json GoodConfig() {
  const auto json = ParseJson(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "tie_word_embeddings": true, "vocab_size": 300,
      "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"})");
  return *json;
}

Json WithKey(const char* key, const std::string& value_text) {
  Json json = GoodConfig();
  json.Set(key, *ParseJson(value_text));
  return json;
}

Json Without(const std::string& key) {
  Json json = GoodConfig();
  std::erase_if(json.as_object(), [&](const Json::Member& member) { return member.first == key; });
  return json;
}

Result<ModelConfig> ParseConfig(const Json& json) {
  return ParseModelConfig(json.Dump(), kConfigFile);
}

// The configuration with `key` set to `value_text` (JSON) is refused by a message that names the
// key.
void ExpectRefused(const char* key, const std::string& value_text, const std::string& named = "") {
  SCOPED_TRACE(fmt::format("{} = {}", key, value_text));
  const Result<ModelConfig> config = ParseConfig(WithKey(key, value_text));
  ASSERT_FALSE(config.ok());
  ExpectError(config.status(), StatusCode::kBadInput,
              fmt::format("dir/config.json: key \"{}\": found ", named.empty() ? key : named));
}

// The rotation of GoodConfig.
const RopeConfig kPlain = {.theta = 5000.0, .dim = 16};

void ExpectTaken(const char* key, const std::string& value_text) {
  const Result<ModelConfig> config = ParseConfig(WithKey(key, value_text));
  EXPECT_TRUE(config.ok()) << config.status().message();
}

TEST(ModelConfigTest, ReadsTheOlderSpelling) {
  const Result<ModelConfig> config = ParseConfig(GoodConfig());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_EQ(config->dtype, DType::kBF16);
  EXPECT_EQ(config->vocab_size, 300);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 96);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->max_seq_len, 512);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->ropes, std::vector{kPlain});
  EXPECT_EQ(config->layers, std::vector<LayerConfig>(2));
  EXPECT_EQ(config->activation, Activation::kSilu);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->eos_token_ids, std::vector<TokenId>{2});
}

TEST(ModelConfigTest, FillsInWhatTransformersWould) {
  const auto config = ParseModelConfig(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300})",
      kConfigFile);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->dtype, DType::kF32);
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->max_seq_len, 2048);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_EQ(config->ropes, (std::vector{RopeConfig{.dim = 16}}));
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_FALSE(config->bos_token_id.has_value());
  EXPECT_TRUE(config->eos_token_ids.empty());
}

TEST(ModelConfigTest, NullCountsAsAbsent) {
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_scaling", "rope_parameters",
                          "sliding_window", "quantization_config", "hidden_act", "attention_bias",
                          "bos_token_id", "eos_token_id", "torch_dtype", "tie_word_embeddings",
                          "max_position_embeddings", "rms_norm_eps", "rope_theta", "model_type"}) {
    SCOPED_TRACE(key);
    ExpectTaken(key, "null");
  }
}

TEST(ModelConfigTest, EveryDTypeUnderBothNames) {
  const std::vector<std::pair<const char*, DType>> dtypes = {
      {"\"bfloat16\"", DType::kBF16}, {"\"float16\"", DType::kF16}, {"\"float32\"", DType::kF32}};
  for (const char* key : {"dtype", "torch_dtype"}) {
    for (const auto& [text, dtype] : dtypes) {
      EXPECT_EQ(ParseConfig(WithKey(key, text))->dtype, dtype) << key << " " << text;
    }
    for (const char* bad : {"\"float64\"", "\"int8\"", "\"\"", "\"auto\"", "16", "[]", "true"}) {
      ExpectRefused(key, bad);
    }
  }
}

TEST(ModelConfigTest, HeadDimIsTakenOrDerived) {
  EXPECT_EQ(ParseConfig(WithKey("head_dim", "96"))->head_dim, 96);
  EXPECT_EQ(ParseConfig(WithKey("head_dim", "null"))->head_dim, 16);
  EXPECT_EQ(ParseConfig(WithKey("hidden_size", "68")).status().message(),
            "dir/config.json: key \"head_dim\": found 17; an even number up to 4096 is supported");
  ExpectRefused("hidden_size", "66", "num_attention_heads");
  ExpectRefused("head_dim", "15");
}

struct LinearSpelling {
  const char* key;
  const char* value;
};

TEST(ModelConfigTest, LinearScalingInEverySpelling) {
  for (const LinearSpelling& spelling : {
           LinearSpelling{"rope_scaling", R"({"type": "linear", "factor": 2})"},
           LinearSpelling{"rope_scaling", R"({"rope_type": "linear", "factor": 2.0})"},
           LinearSpelling{"rope_scaling", R"({"rope_type": "linear", "type": "x", "factor": 2.0})"},
           LinearSpelling{"rope_parameters", R"({"rope_type": "linear", "factor": 2.0})"},
       }) {
    SCOPED_TRACE(spelling.value);
    const Result<ModelConfig> config = ParseConfig(WithKey(spelling.key, spelling.value));
    ASSERT_TRUE(config.ok()) << config.status().message();
    RopeConfig wanted = kPlain;
    wanted.scaling = RopeScaling::kLinear;
    wanted.factor = 2.0;
    EXPECT_EQ(config->ropes, std::vector{wanted});
  }
}

constexpr const char* kLlama3 =
    R"({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";

TEST(ModelConfigTest, ReadsLlama3Scaling) {
  const RopeConfig wanted = {.theta = 500000.0,
                             .dim = 16,
                             .scaling = RopeScaling::kLlama3,
                             .factor = 8.0,
                             .low_freq_factor = 1.0,
                             .high_freq_factor = 4.0,
                             .original_max_seq_len = 8192};
  EXPECT_EQ(ParseConfig(WithKey("rope_parameters", kLlama3))->ropes, std::vector{wanted});
  Json older = WithKey("rope_scaling", kLlama3);
  older.Set("rope_theta", 500000.0);
  EXPECT_EQ(ParseConfig(older)->ropes, std::vector{wanted});
}

TEST(ModelConfigTest, DefaultRotaryUnderItsNames) {
  for (const char* value : {R"({"rope_type": "default"})", R"({"type": "none"})", "{}",
                            R"({"rope_type": "default", "rope_theta": 5000})"}) {
    SCOPED_TRACE(value);
    EXPECT_EQ(ParseConfig(WithKey("rope_parameters", value))->ropes, std::vector{kPlain});
  }
}

TEST(ModelConfigTest, TwoSpellingsAtOnceMustAgree) {
  Json json = WithKey("rope_parameters", kLlama3);
  json.Set("rope_scaling", *ParseJson(kLlama3));
  EXPECT_TRUE(ParseConfig(json).ok());
  json.Set("rope_scaling", *ParseJson(R"({"type": "linear", "factor": 2.0})"));
  ExpectError(ParseConfig(json).status(), StatusCode::kBadInput, "key \"rope_scaling\"");
}

TEST(ModelConfigTest, RefusesRotarySettingsThatAreNotSupported) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::string inner = std::string(key) + ".";
    for (const char* type : {"su", "mrope", "proportional", "LINEAR", ""}) {
      ExpectRefused(key, fmt::format(R"({{"rope_type": "{}", "factor": 2.0}})", type),
                    inner + "rope_type");
    }
    ExpectRefused(key, R"({"type": "mrope", "factor": 2.0})", inner + "type");
    ExpectRefused(key, R"({"rope_type": 3})", inner + "rope_type");
    ExpectRefused(key, R"({"rope_type": "linear"})", inner + "factor");
    for (const char* factor : {"0", "0.5", "-1", "\"2\"", "1e9", "[2]"}) {
      ExpectRefused(key, fmt::format(R"({{"rope_type": "linear", "factor": {}}})", factor),
                    inner + "factor");
    }
    ExpectRefused(key, R"({"rope_type": "default", "partial_rotary_factor": 0.5})",
                  inner + "partial_rotary_factor");
    ExpectRefused(key, R"({"full_attention": {"rope_type": "default"}})", inner + "full_attention");
    ExpectRefused(key, R"({"llama_4_scaling_beta": 0.1})", inner + "llama_4_scaling_beta");
    for (const char* bad : {"3", "\"linear\"", "[]", "true"}) ExpectRefused(key, bad);
  }
}

TEST(ModelConfigTest, Llama3ScalingNeedsEachOfItsNumbers) {
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    for (const char* bad : {"null", "0", "-1", "\"8\"", "1e300", "[]"}) {
      // Scalings that do not say it start from the whole length.
      if (std::string(key) == "original_max_position_embeddings" && bad[0] == 'n') continue;
      Json rope = *ParseJson(kLlama3);
      rope.Set(key, *ParseJson(bad));
      ExpectRefused("rope_parameters", rope.Dump(), std::string("rope_parameters.") + key);
    }
  }
  Json rope = *ParseJson(kLlama3);
  rope.Set("low_freq_factor", 4.0);
  ExpectRefused("rope_parameters", rope.Dump(), "rope_parameters.high_freq_factor");
}

TEST(ModelConfigTest, RefusesEverySizeThatIsNone) {
  const std::vector<const char*> sizes = {
      "vocab_size",          "hidden_size",         "intermediate_size",       "num_hidden_layers",
      "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "head_dim"};
  for (const char* key : sizes) {
    for (const char* bad :
         {"0", "-1", "2147483648", "-2147483648", "4294967296", "1.5", "64.0",
          "9223372036854775807", "18446744073709551616", "1e300", "\"64\"", "true", "[64]", "{}"}) {
      ExpectRefused(key, bad);
    }
  }
}

// A context of one token has no room for a prompt and an answer.
TEST(ModelConfigTest, RefusesAContextOfOneToken) { ExpectRefused("max_position_embeddings", "1"); }

TEST(ModelConfigTest, RefusesBadNumbers) {
  for (const char* bad : {"0", "-1e-5", "2", "1e300", "\"1e-5\"", "true", "[]", "{}"}) {
    ExpectRefused("rms_norm_eps", bad);
  }
  for (const char* bad : {"0", "-10000", "0.5", "1e300", "\"10000\"", "true", "[]", "{}"}) {
    ExpectRefused("rope_theta", bad);
    ExpectRefused("rope_parameters", fmt::format(R"({{"rope_theta": {}}})", bad),
                  "rope_parameters.rope_theta");
  }
}

TEST(ModelConfigTest, NamesTheRequiredKeyThatIsMissing) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads"}) {
    ExpectError(ParseConfig(Without(key)).status(), StatusCode::kBadInput,
                fmt::format("key \"{}\": found nothing", key));
  }
  Json neither = Without("architectures");
  neither.Set("model_type", nullptr);
  ExpectError(ParseConfig(neither).status(), StatusCode::kBadInput, "key \"architectures\"");
}

TEST(ModelConfigTest, HeadsMustDivide) {
  ExpectRefused("num_key_value_heads", "3");
  ExpectRefused("num_key_value_heads", "8");
  ExpectTaken("num_key_value_heads", "1");
  ExpectTaken("num_key_value_heads", "4");
}

TEST(ModelConfigTest, RefusesOptionsThatChangeTheComputation) {
  ExpectRefused("attention_bias", "0");
  ExpectRefused("mlp_bias", "\"no\"");
  ExpectRefused("use_bias", "true");
  ExpectRefused("use_qkv_bias", "true");
  ExpectRefused("clip_qkv", "8.0");
  ExpectRefused("final_logit_softcapping", "30.0");
  ExpectRefused("sliding_window", "4096");
  ExpectRefused("quantization_config", "\"gptq\"");
  ExpectRefused("hidden_act", "\"tanh\"");
  ExpectRefused("hidden_act", "\"SiLU\"");
  ExpectRefused("hidden_act", "1");
  ExpectRefused("hidden_activation", "\"gelu_pytorch_tanh\"");
  ExpectRefused("partial_rotary_factor", "0.25");
  ExpectTaken("partial_rotary_factor", "1.0");
  ExpectTaken("pretraining_tp", "2");
  ExpectTaken("attention_dropout", "0.1");
}

TEST(ModelConfigTest, RefusesOtherArchitecturesByName) {
  for (const char* bad : {"[\"GPTNeoXForCausalLM\"]", "[\"LlamaForTokenClassification\"]",
                          "[\"llama\"]", "[\"\"]", "[]", "[1]", "\"LlamaForCausalLM\"", "{}", "7",
                          "[\"LlamaForCausalLM\", \"MistralForCausalLM\"]"}) {
    ExpectRefused("architectures", bad);
  }
  for (const char* bad : {"\"mistral\"", "\"\"", "1", "[]"}) ExpectRefused("model_type", bad);
  ExpectError(ParseConfig(WithKey("architectures", "[\"GPT2LMHeadModel\"]")).status(),
              StatusCode::kBadInput, "\"GPT2LMHeadModel\"");
  ExpectError(ParseConfig(WithKey("architectures", "[\"GPT2LMHeadModel\"]")).status(),
              StatusCode::kBadInput, "supported: LlamaForCausalLM");
}

// The configuration of another architecture; `more` (an object) on top.
Json Other(const char* architecture, const char* model_type, const char* more = "{}") {
  Json json = GoodConfig();
  json.Set("architectures", Json::Array{Json(architecture)}).Set("model_type", model_type);
  const Json added = *ParseJson(more);
  for (const auto& [key, value] : added.as_object()) json.Set(key, value);
  return json;
}

TEST(ModelConfigTest, ReadsTheOtherArchitectures) {
  for (const Json& json :
       {Other("MistralForCausalLM", "mistral", R"({"sliding_window": null})"),
        Other("Qwen2ForCausalLM", "qwen2",
              R"({"sliding_window": 4096, "use_sliding_window": false, "attention_bias": true})"),
        Other("Qwen3ForCausalLM", "qwen3", R"({"sliding_window": 4096, "head_dim": 16,
              "attention_bias": false, "layer_types": ["full_attention", "full_attention"]})")}) {
    const Result<ModelConfig> config = ParseConfig(json);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->architecture, json.Find("architectures")->as_array()[0].as_string());
    EXPECT_EQ(config->num_kv_heads, 2);
    EXPECT_EQ(config->head_dim, 16);
  }
}

TEST(ModelConfigTest, DefaultsAreTheArchitecturesOwn) {
  const auto sizes = [](const char* model_type, const char* more) {
    return ParseModelConfig(
        fmt::format(R"({{"model_type": "{}", "hidden_size": 2048, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 32, "vocab_size": 300{}}})",
                    model_type, more),
        kConfigFile);
  };
  const auto mistral = sizes("mistral", R"(, "sliding_window": null)");
  ASSERT_TRUE(mistral.ok()) << mistral.status().message();
  EXPECT_EQ(mistral->num_kv_heads, 8);
  EXPECT_EQ(mistral->max_seq_len, 131072);
  const auto qwen3 = sizes("qwen3", "");
  ASSERT_TRUE(qwen3.ok()) << qwen3.status().message();
  EXPECT_EQ(qwen3->num_kv_heads, 32);
  EXPECT_EQ(qwen3->head_dim, 128);
  EXPECT_EQ(qwen3->max_seq_len, 32768);
  EXPECT_EQ(sizes("qwen2", "")->head_dim, 64);
}

TEST(ModelConfigTest, RefusesWhatTheOtherArchitecturesMayNotHave) {
  const auto expect = [](const Json& json, const char* key) {
    ExpectError(ParseConfig(json).status(), StatusCode::kBadInput,
                fmt::format("dir/config.json: key \"{}\": found ", key));
  };
  for (const char* bad : {"0", "-1", "\"4096\"", "1.5", "true", "[]"}) {
    expect(Other("MistralForCausalLM", "mistral",
                 fmt::format(R"({{"sliding_window": {}}})", bad).c_str()),
           "sliding_window");
  }
  expect(Other("MistralForCausalLM", "mistral", R"({"attention_bias": true})"), "attention_bias");
  expect(Other("Qwen2ForCausalLM", "qwen2", R"({"attention_bias": false})"), "attention_bias");
  expect(Other("Qwen3ForCausalLM", "llama"), "model_type");
  for (const char* bad : {R"({"layer_types": ["full_attention", "sliding_attention"]})",
                          R"({"layer_types": "full_attention"})", R"({"layer_types": [1, 1]})",
                          R"({"layer_types": ["full_attention"]})"}) {
    expect(Other("Qwen3ForCausalLM", "qwen3", bad), "layer_types");
    expect(Other("LlamaForCausalLM", "llama", bad), "layer_types");
  }
}

TEST(ModelConfigTest, TokenIdsLieInTheVocabulary) {
  EXPECT_EQ(ParseConfig(WithKey("eos_token_id", "[2, 299, 0]"))->eos_token_ids,
            (std::vector<TokenId>{2, 299, 0}));
  EXPECT_TRUE(ParseConfig(WithKey("eos_token_id", "[]"))->eos_token_ids.empty());
  // -1 and null are no token.
  EXPECT_TRUE(ParseConfig(WithKey("eos_token_id", "-1"))->eos_token_ids.empty());
  EXPECT_EQ(ParseConfig(WithKey("eos_token_id", "[2, null, -1]"))->eos_token_ids,
            std::vector<TokenId>{2});
  EXPECT_FALSE(ParseConfig(WithKey("bos_token_id", "-1"))->bos_token_id.has_value());
  for (const char* bad : {"300", "-2", "2147483648", "1.5", "2.0", "\"2\"", "true", "{}",
                          "[2, 300]", "[[2]]", "4294967298"}) {
    ExpectRefused("eos_token_id", bad);
  }
  for (const char* bad : {"300", "-2", "2147483648", "1.0", "\"1\"", "[1]"}) {
    ExpectRefused("bos_token_id", bad);
  }
}

TEST(ModelConfigTest, TieWordEmbeddingsIsABool) {
  for (const char* bad : {"0", "1", "\"true\"", "[]"}) ExpectRefused("tie_word_embeddings", bad);
}

TEST(ModelConfigTest, RefusesTextThatIsNoObject) {
  for (const char* text : {"", "[]", "null", "3", "{", "{\"a\":1}{", "{\"vocab_size\": NaN}",
                           "{\"vocab_size\": 1, \"vocab_size\": 2}", "{\"rope_theta\": 1e999}"}) {
    SCOPED_TRACE(text);
    const Result<ModelConfig> config = ParseModelConfig(text, kConfigFile);
    ExpectError(config.status(), StatusCode::kBadInput, kConfigFile);
  }
}

TEST(ModelConfigTest, HostileTextIsMadeVisible) {
  const Result<ModelConfig> config =
      ParseConfig(WithKey("architectures", R"(["\u001b]0;pwned\u0007\n"])"));
  ExpectReadable(config.status());
  ExpectReadable(ParseModelConfig("{}", "dir/\x1b[2J\n").status());
}

TEST(ModelConfigTest, LoadsTheModelsOfThisTree) {
  for (const char* name : {"models/wren", "golden/models/separate_head", "golden/models/odd_heads",
                           "golden/models/f16_sharded"}) {
    SCOPED_TRACE(name);
    const auto config = LoadModelConfig(std::string(MINISGL_SOURCE_DIR "/tests/") + name);
    EXPECT_TRUE(config.ok()) << config.status().message();
  }
}

TEST(ModelConfigTest, ReadsTheConfigurationsThatPeopleRun) {
  const char* shared = std::getenv("MINISGL_SHARED");
  const std::string shapes =
      std::string(shared != nullptr ? shared : MINISGL_SOURCE_DIR "/../shared") + "/shapes";
  if (!std::filesystem::is_directory(shapes)) GTEST_SKIP() << "no directory " << shapes;
  for (const auto& entry : std::filesystem::directory_iterator(shapes)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path());
    const auto text = ReadFile(entry.path(), 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const auto config = ParseModelConfig(*text, "config.json");
    EXPECT_TRUE(config.ok()) << config.status().message();
  }
}

TEST(ModelConfigTest, AFileOfMoreThan16MiBIsRefused) {
  const TempDir dir;
  std::string text = WithKey("head_dim", "96").Dump();
  text.resize(size_t{16} << 20, ' ');
  dir.Write("config.json", text);
  EXPECT_TRUE(LoadModelConfig(dir.path()).ok());
  dir.Write("config.json", text + ' ');
  ExpectError(LoadModelConfig(dir.path()).status(), StatusCode::kBadInput, "16777216");
}

TEST(ModelConfigTest, SaysWhatADirectoryLacks) {
  TempDir dir;
  ExpectError(LoadModelConfig(dir.path()).status(), StatusCode::kNoInput, "has no config.json");
  ExpectError(LoadModelConfig(dir.File("no")).status(), StatusCode::kNoInput, "/no: ");
  dir.Write("model.gguf", "GGUF");
  ExpectError(LoadModelConfig(dir.path()).status(), StatusCode::kBadInput, "model.gguf");
  ExpectError(LoadModelConfig(dir.File("model.gguf")).status(), StatusCode::kBadInput, "byte 4");
  dir.Write("config.json", "{");
  ExpectError(LoadModelConfig(dir.path()).status(), StatusCode::kBadInput, "config.json");
  dir.Write("config.json", "<!DOCTYPE html>");
  ExpectError(LoadModelConfig(dir.path()).status(), StatusCode::kBadInput,
              "config.json: is an HTML page; download it again");
  dir.Write("generation_config.json", "");
  ExpectError(LoadGenerationConfig(dir.path(), 100).status(), StatusCode::kBadInput,
              "generation_config.json: is empty");
}

}  // namespace
}  // namespace minisgl
