// minisgl info: describes a configuration alone, and its memory plan if the machine is large
// enough.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::cli {
namespace {

class InfoProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }

  static ProgramResult Info(const std::string& shape, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"info", "--device", "cpu", "--shape", shape};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  }
  std::string Write(const std::string& text, const std::string& name = "config.json") {
    std::ofstream(folder_.Path(name)) << text;
    return folder_.Path(name);
  }

  TemporaryFolder folder_;
};

constexpr const char* kMixed = R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 500, "max_position_embeddings": 512,
    "sliding_window": 128, "torch_dtype": "bfloat16"})";

TEST_F(InfoProgramTest, AConfigurationAloneIsDescribedAndPlanned) {
  const ProgramResult result = Info(Write(kMixed));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* line :
       {"Gemma2ForCausalLM", "2 layers over all tokens, 2 layers over the last 128 tokens",
        "no file was looked for", "KV cache", "512 tokens, prompt and answer"}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  }
}

TEST_F(InfoProgramTest, ExpertsAndWhatIsNotLoadedAreDescribed) {
  const ProgramResult result = Info(MINISGL_SOURCE_DIR "/tests/golden/models/glm4_moe/config.json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* line :
       {"3 of 8 for each token, feed-forward 9, and 18 shared, from 2 of 4 groups, in 2 layers",
        "1 layer that predicts further tokens"}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  }
}

TEST_F(InfoProgramTest, LatentAttentionIsDescribed) {
  const std::string file = MINISGL_SOURCE_DIR "/tests/golden/models/deepseek_v3/config.json";
  const ProgramResult result = Info(file);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // 3 layers of 18 + 6 floats.
  for (const char* line :
       {"3 of width 40, feed-forward 28, 4 query heads of 16",
        "a latent of 18 and a rotated part of 6 for all heads, values of 11", "288 B a token"}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  }
}

