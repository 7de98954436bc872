// The CPU's engine on several ranks: the same bits for every schedule and number of threads, the
// memory that was planned, copies of keys and values, and faults of one rank.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/forwarding_ops.h"
#include "engine/kv_copies.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/model/decoder.h"

namespace minisgl {
namespace {

constexpr int32_t kAnswer = 6;

// Four query heads on two KV heads: a small form of a model of many layers.
class RanksEngineTest : public testing::Test {
 protected:
  RanksEngineTest() {
    model_->config.max_seq_len = 512;
    model_->checkpoint = WriteCheckpoint(model_->dir, TinyTensors(model_->config));
  }

  std::vector<RowResult> Generate(const DriverOptions& options, int32_t chunk) {
    EngineDriver driver(*model_, options);
    return driver.Generate(driver.AddRow(prompt_), chunk, kAnswer);
  }

  const std::unique_ptr<TestModel> model_ = MakeTinyModel();
  const std::vector<TokenId> prompt_ = RandomPrompt(2 * kBlock + 9, 3);
};

TEST_F(RanksEngineTest, EveryScheduleGivesTheSameBits) {
  const std::vector<RowResult> alone = Generate({}, kAll);
  for (const int32_t num_ranks : {2, 4}) {
    const std::vector<RowResult> wanted = Generate({.num_ranks = num_ranks}, kAll);
    ASSERT_EQ(wanted.size(), alone.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(wanted[i].token, alone[i].token);
      EXPECT_NEAR(wanted[i].logprob, alone[i].logprob, 1e-4);
    }
    for (const int32_t page_size : {1, 16}) {
      const DriverOptions options{.page_size = page_size, .num_threads = 5, .num_ranks = num_ranks};
      EXPECT_TRUE(SameResults(Generate(options, 7), wanted)) << num_ranks << " " << page_size;
    }
  }
}

TEST_F(RanksEngineTest, RowsDoNotDependOnOthers) {
  const DriverOptions options{.num_ranks = 2};
  const std::vector<RowResult> wanted = Generate(options, kAll);
  EngineDriver driver(*model_, options);
  TestRow* const row = driver.AddRow(prompt_);
  TestRow* const other = driver.AddRow(RandomPrompt(50, 4));
  while (row->results.size() < kAnswer) {
    for (TestRow* const one : {row, other}) {
      driver.Extend(one, std::min(31, one->known_len - one->computed_len));
    }
    ASSERT_TRUE(driver.Step().ok());
  }
  EXPECT_TRUE(SameResults(row->results, wanted));
}

// Each rank quantizes its own part of a matrix, as codes for tiles or for products of integers.
TEST_F(RanksEngineTest, Int8IsTheSameUnderEverySchedule) {
  for (const char* const target : {"amx_stand_in", "scalar"}) {
    DriverOptions options{
        .cpu_target = target, .weight_dtype = DType::kBF16, .quantization = Quantization::kInt8};
    const std::vector<RowResult> alone = Generate(options, kAll);
    for (const int32_t num_ranks : {1, 2, 4}) {
      options.num_ranks = num_ranks;
      options.num_threads = 1;
      options.page_size = 16;
      const std::vector<RowResult> wanted = Generate(options, kAll);
      ASSERT_EQ(wanted.size(), alone.size());
      EXPECT_EQ(wanted[0].token, alone[0].token) << target;
      EXPECT_NEAR(wanted[0].logprob, alone[0].logprob, 0.1) << target;
      options.num_threads = 5;
      options.page_size = 4;
      EXPECT_TRUE(SameResults(Generate(options, 7), wanted)) << target << " " << num_ranks;
    }
  }
}

TEST_F(RanksEngineTest, BlocksOfKeysAndValuesHoldThoseOfAllRanks) {
  for (const int32_t num_ranks : {2, 4}) {
    const DriverOptions options{.page_size = 16, .num_ranks = num_ranks};
    const std::vector<RowResult> wanted = Generate(options, kAll);
    EngineDriver from(*model_, {.page_size = 4, .num_ranks = num_ranks}), to(*model_, options);
    // 2 layers, keys and values of 8 floats of 2 KV heads, of which 4 ranks have two each.
    EXPECT_EQ(from.engine()->KvBlockBytes(kBlock),
              int64_t{kBlock} * 2 * 2 * 8 * 4 * std::max(2, num_ranks));
    EXPECT_TRUE(SameResults(AnswerFromBlocks(&from, 4, &to, 16, prompt_, kAnswer), wanted));
  }
}

TEST_F(RanksEngineTest, ThePlanCountsAllRanks) {
  const auto plan_of = [&](int32_t num_ranks) {
    ModelEngineOptions options;
    options.num_ranks = num_ranks;
    options.num_threads = 4;
    const auto plan = PlanMemory(model_->config, options, uint64_t{1} << 32);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *plan;
  };
  const MemoryPlan one = plan_of(1), two = plan_of(2), four = plan_of(4);
  // Norms are on both.
  EXPECT_GT(two.weight_bytes, one.weight_bytes);
  EXPECT_LT(two.weight_bytes, one.weight_bytes * 11 / 10);
  EXPECT_EQ(two.kv_bytes_per_token, one.kv_bytes_per_token);
  EXPECT_EQ(four.kv_bytes_per_token, 2 * one.kv_bytes_per_token);  // two KV heads on four ranks
  ModelEngineOptions options;
  options.num_ranks = 2;
  const auto ranks = CountRankBytes(model_->config, options);
  ASSERT_TRUE(ranks.ok() && ranks->size() == 2);
  EXPECT_EQ((*ranks)[0].weights + (*ranks)[1].weights, two.weight_bytes);
  EXPECT_EQ((*ranks)[0].kv_per_token * 2, two.kv_bytes_per_token);
  options.num_ranks = 3;
  EXPECT_EQ(PlanMemory(model_->config, options, uint64_t{1} << 32).status().message(),
            "tensor_parallel 3: 4 query heads do not divide; 2 or 4 would do");
}

TEST(ThreadsOfRankTest, ThreadsAreDividedAndNoRankHasNone) {
  EXPECT_EQ(ThreadsOfRank(7, {0, 1}), 7);
  EXPECT_EQ(ThreadsOfRank(7, {0, 2}), 4);
  EXPECT_EQ(ThreadsOfRank(7, {1, 2}), 3);
  EXPECT_EQ(ThreadsOfRank(2, {3, 4}), 1);
}

// Raises a fault at one product.
class FaultyOps final : public ForwardingOps {
 public:
  FaultyOps(const HostRank& rank, void (*fault)(), int at)
      : ForwardingOps(rank), fault_(fault), left_(at) {}
  void Linear(const LinearParams& params) override {
    if (fault_ != nullptr && left_-- == 0) fault_();
    ForwardingOps::Linear(params);
  }

