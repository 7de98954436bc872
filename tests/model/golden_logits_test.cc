// Logits against an independent implementation (tests/golden/README.md), with the oracle operations
// and the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/ops.h"

namespace minisgl {
namespace {

// Relative to the largest logit of the position.
constexpr double kTolerance = 1e-5;

struct Golden {
  const char* name;
  const char* ops;  // "naive", or the number of CPU threads
};

std::unique_ptr<Ops> MakeOps(const std::string& kind) {
  if (kind == "naive") return MakeNaiveOps();
  auto ops = MakeCpuOps({.num_threads = std::stoi(kind), .target = ""});
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return ops.ok() ? std::move(ops).value() : nullptr;
}

void ComparePosition(const Json& wanted, const float* logits) {
  const double bound = kTolerance * wanted.Find("max_abs")->as_double();
  const auto& ids = wanted.Find("token_ids")->as_array();
  const auto& values = wanted.Find("logits")->as_array();
  ASSERT_EQ(ids.size(), values.size());
  double worst = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double found = logits[ids[i].as_int()];
    ASSERT_TRUE(std::isfinite(found)) << "token " << ids[i].as_int();
    worst = std::max(worst, std::abs(found - values[i].as_double()));
  }
  EXPECT_LE(worst, bound) << "position " << wanted.Find("position")->as_int();
}

class GoldenLogitsTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenLogitsTest, AgreeWithTheReference) {
  const std::string root = MINISGL_SOURCE_DIR;
  const auto text =
      ReadFile(root + "/tests/golden/" + GetParam().name + ".json", uint64_t{64} << 20);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto golden = ParseJson(*text);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const std::string& model = golden->Find("model")->as_string();
  const std::string dir = root + (model.starts_with("tests/") ? "/" : "/tests/golden/") + model;
  const auto config = LoadModelConfig(dir);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto ops = MakeOps(GetParam().ops);
  ASSERT_NE(ops, nullptr);

  for (const Json& test_case : golden->Find("cases")->as_array()) {
    std::vector<TokenId> ids;
    for (const Json& id : test_case.Find("ids")->as_array()) {
      ids.push_back(static_cast<TokenId>(id.as_int()));
    }
    const auto logits = ComputeLogits(*config, **checkpoint, config->dtype, ops.get(), ids);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    ASSERT_EQ(logits->size(), ids.size() * static_cast<size_t>(config->vocab_size));
    for (const Json& position : test_case.Find("positions")->as_array()) {
      ComparePosition(position,
                      logits->data() + position.Find("position")->as_int() * config->vocab_size);
    }
  }
}

std::vector<Golden> AllGoldens() {
  std::vector<Golden> goldens;
  for (const char* ops : {"naive", "1", "2"}) {
    for (const char* name :
         {"wren", "separate_head", "odd_heads", "f16_sharded", "qwen2", "qwen3"}) {
      goldens.push_back({name, ops});
    }
  }
  return goldens;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLogitsTest, testing::ValuesIn(AllGoldens()),
                         [](const auto& test) {
                           const std::string ops = test.param.ops;
                           return std::string(test.param.name) + "_" +
                                  (ops == "naive" ? ops : "cpu" + ops);
                         });

}  // namespace
}  // namespace minisgl
