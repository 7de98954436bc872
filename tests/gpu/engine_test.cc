// The CUDA engine from end to end: against the CPU's, against itself with and without graphs and
// with two steps in flight, and --deterministic: the same bits however work is divided.
//
// Against the CPU, sums are taken in other orders and rounded to 16 bits: log-probabilities agree
// within a tolerance, and tokens unless the two likeliest are nearer to each other than twice that.
// The tolerances are two to three times the difference between the oracle with 16-bit activations
// and f32 on the same prompts.
#include <cstdio>
#include <tuple>

#include "engine/scheduled_run.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

constexpr int32_t kAll = 1 << 20;     // no chunk is that long
constexpr int32_t kStepTokens = 256;  // the most of a step that DriverOptions allows by itself

class GpuEngineTest : public GpuTest {
 protected:
  using Answer = std::vector<RowResult>;

  static std::unique_ptr<EngineDriver> OnGpu(const TestModel& model, const DriverOptions& options,
                                             const CudaOpsConfig& config = {}) {
    return std::make_unique<EngineDriver>(model, options, Make(config));
  }
  // Models of tests/golden/models with random weights against the CPU engine over the oracle.
  static void CompareWithOracle(const std::vector<const char*>& names, int32_t chunk = 13);
  // Answers of `num_tokens` tokens to all prompts, each run alone.
  static std::vector<Answer> Answers(EngineDriver* driver,
                                     const std::vector<std::vector<TokenId>>& prompts,
                                     int32_t chunk, int32_t num_tokens) {
    std::vector<Answer> answers;
    for (const auto& prompt : prompts) {
      TestRow* const row = driver->AddRow(prompt);
      answers.push_back(driver->Generate(row, chunk, num_tokens));
      driver->FreeRow(row);
    }
    return answers;
  }
  static std::vector<std::vector<TokenId>> Prompts(const std::vector<int32_t>& lengths,
                                                   int32_t vocab_size) {
    std::vector<std::vector<TokenId>> prompts;
    for (const int32_t length : lengths) {
      prompts.push_back(RandomPrompt(length, static_cast<uint64_t>(length), vocab_size));
    }
    return prompts;
  }
};

// Compares an answer of the device with the CPU's, token by token. If the two choose differently
// between nearly equal tokens, the device continues from the CPU's choice, so that every token is
// compared.
struct Agreement {
  double tolerance;  // of the likeliest token's log-probability; of less likely ones three times it
  int num_tokens = 0, num_same = 0;
  double worst = 0;

  void Compare(EngineDriver* driver, const std::vector<TokenId>& prompt,
               const std::vector<RowResult>& wanted, int32_t chunk, const std::string& what);
  void Report(const std::string& what) const {
    std::printf("%s: %d of %d tokens the same, log-probabilities at most %.4f apart\n",
                what.c_str(), num_same, num_tokens, worst);
    EXPECT_GE(num_same, num_tokens * 9 / 10) << what;
  }
};

void Agreement::Compare(EngineDriver* driver, const std::vector<TokenId>& prompt,
                        const std::vector<RowResult>& wanted, int32_t chunk,
                        const std::string& what) {
  std::vector<TokenId> said = prompt;
  size_t at = 0;
  while (at < wanted.size()) {
    TestRow* const row = driver->AddRow(said);
    const auto actual = driver->Generate(row, chunk, static_cast<int32_t>(wanted.size() - at));
    driver->FreeRow(row);
    for (const RowResult& result : actual) {
      const RowResult& right = wanted[at];
      ASSERT_EQ(result.outcome, right.outcome) << what << " token " << at;
      ASSERT_EQ(result.top_logprobs.size(), right.top_logprobs.size()) << what;
      for (size_t rank = 0; rank < right.top_logprobs.size(); ++rank) {
        const double apart = std::abs(static_cast<double>(result.top_logprobs[rank].logprob) -
                                      right.top_logprobs[rank].logprob);
        worst = std::max(worst, apart);
        ASSERT_LE(apart, rank == 0 ? tolerance : 3 * tolerance)
            << what << " token " << at << " rank " << rank;
      }
      ++num_tokens;
      ++at;
      said.push_back(right.token);
      if (result.token == right.token) {
        ++num_same;
        continue;
      }
      ASSERT_LT(right.top_logprobs[0].logprob - right.top_logprobs[1].logprob, 2 * tolerance)
          << what << " token " << at - 1;
      break;
    }
  }
}