 private:
  void (*const fault_)();
  int left_;
};

TEST_F(RanksEngineTest, AFaultOfOneRankEndsTheStepAndTheNextRuns) {
  void (*const faults[])() = {[] { throw std::bad_alloc(); },
                              [] { throw std::runtime_error("a broken rank"); }};
  for (const int32_t faulty : {0, 1}) {
    for (const int at : {0, 3, 8}) {  // before the first sum, between two, and in the output head
      for (size_t kind = 0; kind < 2; ++kind) {
        EngineRanks ranks;
        ranks.rendezvous = std::make_shared<Rendezvous>(2, /*spins=*/false);
        for (int32_t index = 0; index < 2; ++index) {
          ranks.ops.push_back(std::make_unique<FaultyOps>(
              HostRank{index, ranks.rendezvous}, index == faulty ? faults[kind] : nullptr, at));
        }
        EngineDriver driver(model_->config, *model_->checkpoint, {.num_ranks = 2},
                            std::move(ranks));
        driver.ExtendAll(driver.AddRow({1, 2, 3}));
        const Status status = driver.Step();
        EXPECT_EQ(status.code(), kind == 0 ? StatusCode::kOutOfMemory : StatusCode::kInternal);
        if (kind == 1) {
          EXPECT_NE(status.message().find("a broken rank"), std::string::npos) << status.message();
        }
        TestRow* const row = driver.AddRow({4, 5, 6});
        driver.ExtendAll(row);
        ASSERT_TRUE(driver.Step().ok());
        EXPECT_EQ(row->results.size(), 1u);
      }
    }
  }
}

// The processors that this thread may run on.
std::vector<int> OwnCpus() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Keeps the processors of the threads that load weights, take memory and compute.
class PlacedOps final : public ForwardingOps {
 public:
  PlacedOps(const HostRank& rank, std::set<std::vector<int>>* seen)
      : ForwardingOps(rank), seen_(seen) {}
  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    if (num_bytes >= kPagesBytes) See();
    return ForwardingOps::Allocate(num_bytes);
  }
  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    See();
    return ForwardingOps::PackMatrix(parts, format);
  }
  void Linear(const LinearParams& params) override {
    See();
    ForwardingOps::Linear(params);
  }