TEST_F(InfoProgramTest, TheTextModelOfAMultimodalModelIsDescribed) {
  const std::string models = MINISGL_SOURCE_DIR "/tests/golden/models";
  const auto expect = [&](const std::string& name, const char* line) {
    const ProgramResult result = Info(models + "/" + name + "/config.json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  };
  expect("gemma3", "Gemma3ForCausalLM, the text model of Gemma3ForConditionalGeneration");
  expect("qwen3_vl", "Qwen3VLForConditionalGeneration, its text model");
  expect("gemma4", "2 with 4 query and 2 KV heads of 12; 2 read the keys of others");
  expect("gemma4", "6 more for each layer, read from the files when used");
  expect("gemma4_moe", "3 of 6 for each token, feed-forward 9, beside the dense part");
}

// Gemma 4 E2B as it is published. What follows these lines needs a machine that is large enough.
TEST_F(InfoProgramTest, Gemma4IsDescribedAndPlanned) {
  std::string types;
  for (int i = 1; i <= 35; ++i) {
    types += std::string(i == 1 ? "" : ", ") +
             (i % 5 == 0 ? "\"full_attention\"" : "\"sliding_attention\"");
  }
  const ProgramResult result = Info(Write(R"({"architectures": ["Gemma4ForConditionalGeneration"],
      "model_type": "gemma4", "torch_dtype": "bfloat16", "tie_word_embeddings": true,
      "text_config": {"model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144,
          "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1,
          "num_kv_shared_layers": 20, "use_double_wide_mlp": true, "final_logit_softcapping": 30.0,
          "layer_types": [)" + types + "]}}"));
  for (const char* line :
       {"28 with 8 query and 1 KV heads of 256, 7 with 8 query and 1 KV heads of 512; 20 read the "
        "keys of others",
        "256 more for each layer, read from the files when used", "4628569379 parameters",
        "7 layers over all tokens, 28 layers over the last 512 tokens"}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  }
}

TEST_F(InfoProgramTest, QuantizedWeightsAreShownAndSmaller) {
  const std::string config = Write(kMixed);
  const auto weights_line = [](const ProgramResult& result) {
    const size_t begin = result.out.find("\n  weights") + 1;
    return result.out.substr(begin, result.out.find('\n', begin) - begin);
  };
  EXPECT_EQ(weights_line(Info(config)), "  weights     306.8 KiB as bf16");
  EXPECT_EQ(weights_line(Info(config, {"--quantize", "int8", "--dtype", "f16"})),
            "  weights     173.0 KiB as int8");
  // Tiles may read lines of 128 inputs, of which these rows of 64 fill a half.
  EXPECT_EQ(weights_line(Info(config, {"--quantize", "int8"})), "  weights     300.2 KiB as int8");
}

// The configuration alone says it: its weights are not looked at.
TEST_F(InfoProgramTest, SaysHowACheckpointIsQuantizedAndWhatBecomesOfIt) {
  std::string config = kMixed;
  config.insert(config.rfind('}'), R"(, "quantization_config": {"quant_method": "fp8",
      "weight_block_size": [128, 128]})");
  const std::string path = Write(config);
  const ProgramResult kept = Info(path);
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  for (const char* text : {"fp8: fp8, blocks of 128 x 128", " as stored codes, bf16",
                           "codes stay in memory", "activations are not rounded to 8 bits"}) {
    EXPECT_NE(kept.out.find(text), std::string::npos) << text << "\n" << kept.out;
  }
  const ProgramResult converted = Info(path, {"--quantize", "int8", "--cpu-target", "scalar"});
  EXPECT_NE(converted.out.find("codes are converted to int8"), std::string::npos) << converted.out;
  EXPECT_EQ(converted.out.find("are not rounded"), std::string::npos) << converted.out;
  const ProgramResult widened = Info(path, {"--quantize", "int8", "--cpu-target", "amx_stand_in"});
  EXPECT_NE(widened.out.find("are not rounded to 8 bits"), std::string::npos) << widened.out;
}

// Codes of 4 bits, where there are no tiles and f32 is not asked for, and int8 by --quantize, where
// there are no tiles or bf16 is not asked for.
TEST_F(InfoProgramTest, SaysWhereActivationsAreRoundedToInt8) {
  std::string config = kMixed;
  config.insert(config.rfind('}'), R"(, "quantization_config": {"quant_method": "awq", "bits": 4,
      "group_size": 32, "version": "gemm", "zero_point": true})");
  const std::string codes = Write(config), dense = Write(kMixed, "dense.json");
  const auto says = [&](const std::string& path, std::vector<std::string> options,
                        const std::string& target = "scalar") {
    options.insert(options.end(), {"--cpu-target", target});
    const ProgramResult result = Info(path, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.find("round activations to int8") != std::string::npos;
  };
  EXPECT_TRUE(says(codes, {}));
  EXPECT_FALSE(says(codes, {"--dtype", "f32"}));
  EXPECT_FALSE(says(codes, {}, "amx_stand_in"));
  for (const std::string& path : {codes, dense}) {
    EXPECT_TRUE(says(path, {"--quantize", "int8"}));
    EXPECT_FALSE(says(path, {"--quantize", "int8"}, "amx_stand_in"));
    EXPECT_TRUE(says(path, {"--quantize", "int8", "--dtype", "f16"}, "amx_stand_in"));
  }
  EXPECT_FALSE(says(dense, {}));
  EXPECT_TRUE(says(dense, {"--quantize", "int4"}));
}

// Weights of int8 with activations of int8: followed with tiles, elsewhere rounded in blocks unless
// f32 is asked for.
TEST_F(InfoProgramTest, SaysWhereActivationsOfInt8AreFollowed) {
  std::string config = kMixed;
  config.insert(config.rfind('}'), R"(, "quantization_config": {
      "quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {
      "group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"},
      "input_activations": {"num_bits": 8, "type": "int",
      "symmetric": true, "strategy": "token", "dynamic": true}}}})");
  const std::string path = Write(config);
  const auto says = [&](const char* target, const char* text, const char* dtype = "bf16") {
    const ProgramResult result = Info(path, {"--cpu-target", target, "--dtype", dtype});
    return result.out.find(text) != std::string::npos;
  };
  const char* const kFollowed = "round activations to int8, as the publisher";
  const char* const kRounded = "products with weights of integers round activations to int8";
  const char* const kNot = "activations are not rounded to 8 bits";
  EXPECT_TRUE(says("amx_stand_in", kFollowed));
  EXPECT_FALSE(says("amx_stand_in", kNot));
  EXPECT_FALSE(says("amx_stand_in", kRounded));
  EXPECT_TRUE(says("scalar", kRounded));
  EXPECT_FALSE(says("scalar", kFollowed));
  EXPECT_FALSE(says("scalar", kNot));
  EXPECT_FALSE(says("scalar", kRounded, "f32"));
  EXPECT_TRUE(says("scalar", kNot, "f32"));
}