// In chunks and whole, in graphs and without.
TEST_F(GpuEngineTest, TheTinyModelAgreesWithTheCpu) {
  MarkSlow("a model on the emulator");
  const auto model = MakeGpuTinyModel();
  const auto prompts = Prompts(
      IsSlow() ? std::vector<int32_t>{21} : std::vector<int32_t>{1, 2, 15, 16, 17, 64, 65, 130},
      97);
  const int32_t num_tokens = IsSlow() ? 4 : 40;
  for (const DType dtype : kHalfTypes) {
    EngineDriver cpu(model->config, *model->checkpoint, {.weight_dtype = dtype},
                     MakeNaiveOps(dtype));
    const auto wanted = Answers(&cpu, prompts, kAll, num_tokens);
    Agreement agreement{.tolerance = dtype == DType::kBF16 ? 0.06 : 0.01};
    for (const int32_t graph_max_rows : {0, 2}) {
      const auto gpu = OnGpu(*model,
                             {.page_size = graph_max_rows == 0 ? 16 : 4,
                              .max_running_requests = 4,
                              .graph_max_rows = graph_max_rows},
                             {.activation_dtype = dtype});
      for (size_t i = 0; i < prompts.size(); ++i) {
        for (const int32_t chunk : {7, kAll}) {
          if (IsSlow() && (chunk == 7) != (graph_max_rows == 0)) continue;
          agreement.Compare(gpu.get(), prompts[i], wanted[i], chunk,
                            std::string(DTypeName(dtype)) + " prompt " + std::to_string(i));
        }
      }
    }
    agreement.Report(std::string("tiny model, ") + DTypeName(dtype));
  }
}

// The CPU's weights and keys are f32 here, and its activations always are, so this is the whole
// error of 16 bits.
TEST_F(GpuEngineTest, WrenAgreesWithTheCpu) {
  MarkSlow("the demo model on the emulator");
  const auto model = OpenWren();
  const auto prompts = Prompts(
      IsSlow() ? std::vector<int32_t>{5} : std::vector<int32_t>{1, 7, 16, 50, 129, 506, 1500},
      2048);
  const int32_t num_tokens = IsSlow() ? 2 : 60;
  EngineDriver cpu(model->config, *model->checkpoint, {.weight_dtype = DType::kF32});
  const auto wanted = Answers(&cpu, prompts, kStepTokens, num_tokens);
  for (const DType dtype : kHalfTypes) {
    if (IsSlow() && dtype == DType::kF16) continue;
    Agreement agreement{.tolerance = dtype == DType::kBF16 ? 0.25 : 0.04};
    const auto gpu = OnGpu(*model, {.max_running_requests = 2, .graph_max_rows = IsSlow() ? 0 : 2},
                           {.activation_dtype = dtype});
    for (size_t i = 0; i < prompts.size(); ++i) {
      for (const int32_t chunk : {64, kStepTokens}) {
        if (IsSlow() && chunk == 64) continue;
        agreement.Compare(gpu.get(), prompts[i], wanted[i], chunk,
                          std::string(DTypeName(dtype)) + " prompt " + std::to_string(i));
      }
    }
    agreement.Report(std::string("wren, ") + DTypeName(dtype));
  }
}