  // Only the keys and values of a layer, and weights, take so many bytes or more.
  static constexpr size_t kPagesBytes = size_t{1} << 18;

 private:
  void See() { seen_->insert(OwnCpus()); }
  std::set<std::vector<int>>* const seen_;
};

// Two nodes of one processor each: threads on a rank's node compute, load and allocate pages for
// it, the caller's node stays free, and tokens equal those of ranks anywhere.
TEST_F(RanksEngineTest, RanksStayOnTheirProcessors) {
  const std::vector<int> before = OwnCpus();
  if (before.size() < 2) GTEST_SKIP() << "this process may use one processor only";
  const DriverOptions options{.num_ranks = 2, .num_pages = 2000};
  const std::vector<std::vector<int>> places = {{before[0]}, {before[1]}};
  std::vector<RowResult> wanted;
  for (const bool placed : {false, true}) {
    std::set<std::vector<int>> seen[2];
    EngineRanks ranks;
    ranks.rendezvous = std::make_shared<Rendezvous>(2, /*spins=*/false);
    if (placed) ranks.cpus = places;
    for (int32_t rank = 0; rank < 2; ++rank) {
      ranks.ops.push_back(
          std::make_unique<PlacedOps>(HostRank{rank, ranks.rendezvous}, &seen[rank]));
    }
    EngineDriver driver(model_->config, *model_->checkpoint, options, std::move(ranks));
    const auto results = driver.Generate(driver.AddRow(prompt_), kAll, kAnswer);
    if (!placed) wanted = results;
    EXPECT_TRUE(SameResults(results, wanted));
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(seen[rank], (std::set{placed ? places[rank] : before})) << rank;
    }
  }
  EXPECT_EQ(OwnCpus(), before);
}

// The threads of the process whose processors are `cpus` alone.
int CountThreadsOn(const std::vector<int>& cpus) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      count += line == "Cpus_allowed_list:\t" + std::to_string(cpus[0]) ? 1 : 0;
    }
  }
  return count;
}