// The KV cache alone is larger than any machine's memory.
TEST_F(InfoProgramTest, AModelThatDoesNotFitIsDescribedToo) {
  const ProgramResult result = RunProgram(
      {"info", "--device", "cpu", "-m", DemoModel(), "--num-pages", "1", "--page-size", "1"});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_NE(result.out.find("architecture"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("tokenizer"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("KV cache"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("--num-pages 1"), std::string::npos) << result.err;
}

TEST_F(InfoProgramTest, AModelThatDoesNotFitIsDescribedBeforeTheError) {
  const ProgramResult result = Info(Write(kMixed), {"--num-pages", "2000000000"});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_NE(result.out.find("Gemma2ForCausalLM"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("--num-pages"), std::string::npos) << result.err;
}

TEST_F(InfoProgramTest, ABadConfigurationIsNamed) {
  const ProgramResult result = Info(Write(R"({"model_type": "mystery"})"));
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_NE(result.err.find("mystery"), std::string::npos) << result.err;
  EXPECT_EQ(Info(folder_.Path("none.json")).exit_code, 66);
}

TEST_F(InfoProgramTest, AGgufFileIsDescribed) {
  const std::string file = MINISGL_SOURCE_DIR "/tests/fuzz/corpus/gguf/llama.gguf";
  for (const std::vector<std::string> words :
       {std::vector<std::string>{"info", file}, {"info", "-m", file}}) {
    const ProgramResult result = RunProgram(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* part :
         {"architecture  llama", "2 of width 256, feed-forward 512, 4 query heads, 2 or 1 KV heads",
          "2560 parameters in 5 tensors", "Q4_0        5.8 % of the bytes, 1 tensor, 288 B",
          "tokenizer.ggml.tokens = [\"<s>\", \"</s>\", \"a\", \"b\"]"}) {
      EXPECT_NE(result.out.find(part), std::string::npos) << part << " in " << result.out;
    }
  }
  const ProgramResult run = RunProgram({"run", "-m", file, "-p", "x"});
  EXPECT_EQ(run.exit_code, 65);
  EXPECT_NE(run.err.find("llama.gguf: 0 pieces are <unk>"), std::string::npos) << run.err;
}

// Shapes of common models, if available.
TEST_F(InfoProgramTest, ShapesOfRealModelsAreDescribed) {
  const char* shared = std::getenv("MINISGL_SHARED");
  const std::filesystem::path shapes =
      std::filesystem::path(shared != nullptr ? shared : MINISGL_SOURCE_DIR "/../shared") /
      "shapes";
  if (!std::filesystem::is_directory(shapes)) GTEST_SKIP() << shapes << " is not there";
  const std::pair<const char*, const char*> wanted[] = {
      {"llama-3.1-8b.json", "8030261248 parameters in 291 tensors"},
      {"mistral-7b-v0.3.json", "7248023552 parameters in 291 tensors"},
      {"qwen2.5-0.5b.json", "494032768 parameters in 290 tensors"},
      {"qwen3-0.6b.json", "596049920 parameters in 310 tensors"},
      {"tinyllama-1.1b.json", "1100048384 parameters in 201 tensors"}};
  for (const auto& [name, weights] : wanted) {
    const ProgramResult result = Info((shapes / name).string());
    // 75 on a machine that is too small.
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 75) << name << ": " << result.err;
    EXPECT_NE(result.out.find(weights), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("KV cache") != std::string::npos, result.exit_code == 0) << name;
  }
}

}  // namespace
}  // namespace minisgl::cli