// In f16: if the oracle and the device round differently, a token's router may choose other
// experts, and bf16's rounding is 8 times as large.
void GpuEngineTest::CompareWithOracle(const std::vector<const char*>& names, int32_t chunk) {
  for (const char* const name : names) {
    SCOPED_TRACE(name);
    const auto model = MakeGpuArchitecture(name);
    if (model == nullptr) GTEST_SKIP() << "no tests/golden/models beside the sources";
    const auto prompts =
        Prompts(IsSlow() ? std::vector<int32_t>{20} : std::vector<int32_t>{1, 20, 70},
                static_cast<int32_t>(model->config.vocab_size));
    EngineDriver cpu(model->config, *model->checkpoint, {.weight_dtype = DType::kF16},
                     MakeNaiveOps(DType::kF16));
    const auto wanted = Answers(&cpu, prompts, kAll, 3);
    Agreement agreement{.tolerance = 0.03};
    const auto gpu = OnGpu(*model, {.max_running_requests = 2, .graph_max_rows = 2},
                           {.activation_dtype = DType::kF16});
    for (size_t i = 0; i < prompts.size(); ++i) {
      agreement.Compare(gpu.get(), prompts[i], wanted[i], chunk, name);
    }
    agreement.Report(std::string(name) + ", f16");
  }
}

// Every option of the operations, as models combine them.
TEST_F(GpuEngineTest, ArchitecturesAgreeWithTheOracle) {
  MarkSlow("every architecture on the emulator");
  CompareWithOracle({"gpt_oss", "qwen2_moe", "granitemoe", "gemma2", "olmo2", "stablelm",
                     "nemotron", "hunyuan", "smollm3", "ministral3", "glm4", "starcoder2",
                     "cohere2", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "apertus"});
}

// Layers of different heads, keys used as values, embeddings of each layer, experts beside a dense
// part.
TEST_F(GpuEngineTest, Gemma4AgreesWithTheOracle) {
  MarkSlow("models on the emulator");
  CompareWithOracle({"gemma4_text", "gemma4_moe", "gemma4_unified_text"});
}

// Every kind of state, and gates, factors and norms that their models have besides. Long pieces of
// prompts go through recurrences by chunks.
TEST_F(GpuEngineTest, ModelsWithStatesAgreeWithTheOracle) {
  MarkSlow("every architecture on the emulator");
  CompareWithOracle(
      {"lfm2", "lfm2_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "granitemoehybrid",
       "bamba", "nemotron_h", "nemotron_h_moe", "nemotron_h_latent", "olmo_hybrid", "falcon_h1",
       "falcon_h1_plain", "muse_glimmer"},
      45);
}

// With --deterministic a row's states, and with them its answer, have the same bits for any pages,
// chunks, graphs and other rows.
TEST_F(GpuEngineTest, StatesAreTheSameForAnyDivision) {
  MarkSlow("models on the emulator");
  for (const char* const name : {"lfm2", "qwen3_next", "falcon_h1"}) {
    SCOPED_TRACE(name);
    const auto model = MakeGpuArchitecture(name);
    if (model == nullptr) GTEST_SKIP() << "no tests/golden/models beside the sources";
    const auto vocab_size = static_cast<int32_t>(model->config.vocab_size);
    const auto prompt = RandomPrompt(IsSlow() ? 19 : 75, 3, vocab_size);
    const int32_t num_tokens = IsSlow() ? 3 : 20;
    const CudaOpsConfig deterministic{.deterministic = true};
    const auto whole = OnGpu(*model, {.max_running_requests = 4}, deterministic);
    const auto wanted = whole->Generate(whole->AddRow(prompt), kAll, num_tokens);
    for (const auto& [page_size, chunk, graphs] :
         {std::tuple{1, 1, 0}, {4, 7, 2}, {16, 64, 4}, {64, kAll, 4}}) {
      if (IsSlow() && page_size == 1) continue;
      const auto gpu = OnGpu(*model,
                             {.page_size = page_size,
                              .max_running_requests = 4,
                              .graph_max_rows = graphs,
                              .graph_max_tokens = 4 * graphs},
                             deterministic);
      const auto other = gpu->AddRow(RandomPrompt(5, 4, vocab_size));
      TestRow* const row = gpu->AddRow(prompt);
      while (std::ssize(row->results) < num_tokens) {
        gpu->ExtendAll(other);
        gpu->Extend(row, std::min(chunk, row->known_len - row->computed_len));
        ASSERT_TRUE(gpu->Step().ok());
      }
      EXPECT_TRUE(SameResults(row->results, wanted))
          << "pages of " << page_size << ", chunks of " << chunk;
    }
  }
}