// The threads of the CPU's operations, too: of each rank its own and one more.
TEST_F(RanksEngineTest, ThreadsOfOperationsStayOnTheirProcessors) {
  const std::vector<int> before = OwnCpus();
  if (before.size() < 2) GTEST_SKIP() << "this process may use one processor only";
  const std::vector<std::vector<int>> places = {{before[0]}, {before[1]}};
  EngineRanks ranks;
  ranks.rendezvous = std::make_shared<Rendezvous>(2, /*spins=*/false);
  ranks.cpus = places;
  for (int32_t rank = 0; rank < 2; ++rank) {
    auto ops = MakeCpuOps({.num_threads = 2,
                           .target = TestedCpuTarget(),
                           .rank = {rank, ranks.rendezvous},
                           .cpus = places[static_cast<size_t>(rank)]});
    ASSERT_TRUE(ops.ok()) << ops.status().message();
    ranks.ops.push_back(std::move(ops).value());
  }
  EngineDriver driver(model_->config, *model_->checkpoint, {.num_ranks = 2}, std::move(ranks));
  EXPECT_TRUE(SameResults(driver.Generate(driver.AddRow(prompt_), kAll, kAnswer),
                          Generate({.num_ranks = 2}, kAll)));
  EXPECT_EQ(CountThreadsOn(places[0]), 2);
  EXPECT_EQ(CountThreadsOn(places[1]), 2);
}

// Memory that one rank does not get is an error of the start.
TEST_F(RanksEngineTest, ARankThatCannotLoadEndsTheStart) {
  class PoorOps final : public ForwardingOps {
   public:
    explicit PoorOps(const HostRank& rank) : ForwardingOps(rank) {}
    Result<Matrix> PackMatrix(std::span<const WeightTensor>, const WeightFormat&) override {
      return MakeStatus(StatusCode::kOutOfMemory, "no memory on this rank");
    }
  };
  EngineRanks ranks;
  ranks.rendezvous = std::make_shared<Rendezvous>(2, /*spins=*/false);
  ranks.ops.push_back(std::make_unique<ForwardingOps>(HostRank{0, ranks.rendezvous}));
  ranks.ops.push_back(std::make_unique<PoorOps>(HostRank{1, ranks.rendezvous}));
  ModelEngineOptions options;
  options.num_ranks = 2;
  const auto plan = PlanMemory(model_->config, options, uint64_t{1} << 32);
  ASSERT_TRUE(plan.ok());
  const auto engine = MakeModelEngine(model_->config, *model_->checkpoint, *plan, std::move(ranks));
  EXPECT_EQ(engine.status().message(), "no memory on this rank");
}

// Each rank reads the numbers of its own part, and names the place in the file.
TEST(RankWeightsTest, ACodeThatIsNoNumberIsFoundByItsRank) {
  const std::string from =
      std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/quant_fp8_block_moe";
  const TinyModelDir dir;
  std::filesystem::copy(from, dir.path());
  // The last input of the first output of a matrix that is cut along its inputs.
  std::string bytes = ReadFile(dir.path() + "/model.safetensors", uint64_t{1} << 24).value();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const Json header = ParseJson(bytes.substr(8, header_bytes)).value();
  const Json& tensor = *header.Find("model.layers.0.self_attn.o_proj.weight");
  ASSERT_EQ(tensor.Find("dtype")->as_string(), "F8_E4M3");
  const int64_t num_in = tensor.Find("shape")->as_array()[1].as_int();
  const int64_t first = tensor.Find("data_offsets")->as_array()[0].as_int();
  bytes[8 + header_bytes + static_cast<size_t>(first + num_in - 1)] = 0x7F;
  ASSERT_TRUE(ReplaceFile(dir.path() + "/model.safetensors", bytes, 0600).ok());

  const auto config = LoadModelConfig(dir.path());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(config.ok() && checkpoint.ok());
  const auto load = [&](int32_t rank) {
    const auto ops = MakeNaiveOps();
    DecoderOptions options;
    options.max_step_tokens = options.max_logit_rows = options.max_seq_len = 8;
    options.rank = {rank, 2};
    return Decoder::Load(*config, **checkpoint, options, ops.get()).status();
  };
  EXPECT_TRUE(load(0).ok()) << load(0).message();
  const std::string place = "o_proj.weight\": the weight of output 0, input " +
                            std::to_string(num_in - 1) + " is NaN (code 0x7f)";
  EXPECT_NE(load(1).message().find(place), std::string::npos) << load(1).message();
}

}  // namespace
}  // namespace minisgl
