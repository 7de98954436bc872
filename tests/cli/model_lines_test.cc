// The lines of several models in what minisgl info and minisgl plan print, and none for one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "cli/info_plan.h"
#include "cli/plan_text.h"

namespace minisgl::cli {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

load::EngineSetup SetupOfOne() {
  load::EngineSetup engine;
  engine.options.threads = 2;
  engine.plan.weight_format = DType::kBF16;
  engine.plan.kv_bytes = 160 * kMiB;
  engine.plan.kv_bytes_per_token = 40960;
  engine.plan.limits.num_pages = 255;
  engine.plan.limits.max_running_requests = 4;
  engine.plan.limits.max_seq_len = 1024;
  engine.plan.models = {{.role = ModelRole::kTarget,
                         .name = "LlamaForCausalLM",
                         .weight_format = DType::kBF16,
                         .weight_bytes = 2048 * kMiB,
                         .workspace_bytes = 100 * kMiB,
                         .kv_bytes_per_token = 32768}};
  return engine;
}

load::EngineSetup SetupOfThree() {
  load::EngineSetup engine = SetupOfOne();
  engine.plan.models.push_back({.role = ModelRole::kDrafter,
                                .name = "Draft\x1b[mForCausalLM",
                                .weight_format = {DType::kBF16, Quantization::kInt8},
                                .weight_bytes = 200 * kMiB,
                                .workspace_bytes = 10 * kMiB,
                                .kv_bytes_per_token = 8192});
  engine.plan.models.push_back({.role = ModelRole::kTower,
                                .name = "SiglipVisionModel",
                                .weight_format = DType::kF32,
                                .weight_bytes = 800 * kMiB,
                                .workspace_bytes = 50 * kMiB,
                                .is_cut = false});
  return engine;
}

// The lines of `more` that `text` lacks; the test fails if it has others.
std::string AddedLines(const std::string& text, const std::string& more) {
  std::string added;
  size_t at = 0;
  for (size_t begin = 0; begin < more.size();) {
    const size_t end = more.find('\n', begin) + 1;
    const std::string line = more.substr(begin, end - begin);
    if (text.compare(at, line.size(), line) == 0) {
      at += line.size();
    } else {
      added += line;
    }
    begin = end;
  }
  EXPECT_EQ(at, text.size()) << "lines are lost: " << text.substr(at);
  return added;
}

TEST(ModelLinesTest, InfoAddsALineForEachOfSeveral) {
  std::string one, three;
  DescribePlan(SetupOfOne(), ModelConfig(), &one);
  DescribePlan(SetupOfThree(), ModelConfig(), &three);
  EXPECT_EQ(one.find("target"), std::string::npos) << one;
  const std::string added = AddedLines(one, three);
  EXPECT_EQ(std::count(added.begin(), added.end(), '\n'), 3) << added;
  for (const char* const part :
       {"  target",
        "LlamaForCausalLM: 2.0 GiB of weights as bf16, 100.0 MiB of workspace, "
        "32.0 KiB of keys and values a token\n",
        "  drafter",
        "ForCausalLM: 200.0 MiB of weights as int8, 10.0 MiB of workspace, "
        "8.0 KiB of keys and values a token\n",
        "  tower",
        "SiglipVisionModel: 800.0 MiB of weights as f32, 50.0 MiB of workspace, "
        "no keys and values in pages\n"}) {
    EXPECT_NE(added.find(part), std::string::npos) << part << "\n" << added;
  }
  EXPECT_EQ(added.find('\x1b'), std::string::npos) << added;
}

TEST(ModelLinesTest, RanksSayWhatIsWholeOnEach) {
  load::EngineSetup engine = SetupOfThree();
  engine.options.tensor_parallel = 2;
  std::string text;
  DescribePlan(engine, ModelConfig(), &text);
  EXPECT_NE(text.find("no keys and values in pages; whole on each rank\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("a token; whole"), std::string::npos) << text;
}

TEST(ModelLinesTest, PlanAddsALineForEachOfSeveral) {
  report::RunEstimate estimate;
  estimate.rows = estimate.requests = 3;
  PlanSubject one, three;
  one.facts.engine = SetupOfOne();
  three.facts.engine = SetupOfThree();
  const std::string added = AddedLines(PlanText(estimate, one), PlanText(estimate, three));
  EXPECT_EQ(std::count(added.begin(), added.end(), '\n'), 3) << added;
  EXPECT_TRUE(added.starts_with("target      LlamaForCausalLM: ")) << added;
  EXPECT_NE(added.find("\ndrafter     Draft"), std::string::npos) << added;
  EXPECT_NE(added.find("\ntower       SiglipVisionModel: "), std::string::npos) << added;
}

}  // namespace
}  // namespace minisgl::cli