// Rows of 3 tokens, prefilled.
std::vector<TestRow*> ShortRows(EngineDriver* driver, int32_t count) {
  std::vector<TestRow*> rows;
  for (int32_t i = 0; i < count; ++i) {
    rows.push_back(driver->AddRow(RandomPrompt(3, static_cast<uint64_t>(i))));
    driver->ExtendAll(rows.back());
    if (i % 64 == 63 || i + 1 == count) {
      const Status status = driver->Step();
      MINISGL_CHECK(status.ok(), "{}", status.message());
    }
  }
  return rows;
}

// Every captured size with all its rows: the replay equals the operations one by one.
TEST_F(GpuEngineTest, EveryGraphIsTheOperationsBitForBit) {
  const auto model = MakeGpuTinyModel(IsSlow() ? 32 : 64);
  const int32_t max_rows = IsSlow() ? 4 : 256;
  const DriverOptions options{.max_running_requests = max_rows};
  DriverOptions with_graphs = options;
  with_graphs.graph_max_rows = max_rows;
  const auto eager = OnGpu(*model, options), graphs = OnGpu(*model, with_graphs);
  const auto eager_rows = ShortRows(eager.get(), max_rows);
  const auto graph_rows = ShortRows(graphs.get(), max_rows);
  for (const int32_t size : CapturedSizes(max_rows)) {
    for (int32_t i = 0; i < size; ++i) {
      eager->ExtendAll(eager_rows[static_cast<size_t>(i)]);
      graphs->ExtendAll(graph_rows[static_cast<size_t>(i)]);
    }
    ASSERT_TRUE(eager->Step().ok()) << size << " rows";
    ASSERT_TRUE(graphs->Step().ok()) << size << " rows";
    for (int32_t i = 0; i < size; ++i) {
      ASSERT_TRUE(SameResults(graph_rows[static_cast<size_t>(i)]->results,
                              eager_rows[static_cast<size_t>(i)]->results))
          << "row " << i << " of " << size;
    }
  }
}

// A step of `num_tokens` tokens: up to a third are rows of `decoding`, the others are a new prompt,
// or all but its last token if `in_two`. Then a step of the prompt's row alone, with that token or
// with drafts. Returns the row's results.
std::vector<RowResult> RunStep(EngineDriver* driver, const std::vector<TestRow*>& decoding,
                               int32_t num_tokens, bool in_two) {
  const auto step = [&] {
    const Status status = driver->Step();
    MINISGL_CHECK(status.ok(), "{}", status.message());
  };
  int32_t left = num_tokens;
  const auto num_decoding = std::min(std::ssize(decoding), static_cast<int64_t>(left / 3));
  for (int64_t i = 0; i < num_decoding; ++i, --left) {
    driver->ExtendAll(decoding[static_cast<size_t>(i)]);
  }
  TestRow* const row = driver->AddRow(RandomPrompt(left + (in_two ? 1 : 0), 7));
  driver->Extend(row, left);
  step();
  if (in_two) driver->ExtendAll(row);
  if (!in_two) driver->ExtendWithDrafts(row, std::vector<TokenId>{row->results[0].token, 1, 2});
  step();
  driver->FreeRow(row);
  return row->results;
}

