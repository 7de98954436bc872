// `minisgl bench` as a user runs it, at sizes that take no time: every benchmark gives its figures
// as text and as JSON, and errors give their exit status.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::bench {
namespace {

using Arguments = std::vector<std::string>;

constexpr const char* kTinyShape = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 4096, "vocab_size": 300,
    "tie_word_embeddings": true, "eos_token_id": 2, "torch_dtype": "bfloat16"})";

class BenchProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
    shape_ = folder_.Write("shape.json", kTinyShape);
  }

  static ProgramResult Bench(const Arguments& arguments) {
    Arguments all = {"bench"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.insert(all.end(), {"--device", "cpu", "--threads", "1", "--copy-mib", "1", "--matrix-size",
                           "32", "--repeat", "1"});
    return RunProgram(all, {"", "", {"MINISGL_MODEL="}});
  }
  // With generated weights.
  ProgramResult BenchShape(Arguments arguments) const {
    arguments.insert(arguments.end(), {"--shape", shape_, "--dummy-weights", "--num-pages", "512",
                                       "--max-prefill-length", "64"});
    return Bench(arguments);
  }
  // Returns the JSON of a successful run with --json -.
  static Json Figures(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Result<Json> json = ParseJson(result.out);
    EXPECT_TRUE(json.ok()) << result.out;
    return json.ok() ? std::move(json).value() : Json();
  }
  // Returns the number at `path` ("limit.total_s"); fails the test if there is none.
  static double Number(const Json& json, const std::string& path) {
    const Json* at = &json;
    for (size_t begin = 0; at != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      at = at->Find(path.substr(begin, end - begin));
      begin = end + 1;
    }
    EXPECT_TRUE(at != nullptr && at->is_number()) << path << " in " << json.Dump();
    return at != nullptr && at->is_number() ? at->as_double() : -1;
  }
  static void ExpectPositive(const Json& json, const std::vector<std::string>& paths) {
    for (const std::string& path : paths) EXPECT_GT(Number(json, path), 0) << path;
  }
  static void ExpectFails(const ProgramResult& result, int exit_code, const std::string& expected) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    const std::vector<std::string> lines = Lines(result.err);
    ASSERT_FALSE(lines.empty());
    EXPECT_TRUE(lines.back().starts_with("minisgl: ")) << lines.back();
    EXPECT_NE(lines.back().find(expected), std::string::npos) << lines.back();
  }

  TemporaryFolder folder_;
  std::string shape_;
};

TEST_F(BenchProgramTest, NanoGivesThroughputBesideItsLimit) {
  const Json json = Figures(BenchShape({"nano", "--num-seqs", "2", "--json", "-"}));
  EXPECT_EQ(json.Find("bench")->as_string(), "nano");
  EXPECT_TRUE(json.Find("model")->Find("dummy_weights")->as_bool());
  ExpectPositive(json, {"ceilings.bytes_per_s", "ceilings.flops_per_s", "engine.step_bytes",
                        "limit.prefill_s", "limit.weights_s", "limit.kv_s", "limit.total_s",
                        "median.seconds", "median.output_tokens_per_s", "median.ratio_to_limit"});
  EXPECT_EQ(json.Find("runs")->as_array().size(), 1u);
  const Json& run = json.Find("runs")->as_array()[0];
  EXPECT_EQ(Number(run, "output_tokens"), Number(json, "workload.output_tokens"));
  // Every step decodes, except steps that only compute prompts.
  EXPECT_GE(Number(run, "steps"), Number(json, "workload.decode_steps"));
  EXPECT_NEAR(Number(json, "median.ratio_to_limit"),
              Number(json, "limit.total_s") / Number(json, "median.seconds"), 1e-9);
}

TEST_F(BenchProgramTest, UniformTakesItsSizes) {
  const Json json = Figures(BenchShape({"uniform", "3", "20", "5", "--json", "-"}));
  EXPECT_EQ(Number(json, "workload.prompt_tokens"), 60);
  EXPECT_EQ(Number(json, "workload.output_tokens"), 15);
  EXPECT_EQ(Number(json, "workload.decode_steps"), 4);
  EXPECT_EQ(Number(json.Find("runs")->as_array()[0], "cached_tokens"), 0);
}

