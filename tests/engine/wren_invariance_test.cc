// Promise 1 on the demo model: its answers and log-probabilities are the same bit for bit for all
// page sizes, chunks, threads, batches and drafts. Wren's matrices are wide enough for every
// blocked path of the kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cpu/targets.h"
#include "engine/engine_driver.h"

namespace minisgl {
namespace {

constexpr int32_t kNumTokens = 12;
const WeightFormat kInt8 = {DType::kBF16, Quantization::kInt8};
const WeightFormat kInt4 = {DType::kBF16, Quantization::kInt4};

struct Setting {
  int32_t page_size;
  int32_t chunk;
  int32_t num_threads;
  size_t rows_at_once;
  size_t num_drafts = 0;
  WeightFormat format = DType::kBF16;
  std::string cpu_target = TestedCpuTarget();
  KvKind kv_kind = KvKind::kAuto;

  std::string FormatName() const {
    return format.Name() + std::string(kv_kind == KvKind::kFp8 ? "_fp8_keys" : "");
  }
};

class WrenInvarianceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string dir = std::string(MINISGL_SOURCE_DIR) + "/tests/models/wren";
    auto config = LoadModelConfig(dir);
    auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(config.ok() && checkpoint.ok());
    config_ = *config;
    checkpoint_ = std::move(checkpoint).value();
    // The answer to the last prompt begins in one split of attention and ends in the next.
    for (const int32_t length : {1, 7, 16, 50, 129, 506}) {
      prompts_.push_back(RandomPrompt(length, static_cast<uint64_t>(length), 2048));
    }
  }

  using Answer = std::vector<RowResult>;

  // The answers to all prompts, `rows_at_once` of them in one batch. Drafts are the tokens of
  // `known`, with every fifth one wrong.
  std::vector<Answer> Answers(const Setting& setting, const std::vector<Answer>& known = {}) {
    EngineDriver driver(config_, *checkpoint_,
                        {.page_size = setting.page_size,
                         .num_threads = setting.num_threads,
                         .cpu_target = setting.cpu_target,
                         .weight_dtype = setting.format.dtype,
                         .quantization = setting.format.quantization,
                         .kv_kind = setting.kv_kind});
    std::vector<Answer> answers;
    for (size_t begin = 0; begin < prompts_.size(); begin += setting.rows_at_once) {
      const size_t end = std::min(begin + setting.rows_at_once, prompts_.size());
      std::vector<TestRow*> rows;
      for (size_t i = begin; i < end; ++i) rows.push_back(driver.AddRow(prompts_[i]));
      Finish(&driver, rows, setting, known, begin);
      for (TestRow* row : rows) {
        answers.push_back(row->results);
        driver.FreeRow(row);
      }
    }
    return answers;
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<std::vector<TokenId>> prompts_;

 private:
  static std::vector<TokenId> Drafts(const Answer& known, size_t at, size_t count) {
    std::vector<TokenId> drafts;
    for (size_t i = at; i < at + count && i + 1 < known.size(); ++i) {
      drafts.push_back(i % 5 == 4 ? known[i].token ^ 1 : known[i].token);
    }
    return drafts;
  }

  // `rows` are the rows of the prompts from `begin` on.
  static void Finish(EngineDriver* driver, const std::vector<TestRow*>& rows,
                     const Setting& setting, const std::vector<Answer>& known, size_t begin) {
    while (true) {
      // A step's budget of prefill tokens, as a scheduler would keep it.
      int32_t budget = 256;
      bool any = false;
      for (size_t i = 0; i < rows.size(); ++i) {
        TestRow* row = rows[i];
        if (row->results.size() == size_t{kNumTokens} || budget == 0) continue;
        const int32_t left = row->known_len - row->computed_len;
        if (setting.num_drafts > 0 && left == 1) {
          const size_t most = std::min(setting.num_drafts, static_cast<size_t>(budget));
          const auto drafts = Drafts(known[begin + i], row->results.size(), most);
          driver->ExtendWithDrafts(row, drafts);
          budget -= static_cast<int32_t>(drafts.size());
        } else {
          const int32_t count = std::min({setting.chunk, left, budget});
          driver->Extend(row, count);
          budget -= count;
        }
        any = true;
      }
      if (!any) return;
      ASSERT_TRUE(driver->Step().ok());
    }
  }
};

Setting Coded(Setting setting) {
  setting.kv_kind = KvKind::kFp8;
  return setting;
}

class WrenSettingsTest : public WrenInvarianceTest, public testing::WithParamInterface<Setting> {};

TEST_P(WrenSettingsTest, AnswersAreTheSameBitForBit) {
  // Expected answers: one prompt at a time, in one prefill; the same for all settings of a format.
  static std::map<std::string, std::vector<Answer>> wanted_of;
  auto& wanted = wanted_of[GetParam().FormatName()];
  Setting alone = {16, 256, 1, 1, 0, GetParam().format};
  alone.kv_kind = GetParam().kv_kind;
  if (wanted.empty()) wanted = Answers(alone);
  const auto found = Answers(GetParam(), wanted);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(wanted[i].size(), size_t{kNumTokens});
    EXPECT_TRUE(SameResults(found[i], wanted[i])) << "prompt " << i;
  }
}

// Answers are the same within each instruction set, not between them. (The scalar one takes minutes
// under a sanitizer; the tests of operations check it.)
TEST_F(WrenInvarianceTest, EveryTargetKeepsItsOwnBits) {
  prompts_ = {prompts_[1], prompts_[3], prompts_[4]};
  for (const cpu::CpuTarget target : cpu::AvailableCpuTargets()) {
    if (target == cpu::CpuTarget::kScalar) continue;
    const std::string name = cpu::CpuTargetName(target);
    for (Setting alone : {Setting{16, 256, 1, 1},
                          {16, 256, 1, 1, 0, kInt8},
                          {16, 256, 1, 1, 0, kInt4},
                          Coded({16, 256, 1, 1})}) {
      alone.cpu_target = name;
      Setting together = {4, 33, 2, 3, 4, alone.format, name, alone.kv_kind};
      const auto wanted = Answers(alone);
      const auto found = Answers(together, wanted);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(SameResults(found[i], wanted[i]))
            << name << " " << alone.FormatName() << " prompt " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WrenSettingsTest,
    testing::Values(Setting{1, 256, 1, 6}, Setting{4, 7, 1, 3}, Setting{16, 32, 2, 6},
                    Setting{16, 1, 1, 2}, Setting{64, 33, 2, 4}, Setting{2, 100, 3, 5},
                    Setting{16, 256, 1, 1, 11}, Setting{1, 64, 2, 6, 4}, Setting{4, 256, 1, 3, 1},
                    Setting{16, 64, 2, 4, 8}, Setting{16, 256, 2, 6, 6, DType::kF32},
                    Setting{16, 256, 1, 1, 3, DType::kF16}, Setting{4, 33, 2, 6, 0, kInt8},
                    Setting{16, 64, 2, 3, 5, kInt8}, Setting{1, 1, 1, 6, 0, kInt8},
                    Coded({1, 256, 1, 6}), Coded({4, 7, 1, 3, 4}), Coded({16, 32, 2, 6, 8}),
                    Coded({64, 33, 2, 4}), Coded({16, 1, 1, 2, 11})),
    [](const auto& test) {
      const Setting& setting = test.param;
      return fmt::format("page{}_chunk{}_threads{}_rows{}_drafts{}_{}", setting.page_size,
                         setting.chunk, setting.num_threads, setting.rows_at_once,
                         setting.num_drafts, setting.FormatName());
    });

}  // namespace
}  // namespace minisgl
