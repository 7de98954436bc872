// Logits against an independent implementation (tests/golden/README.md), with the oracle operations
// and the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "golden_models.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/ops.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/architecture_table.h"
#include "weights/wrappers.h"

namespace minisgl {
namespace {

struct Golden {
  GoldenModel model;
  const char* ops;  // "naive", or the number of CPU threads
};

std::unique_ptr<Ops> MakeOps(const std::string& kind) {
  if (kind == "naive") return MakeNaiveOps();
  auto ops = MakeCpuOps({.num_threads = std::stoi(kind), .target = TargetOfF32Activations()});
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return ops.ok() ? std::move(ops).value() : nullptr;
}

void ComparePosition(const Json& wanted, const float* logits, double tolerance) {
  const double bound = tolerance * wanted.Find("max_abs")->as_double();
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

// `ops`: Ops*, or EngineRanks.
template <typename AnyOps>
void CompareLogits(const Json& golden, const ModelConfig& config, DType dtype, const AnyOps& ops,
                   double tolerance) {
  const auto checkpoint = Checkpoint::Open(GoldenModelDir(golden));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  for (const Json& test_case : golden.Find("cases")->as_array()) {
    const std::vector<TokenId> ids = ToIds(*test_case.Find("ids"));
    const auto logits = ComputeLogits(config, **checkpoint, dtype, ops, ids);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    ASSERT_EQ(logits->size(), ids.size() * static_cast<size_t>(config.vocab_size));
    for (const Json& position : test_case.Find("positions")->as_array()) {
      ComparePosition(position,
                      logits->data() + position.Find("position")->as_int() * config.vocab_size,
                      tolerance);
    }
  }
}

class GoldenLogitsTest : public testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    golden_ = ReadGolden(GetParam().model.name);
    ASSERT_TRUE(golden_.is_object());
    auto config = LoadModelConfig(GoldenModelDir(golden_));
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(config).value();
    ops_ = MakeOps(GetParam().ops);
    ASSERT_NE(ops_, nullptr);
  }