TEST_F(BenchProgramTest, OneDecodeStepHasAllRows) {
  const ProgramResult result = BenchShape({"uniform", "3", "20", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("60 tokens in, 6 out, 1 decode steps of 3.0 rows"), std::string::npos)
      << result.out;
}

TEST_F(BenchProgramTest, SharedComputesItsPrefixOnce) {
  const Json json = Figures(BenchShape({"shared", "4", "96", "2", "6", "--json", "-"}));
  EXPECT_EQ(Number(json, "workload.prompt_tokens"), 4 * 98);
  EXPECT_EQ(Number(json, "workload.output_tokens"), 24);
  EXPECT_EQ(Number(json, "workload.decode_steps"), 5);
  EXPECT_EQ(Number(json.Find("runs")->as_array()[0], "cached_tokens"), 3 * 96);
  ExpectPositive(json, {"limit.prefill_s", "limit.kv_s", "median.ratio_to_limit",
                        "decoding.tokens_per_s", "decoding.all_started_s"});
  EXPECT_LT(Number(json, "decoding.all_started_s"), Number(json, "median.seconds"));
}

TEST_F(BenchProgramTest, SingleGivesTheTimeBetweenTokens) {
  const Json json =
      Figures(BenchShape({"bs1", "--prompt-tokens", "8", "--output-tokens", "16", "--json", "-"}));
  ExpectPositive(json, {"result.first_token_s", "result.between_tokens_s",
                        "result.mean_between_tokens_s", "result.limit_s", "result.ratio_to_limit"});
  // From the measured run, not the warm-up run.
  EXPECT_EQ(Number(json, "result.num_gaps"), 15);
}

TEST_F(BenchProgramTest, PrefixFindsItsEarlierPrompts) {
  const std::string folder = folder_.Path("blocks");
  const Arguments arguments = {"prefix", "--prefix-tokens", "128", "--suffix-tokens", "4", "--json",
                               "-",      "--prefix-cache",  folder};
  const Json json = Figures(BenchShape(arguments));
  EXPECT_EQ(Number(json, "result.cached_tokens"), 128);
  EXPECT_EQ(Number(json, "result.loaded_tokens"), 128);
  ExpectPositive(json, {"result.first_token_s", "result.cached_first_token_s", "result.speedup",
                        "result.ratio_to_limit", "result.cached_ratio_to_limit",
                        "result.loaded_first_token_s", "result.loaded_bytes"});
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  // Files that are in a folder already are not touched.
  std::ofstream(folder + "/mine") << "text";
  const ProgramResult refused = BenchShape(arguments);
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_TRUE(std::filesystem::exists(folder + "/mine"));
}

TEST_F(BenchProgramTest, DraftsChangeNoAnswer) {
  for (const char* task : {"copy", "random"}) {
    const Json json = Figures(BenchShape({"spec", "--task", task, "--batch", "2", "--prompt-tokens",
                                          "40", "--output-tokens", "24", "--json", "-"}));
    EXPECT_TRUE(json.Find("result")->Find("same_answers")->as_bool()) << json.Dump();
    EXPECT_EQ(json.Find("result")->Find("task")->as_string(), task);
    ExpectPositive(json, {"result.speedup", "result.with.steps", "result.without.steps"});
    EXPECT_EQ(Number(json, "result.without.drafted_tokens"), 0);
    EXPECT_EQ(Number(json, "result.drafts"), 7);
  }
}

TEST_F(BenchProgramTest, ALayerWithMadeUpWeightsIsAlwaysRight) {
  const std::string shape = folder_.Write("layer.json", R"({"architectures": ["Qwen3_5ForCausalLM"],
      "model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
      "vocab_size": 300, "layer_types": ["full_attention", "full_attention"],
      "attn_output_gate": true, "hidden_act": "silu", "rms_norm_eps": 1e-6,
      "max_position_embeddings": 4096, "mtp_num_hidden_layers": 1, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32,
      "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_value_head_dim": 16,
      "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                          "partial_rotary_factor": 0.5}})");
  const auto run = [&](const std::string& speculate) {
    return Bench({"spec", "--shape", shape, "--dummy-weights", "--num-pages", "512", "--batch", "2",
                  "--prompt-tokens", "40", "--output-tokens", "30", "--speculate", speculate,
                  "--json", "-"});
  };
  const Json json = Figures(run("mtp:3"));
  EXPECT_TRUE(json.Find("result")->Find("same_answers")->as_bool()) << json.Dump();
  EXPECT_EQ(json.Find("result")->Find("drafter")->as_string(), "mtp");
  EXPECT_GT(Number(json, "result.with.drafted_tokens"), 30);
  EXPECT_EQ(Number(json, "result.with.drafted_tokens"),
            Number(json, "result.with.accepted_drafts"));
  ExpectFails(run("draft:somewhere:3"), 64, "bench spec drafts by ngram:K or by mtp:K");
  ExpectFails(BenchShape({"spec", "--speculate", "mtp:3"}), 65, "--speculate mtp");
}

TEST_F(BenchProgramTest, AttentionIsSweptOverItsSizes) {
  const Arguments heads = {"--heads", "4",          "--kv-heads", "2",      "--head-dim",
                           "16",      "--cold-mib", "1",          "--json", "-"};
  const auto with = [&](Arguments arguments) {
    arguments.insert(arguments.end(), heads.begin(), heads.end());
    return Figures(Bench(arguments));
  };
  const std::vector<std::string> figures = {"seconds", "bytes_per_s", "flops_per_s", "limit_s",
                                            "ratio_to_limit"};
  const Json decode = with({"attn-decode", "--batches", "1,3", "--contexts", "5,40"});
  const Json::Array& rows = decode.Find("results")->as_array();
  ASSERT_EQ(rows.size(), 12u);
  for (const Json& row : rows) ExpectPositive(row, figures);
  const int page_sizes[] = {1, 16, 64};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(Number(rows[i], "page_size"), page_sizes[i / 4]) << i;
  }

  const Json prefill =
      with({"attn-prefill", "--contexts", "20", "--cached", "0,16", "--page-sizes", "16"});
  ASSERT_EQ(prefill.Find("results")->as_array().size(), 2u);
  for (const Json& row : prefill.Find("results")->as_array()) ExpectPositive(row, figures);
  EXPECT_EQ(Number(prefill.Find("results")->as_array()[1], "context"), 36);

  const Json cascade = with(
      {"cascade", "--batches", "4", "--prefixes", "32", "--suffix", "8", "--page-sizes", "16"});
  ASSERT_EQ(cascade.Find("results")->as_array().size(), 1u);
  const Json& row = cascade.Find("results")->as_array()[0];
  ExpectPositive(row, figures);
  ExpectPositive(row, {"own_seconds", "speedup"});
  // Two shared pages, then 8 keys of each of 4 rows: 2 heads x 16 numbers, key and value, in bf16
  // on any processor.
  EXPECT_EQ(*cascade.Find("attention")->Find("kv_dtype"), Json("bf16"));
  EXPECT_NEAR(Number(row, "bytes_per_s") * Number(row, "seconds"), (32 + 4 * 8) * 2 * 16 * 2 * 2,
              1);
}