// Every captured number of tokens, and the fewest that are padded to it, with and without rows that
// decode beside a prompt: the replay equals the operations one by one. With --deterministic, as
// padding lets the library choose other products otherwise.
TEST_F(GpuEngineTest, EveryLayerGraphIsTheOperationsBitForBit) {
  MarkSlow("a model on the emulator");
  const int32_t max_tokens = IsSlow() ? 16 : 512, num_rows = IsSlow() ? 2 : 100;
  const auto model = MakeGpuTinyModel(IsSlow() ? 32 : 1024);
  const DriverOptions options{.max_running_requests = num_rows + 1, .max_prefill_tokens = 512};
  DriverOptions with_graphs = options;
  with_graphs.graph_max_tokens = max_tokens;
  const CudaOpsConfig deterministic{.deterministic = true};
  const auto eager = OnGpu(*model, options, deterministic);
  const auto graphs = OnGpu(*model, with_graphs, deterministic);
  const auto eager_rows = ShortRows(eager.get(), num_rows);
  const auto graph_rows = ShortRows(graphs.get(), num_rows);
  int32_t smaller = 0;
  for (const int32_t size : CapturedTokens(max_tokens)) {
    for (const int32_t num_tokens : {smaller + 1, size}) {
      for (const bool alone : {false, true}) {
        const auto run = [&](EngineDriver* driver, const std::vector<TestRow*>& rows) {
          return RunStep(driver, alone ? std::vector<TestRow*>() : rows, num_tokens,
                         num_tokens % 2 == 0);
        };
        ASSERT_TRUE(SameResults(run(graphs.get(), graph_rows), run(eager.get(), eager_rows)))
            << num_tokens << " tokens, " << (alone ? "alone" : "beside others");
      }
    }
    smaller = size;
  }
  for (size_t i = 0; i < graph_rows.size(); ++i) {
    ASSERT_TRUE(SameResults(graph_rows[i]->results, eager_rows[i]->results)) << "row " << i;
  }
}

// The second step is launched before the first is collected: its token comes from the device.
TEST_F(GpuEngineTest, TwoStepsInFlightGiveTheSame) {
  const auto model = MakeGpuTinyModel();
  const int num_steps = IsSlow() ? 4 : 100;
  for (const int32_t graph_max_rows : {0, 4}) {
    if (IsSlow() && graph_max_rows == 0) continue;
    const DriverOptions options{.max_running_requests = 4, .graph_max_rows = graph_max_rows};
    const auto one = OnGpu(*model, options), two = OnGpu(*model, options);
    const auto one_rows = ShortRows(one.get(), 3), two_rows = ShortRows(two.get(), 3);
    for (int step = 0; step < num_steps; ++step) {
      for (int i = 0; i < 3; ++i) {
        one->ExtendAll(one_rows[static_cast<size_t>(i)]);
        two->ExtendAll(two_rows[static_cast<size_t>(i)]);
      }
      ASSERT_TRUE(one->Step().ok());
      two->Launch();
      if (step > 0) {
        ASSERT_TRUE(two->Collect().ok());
      }
    }
    ASSERT_TRUE(two->Collect().ok());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(SameResults(two_rows[i]->results, one_rows[i]->results))
          << "row " << i << ", graphs of up to " << graph_max_rows;
    }
  }
}

struct Cutting {
  int32_t page_size, chunk, graph_max_rows;
};