  Json golden_;
  ModelConfig config_;
  std::unique_ptr<Ops> ops_;
};

TEST_P(GoldenLogitsTest, AgreeWithTheReference) {
  CompareLogits(golden_, config_, DTypeOfF32KeysAndValues(config_), ops_.get(),
                GetParam().model.tolerance);
}

TEST_P(GoldenLogitsTest, AreNearItAsTheModelIsStored) {
  CompareLogits(golden_, config_, config_.dtype, ops_.get(),
                config_.quantization.empty() ? kBf16KvTolerance : kBf16QuantizedTolerance);
}

std::vector<Golden> AllGoldens() {
  std::vector<Golden> goldens;
  for (const char* ops : {"naive", "1", "2"}) {
    for (const GoldenModel& model : AllGoldenModels()) goldens.push_back({model, ops});
  }
  return goldens;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLogitsTest, testing::ValuesIn(AllGoldens()),
                         [](const auto& test) {
                           const std::string ops = test.param.ops;
                           return std::string(test.param.model.name) + "_" +
                                  (ops == "naive" ? ops : "cpu" + ops);
                         });

class GoldenRanksTest : public testing::TestWithParam<GoldenModel> {};

// Models that divide among ranks. RanksTest lists the others.
TEST_P(GoldenRanksTest, AgreeWithTheReference) {
  const Json golden = ReadGolden(GetParam().name);
  ASSERT_TRUE(golden.is_object());
  const auto config = LoadModelConfig(GoldenModelDir(golden));
  ASSERT_TRUE(config.ok()) << config.status().message();
  for (const int32_t num_ranks : {2, 4}) {
    if (!CheckRanks(*config, num_ranks).ok()) continue;
    SCOPED_TRACE(num_ranks);
    CompareLogits(golden, *config, DTypeOfF32KeysAndValues(*config),
                  RanksOfF32Activations(num_ranks), GetParam().tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRanksTest, testing::ValuesIn(AllGoldenModels()),
                         [](const auto& test) { return std::string(test.param.name); });

// Hub files from before transformers 5 and since spell the same model in two ways.
class GoldenSpellingTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenSpellingTest, BothAgreeWithTheReference) {
  const Json golden = ReadGolden(GetParam());
  ASSERT_TRUE(golden.is_object());
  const std::string file = GoldenModelDir(golden) + "/other_spelling.json";
  const auto text = ReadFile(file, uint64_t{1} << 20);
  ASSERT_TRUE(text.ok()) << text.status().message();
  auto config = ParseModelConfig(*text, file);
  ASSERT_TRUE(config.ok()) << config.status().message();
  if (!config->wrapper.empty() || weights::FindArchitecture(config->architecture)->has_forms) {
    const auto checkpoint = Checkpoint::Open(GoldenModelDir(golden));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    weights::FindStoredForm(**checkpoint, &*config);
  }
  const auto ops = MakeOps("1");
  ASSERT_NE(ops, nullptr);
  CompareLogits(golden, *config, DTypeOfF32KeysAndValues(*config), ops.get(),
                kArchitectureTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSpellingTest, testing::ValuesIn(kGoldenArchitectures),
                         [](const auto& test) { return std::string(test.param); });

// Factors that the reference rounds to the type that embeddings have in memory: in f32 they are
// exact, whatever type the files name.
class StoredTypeTest : public testing::TestWithParam<const char*> {};

TEST_P(StoredTypeTest, ChangesNoConstantOfARunInF32) {
  const Json golden = ReadGolden(GetParam());
  ASSERT_TRUE(golden.is_object());
  auto text = ReadFile(GoldenModelDir(golden) + "/config.json", uint64_t{1} << 20);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const size_t at = text->find("\"float32\"");
  ASSERT_NE(at, std::string::npos);
  const auto config = ParseModelConfig(text->replace(at, 9, "\"bfloat16\""), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_EQ(config->dtype, DType::kBF16);
  const auto ops = MakeOps("1");
  ASSERT_NE(ops, nullptr);
  CompareLogits(golden, *config, DType::kF32, ops.get(), kArchitectureTolerance / 10);
}

// The roots of these models' widths, 32 and 6 for each layer, are no bf16.
INSTANTIATE_TEST_SUITE_P(All, StoredTypeTest, testing::Values("gemma3_text", "gemma4_text"),
                         [](const auto& test) { return std::string(test.param); });

// The goldens have the caps of published models, 30 and more.
TEST(LogitSoftcapTest, LogitsStayBelowASmallCap) {
  const Json golden = ReadGolden("gemma2");
  ASSERT_TRUE(golden.is_object());
  auto config = LoadModelConfig(GoldenModelDir(golden));
  const auto checkpoint = Checkpoint::Open(GoldenModelDir(golden));
  const auto ops = MakeOps("1");
  ASSERT_TRUE(config.ok() && checkpoint.ok() && ops != nullptr);
  config->logit_softcap = 1e-3;
  const std::vector<TokenId> ids = {1, 2, 3};
  const auto logits = ComputeLogits(*config, **checkpoint, DType::kF32, ops.get(), ids);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  const float largest = std::abs(*std::max_element(
      logits->begin(), logits->end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  EXPECT_LE(largest, 1e-3f);
  EXPECT_GT(largest, 1e-4f);
}

// A model that is made but compared by no test would look covered.
TEST(GoldenModels, EveryFileIsOfTheList) {
  std::set<std::string> listed, found;
  for (const GoldenModel& model : AllGoldenModels()) {
    listed.insert(std::string(model.name) + ".json");
    if (model.has_greedy) listed.insert(std::string(model.name) + "_greedy.json");
  }
  const std::string folder = std::string(MINISGL_SOURCE_DIR) + "/tests/golden";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".json") found.insert(name);
  }
  EXPECT_EQ(listed, found);
}

}  // namespace
}  // namespace minisgl