TEST_F(BenchProgramTest, ProductsOfTheShapeAreTimedForEachNumberOfRows) {
  const Arguments sizes = {"products",   "--shape", shape_,   "--tokens", "1,3",
                           "--cold-mib", "1",       "--json", "-"};
  const Json json = Figures(Bench(sizes));
  const Json::Array& rows = json.Find("results")->as_array();
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.size() % 2, 0u);
  bool has_head = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    ExpectPositive(rows[i], {"seconds", "bytes_per_s", "flops_per_s", "share_of_memory", "limit_s",
                             "ratio_to_limit", "num_out", "num_in"});
    EXPECT_EQ(Number(rows[i], "tokens"), i % 2 == 0 ? 1 : 3) << i;
    EXPECT_EQ(rows[i].Find("by")->as_string(), "the engine");
    has_head = has_head || rows[i].Find("product")->as_string() == "head";
  }
  EXPECT_TRUE(has_head);
  // In another format, with a text that says what was not measured.
  const ProgramResult text = Bench(
      {"products", "--shape", shape_, "--tokens", "2", "--format", "int8", "--cold-mib", "1"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("cuBLASLt"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("this is no GPU"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("int8, 1 MiB in turn"), std::string::npos) << text.out;
  for (const char* const format : {"fp8", "fp8-blocks"}) {
    const ProgramResult codes = Bench(
        {"products", "--shape", shape_, "--tokens", "2", "--format", format, "--cold-mib", "1"});
    EXPECT_EQ(codes.exit_code, 0) << codes.err;
    EXPECT_NE(codes.out.find("stored codes"), std::string::npos) << codes.out;
  }
}

// The CPU has no kernels to time, and says so; the figures are those of a run without it.
TEST_F(BenchProgramTest, SingleTakesTheProfileOfKernels) {
  const ProgramResult result =
      BenchShape({"bs1", "--prompt-tokens", "8", "--output-tokens", "4", "--profile-kernels"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("no kernels to time"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("each next"), std::string::npos) << result.out;
}

TEST_F(BenchProgramTest, RealWeightsAndTextOnStandardOutput) {
  const std::string path = folder_.Path("figures.json");
  const ProgramResult result =
      Bench({"bs1", "-m", DemoModel(), "--output-tokens", "4", "--json", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* expected : {"bench", "model", "ceilings", "first token", "each next", "limit"}) {
    EXPECT_NE(result.out.find(expected), std::string::npos) << expected << " in " << result.out;
  }
  const Result<Json> json = ParseJson(folder_.Read("figures.json"));
  ASSERT_TRUE(json.ok());
  EXPECT_FALSE(json->Find("model")->Find("dummy_weights")->as_bool());
  const ProgramResult again =
      Bench({"bs1", "-m", DemoModel(), "--output-tokens", "4", "--json", path});
  ExpectFails(again, 73, "figures.json");
}

TEST_F(BenchProgramTest, WrongUsageIs64) {
  ExpectFails(RunProgram({"bench"}), 64, "bench needs one of nano, uniform, ");
  ExpectFails(RunProgram({"bench", "fly"}), 64, "(fly); bench needs one of nano, ");
  ExpectFails(BenchShape({"nano", "--num-seqs", "0"}), 64, "--num-seqs");
  ExpectFails(BenchShape({"nano", "--num-seqs", "257"}), 64, "--num-seqs");
  ExpectFails(BenchShape({"nano", "--colour"}), 64, "--colour");
  ExpectFails(BenchShape({"uniform", "3", "20"}), 64, "OUT");
  ExpectFails(BenchShape({"uniform", "3", "0", "5"}), 64, "IN");
  ExpectFails(BenchShape({"shared", "3", "20", "5"}), 64, "OUT");
  ExpectFails(BenchShape({"shared", "5", "20", "1", "2", "--max-running-requests", "4"}), 64,
              "--max-running-requests");
  ExpectFails(BenchShape({"spec", "--task", "guess"}), 64, "guess");
  ExpectFails(BenchShape({"nano", "--json", "--quiet"}), 64, "--json: must be followed by FILE");
  ExpectFails(BenchShape({"uniform", "1", "4000", "200"}), 64, "--max-seq-len");
  ExpectFails(Bench({"nano"}), 64, "--shape");
  ExpectFails(Bench({"nano", "--shape", shape_}), 64, "--dummy-weights");
  ExpectFails(Bench({"attn-decode", "--page-sizes", "3"}), 64, "--page-sizes");
  ExpectFails(Bench({"attn-decode", "--schedule", "mixed"}), 64, "--schedule");
  ExpectFails(Bench({"products"}), 64, "--shape");
  ExpectFails(Bench({"products", "--shape", shape_, "--tokens", "0"}), 64, "--tokens");
  ExpectFails(Bench({"products", "--shape", shape_, "--format", "int3"}), 64, "int3");
  ExpectFails(Bench({"products", "--shape", shape_, "--schedule", "mixed"}), 64, "--schedule");
  ExpectFails(Bench({"attn-decode", "--heads", "3", "--kv-heads", "2"}), 64, "--kv-heads");
}

TEST_F(BenchProgramTest, AShapeThatCannotBeReadIs66Or65) {
  ExpectFails(Bench({"nano", "--shape", folder_.Path("none.json"), "--dummy-weights"}), 66,
              "none.json");
  ExpectFails(Bench({"nano", "--shape", folder_.Write("cut.json", "{"), "--dummy-weights"}), 65,
              "cut.json");
  const std::string other = folder_.Write("other.json", R"({"architectures": ["OtherModel"]})");
  ExpectFails(Bench({"bs1", "--shape", other, "--dummy-weights"}), 65, "OtherModel");
  ExpectFails(Bench({"attn-decode", "--shape", other}), 65, "OtherModel");
}

}  // namespace
}  // namespace minisgl::bench