// The same over page sizes, chunks, graphs, other rows, and whether a token was generated or part
// of the prompt.
TEST_F(GpuEngineTest, DeterministicIsTheSameForAnyDivision) {
  const CudaOpsConfig deterministic{.deterministic = true};
  const auto model = IsSlow() ? MakeGpuTinyModel() : OpenWren();
  const auto vocab_size = static_cast<int32_t>(model->config.vocab_size);
  const auto prompt = RandomPrompt(IsSlow() ? 19 : 203, 3, vocab_size);
  const int32_t num_tokens = IsSlow() ? 3 : 40, num_mates = IsSlow() ? 1 : 20;
  const auto whole = OnGpu(*model, {.max_running_requests = 32}, deterministic);
  const auto wanted = whole->Generate(whole->AddRow(prompt), kAll, num_tokens);
  const std::vector<Cutting> cuttings =
      IsSlow()
          ? std::vector<Cutting>{{1, 8, 0}, {64, kAll, 2}}
          : std::vector<Cutting>{{1, 1, 0}, {4, 7, 2}, {16, 64, 8}, {64, 100, 0}, {64, kAll, 8}};
  for (const Cutting& cutting : cuttings) {
    const auto gpu = OnGpu(*model,
                           {.page_size = cutting.page_size,
                            .max_running_requests = 32,
                            .graph_max_rows = cutting.graph_max_rows},
                           deterministic);
    EXPECT_TRUE(SameResults(gpu->Generate(gpu->AddRow(prompt), cutting.chunk, num_tokens), wanted))
        << "pages of " << cutting.page_size << ", chunks of " << cutting.chunk;
  }
  // Beside other rows, more of which join as it runs.
  const auto beside =
      OnGpu(*model, {.max_running_requests = 32, .max_prefill_tokens = 512}, deterministic);
  std::vector<TestRow*> rows = {beside->AddRow(prompt)};
  while (std::ssize(rows[0]->results) < num_tokens) {
    if (std::ssize(rows) <= num_mates) {
      const auto seed = static_cast<uint64_t>(rows.size());
      rows.push_back(
          beside->AddRow(RandomPrompt(5 + 9 * static_cast<int32_t>(seed), seed + 9, vocab_size)));
    }
    for (TestRow* row : rows) beside->ExtendAll(row);
    ASSERT_TRUE(beside->Step().ok());
  }
  EXPECT_TRUE(SameResults(rows[0]->results, wanted)) << "beside others";
  // The generated tokens as a prompt.
  auto said = prompt;
  for (int32_t i = 0; i + 1 < num_tokens; ++i) said.push_back(wanted[static_cast<size_t>(i)].token);
  const auto again = OnGpu(*model, {.max_running_requests = 32}, deterministic);
  EXPECT_TRUE(SameResults(again->Generate(again->AddRow(said), kAll, 1), {wanted.back()}))
      << "said as a prompt";
}

// Tokens of a prompt have the log-probabilities that they had as an answer, however the prompt is
// cut and however few rows of logits there is memory for.
TEST_F(GpuEngineTest, ScoresAreThoseThatAnAnswerReported) {
  MarkSlow("a model on the emulator");
  const auto model = IsSlow() ? MakeGpuTinyModel() : OpenWren();
  const auto vocab_size = static_cast<int32_t>(model->config.vocab_size);
  Request request;
  request.id = 1;
  request.prompt = RandomPrompt(IsSlow() ? 9 : 203, 3, vocab_size);
  request.max_tokens = IsSlow() ? 3 : 40;
  request.sampling.num_logprobs = request.sampling.num_prompt_logprobs = 5;
  const auto run = [&](int32_t max_running_requests, int32_t max_prefill_tokens,
                       int32_t graph_max_tokens) {
    const auto gpu = OnGpu(*model,
                           {.max_running_requests = max_running_requests,
                            .max_prefill_tokens = max_prefill_tokens,
                            .graph_max_tokens = graph_max_tokens},
                           {.deterministic = true});
    return RunScheduled(gpu->engine(), {.max_prefill_tokens = max_prefill_tokens}, {request}, 1);
  };
  const ScheduledRun first = run(32, kStepTokens, 0);
  auto wanted = first.scored.at(1);
  const auto& answer = first.answers.at(1);
  ASSERT_EQ(wanted.size() + 1, request.prompt.size());
  wanted.insert(wanted.end(), answer.begin(), answer.end());
  for (const RowResult& result : answer) request.prompt.push_back(result.token);
  request.max_tokens = 0;
  EXPECT_TRUE(SameResults(run(32, kStepTokens, 0).scored.at(1), wanted));
  EXPECT_TRUE(SameResults(run(2, 7, 0).scored.at(1), wanted)) << "in pieces";
  EXPECT_TRUE(SameResults(run(2, 64, 64).scored.at(1), wanted)) << "with graphs";
}

}  // namespace
}  // namespace minisgl::cuda
