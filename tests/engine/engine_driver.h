// Builds plans without a scheduler: rows are prefilled in chunks and decoded as a test says, and
// pages are given out in a scattered order.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpu_target.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/engine/model_engine.h"
#include "model/tiny_model.h"

namespace minisgl {

inline constexpr int32_t kAll = 1 << 20;  // longer than any chunk

// A model on disk, opened.
struct TestModel {
  TinyModelDir dir;
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
};
// TinyConfig() with TinyTensors().
std::unique_ptr<TestModel> MakeTinyModel();

struct DriverOptions {
  int32_t page_size = 16;
  int32_t num_threads = 1;
  int32_t num_ranks = 1;
  std::string cpu_target = TestedCpuTarget();
  int32_t num_pages = 0;  // 0: enough
  int32_t max_running_requests = 8;
  int32_t max_prefill_tokens = 256;
  int32_t max_seq_len = 0;  // 0: the model's
  int32_t max_step_drafts = 64;
  std::optional<DType> weight_dtype;  // unset: as stored
  Quantization quantization = Quantization::kNone;
  KvKind kv_kind = KvKind::kAuto;
  int32_t graph_max_rows = 0, graph_max_tokens = 0;  // of a device
  bool warms_up = false;                             // a device
  int32_t num_host_layers = 0;                       // beside a device: experts on the host
  std::vector<std::shared_ptr<Ops>> host_ops = {};   // which compute them, of each rank
};

// One request as the test sees it.
struct TestRow {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  int32_t table_row = 0;
  int32_t computed_len = 0;   // tokens whose keys the plans so far write
  int32_t known_len = 0;      // tokens that the plans so far put into the token pool
  int32_t num_drafts = 0;     // not collected, and not counted in the lengths above
  bool in_pool = false;       // the prompt has been put into the token pool
  std::vector<PageId> pages;  // in position order
  // If layers have a state: its slots after so many tokens, at ends of pages and of steps.
  std::map<int32_t, StateSlot> states;
  std::vector<RowResult> results;  // of collected steps, including drafts'
};

class EngineDriver {
 public:
  EngineDriver(const TestModel& model, const DriverOptions& options);
  EngineDriver(const ModelList& models, const ModelFiles& files, const DriverOptions& options,
               std::unique_ptr<Ops> ops = nullptr);
  // Over options.num_ranks ranks.
  EngineDriver(const ModelList& models, const ModelFiles& files, const DriverOptions& options,
               EngineRanks ranks);
  // Over the engine of a device.
  EngineDriver(const TestModel& model, const DriverOptions& options,
               std::unique_ptr<DeviceOps> device);
  // Over options.num_ranks devices.
  EngineDriver(const TestModel& model, const DriverOptions& options,
               std::vector<std::unique_ptr<DeviceOps>> devices);

  // A new row; `sampling` defaults to greedy with the 20 most likely tokens' log-probabilities,
  // which show nearly as much as logits do.
  TestRow* AddRow(std::vector<TokenId> prompt);
  // A new row that begins with the first `num_pages` pages of `other`, computed by it. REQUIRES
  // equal prompts there.
  TestRow* AddRowSharing(const TestRow& other, int32_t num_pages, std::vector<TokenId> prompt);
  void FreeRow(TestRow* row);

  // Adds `num_tokens` more tokens of `row` to the next plan. A token is wanted if these are the
  // last that it knows.
  void Extend(TestRow* row, int32_t num_tokens);
  void ExtendAll(TestRow* row) { Extend(row, row->known_len - row->computed_len); }
  // Adds all known tokens of `row`, followed by `drafts`. REQUIRES no sampling step of the row in
  // flight, and no further step of it before this one is collected.
  void ExtendWithDrafts(TestRow* row, std::span<const TokenId> drafts);
  // Adds a row of padding, as a graph of a fixed size has.
  void Pad();
  std::shared_ptr<const BatchPlan> TakePlan();

  void Launch();     // the plan built so far
  Status Collect();  // the oldest step; results go to its rows
  Status Step();     // both
  Engine* engine() { return engine_.get(); }

  // Prefill in chunks of `chunk` tokens (kAll: at once), then `num_tokens - 1` decode steps, alone.
  std::vector<RowResult> Generate(TestRow* row, int32_t chunk, int32_t num_tokens);

 private:
  void TakeEngine(Result<std::unique_ptr<Engine>> engine);
  void EnsurePages(TestRow* row, int32_t length);
  void WritePool(const TestRow& row, int32_t first, std::span<const TokenId> tokens);
  void AddPlanRow(TestRow* row, int32_t end, std::span<const TokenId> drafts);
  void AddSegments(TestRow* row, int32_t end);

  std::vector<std::unique_ptr<TestRow>> rows_;
  std::vector<int32_t> free_table_rows_;
  std::vector<PageId> free_pages_;
  std::shared_ptr<BatchPlan> plan_;
  std::vector<TestRow*> plan_rows_;
  std::vector<std::vector<TestRow*>> in_flight_;
  SamplingParams padding_sampling_;
  StateSlot next_slot_ = 0;  // none is used again
  StepId next_step_ = 1;
  // Last, so that it is destroyed first: plans in flight read the rows' sampling parameters.
  std::unique_ptr<Engine> engine_;
};

// A prompt of `length` ids, a function of (seed, position), each in [0, vocab_size).
std::vector<TokenId> RandomPrompt(int32_t length, uint64_t seed, int32_t vocab_size = 97);

// Every field equal, floats bit for bit.
testing::AssertionResult SameResults(const std::vector<RowResult>& a,
                                     const std::vector<RowResult>& b);

}  // namespace minisgl
