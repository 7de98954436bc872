// See engine_driver.h.
#include "engine/engine_driver.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/random.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl {
namespace {

// Slots of states: one for each page of some rows, and one for each step. A device has less memory.
constexpr int32_t kStateSlots = 4096, kDeviceStateSlots = 1024;

EngineRanks CpuRanks(const DriverOptions& options) {
  EngineRanks ranks;
  if (options.num_ranks > 1) {
    ranks.rendezvous = std::make_shared<Rendezvous>(options.num_ranks, /*spins=*/false);
  }
  for (int32_t index = 0; index < options.num_ranks; ++index) {
    auto ops =
        MakeCpuOps({.num_threads = ThreadsOfRank(options.num_threads, {index, options.num_ranks}),
                    .target = options.cpu_target,
                    .rank = {index, ranks.rendezvous}});
    MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
    ranks.ops.push_back(std::move(ops).value());
  }
  return ranks;
}

EngineRanks OneRank(std::unique_ptr<Ops> ops) {
  EngineRanks ranks;
  ranks.ops.push_back(std::move(ops));
  return ranks;
}

std::vector<std::unique_ptr<DeviceOps>> OneDevice(std::unique_ptr<DeviceOps> device) {
  std::vector<std::unique_ptr<DeviceOps>> devices;
  devices.push_back(std::move(device));
  return devices;
}

ModelEngineOptions EngineOptionsOf(const DriverOptions& options) {
  ModelEngineOptions engine_options;
  engine_options.max_running_requests = options.max_running_requests;
  engine_options.max_prefill_tokens = options.max_prefill_tokens;
  engine_options.max_seq_len = options.max_seq_len;
  engine_options.num_ranks = options.num_ranks;
  engine_options.page_size = options.page_size;
  engine_options.num_pages = options.num_pages;
  engine_options.max_step_drafts = options.max_step_drafts;
  engine_options.weight_dtype = options.weight_dtype;
  engine_options.quantization = options.quantization;
  engine_options.kv_kind = options.kv_kind;
  return engine_options;
}

// Counts accepted drafts as known and computed.
void AddResults(RowResult result, TestRow* row) {
  std::vector<RowResult> more = std::exchange(result.more, {});
  const auto accepted = static_cast<int32_t>(more.size());
  MINISGL_CHECK(accepted <= row->num_drafts, "{} of {} drafts accepted", accepted, row->num_drafts);
  row->computed_len += accepted;
  row->known_len += accepted;
  row->num_drafts = 0;
  row->results.push_back(std::move(result));
  for (RowResult& next : more) {
    MINISGL_CHECK(next.more.empty(), "results of a result");
    row->results.push_back(std::move(next));
  }
}

}  // namespace

std::unique_ptr<TestModel> MakeTinyModel() {
  auto model = std::make_unique<TestModel>();
  model->config = TinyConfig();
  model->checkpoint = WriteCheckpoint(model->dir, TinyTensors(model->config));
  return model;
}

EngineDriver::EngineDriver(const TestModel& model, const DriverOptions& options)
    : EngineDriver(model.config, *model.checkpoint, options) {}

EngineDriver::EngineDriver(const ModelList& models, const ModelFiles& files,
                           const DriverOptions& options, std::unique_ptr<Ops> ops)
    : EngineDriver(models, files, options,
                   ops == nullptr ? CpuRanks(options) : OneRank(std::move(ops))) {}

EngineDriver::EngineDriver(const ModelList& models, const ModelFiles& files,
                           const DriverOptions& options, EngineRanks ranks)
    : plan_(std::make_shared<BatchPlan>()) {
  auto memory = PlanMemory(models, EngineOptionsOf(options), uint64_t{1} << 32);
  MINISGL_CHECK(memory.ok(), "{}", memory.status().message());
  memory->limits.num_window_pages = memory->limits.sliding_window = 0;  // plans here name none
  if (HasStates(models.target())) memory->limits.num_state_slots = kStateSlots;
  TakeEngine(MakeModelEngine(models, files, *memory, std::move(ranks)));
}

EngineDriver::EngineDriver(const TestModel& model, const DriverOptions& options,
                           std::unique_ptr<DeviceOps> device)
    : EngineDriver(model, options, OneDevice(std::move(device))) {}

EngineDriver::EngineDriver(const TestModel& model, const DriverOptions& options,
                           std::vector<std::unique_ptr<DeviceOps>> devices)
    : plan_(std::make_shared<BatchPlan>()) {
  ModelEngineOptions engine_options = EngineOptionsOf(options);
  engine_options.memory_ratio = 0.9;
  engine_options.graph_max_rows = options.graph_max_rows;
  engine_options.graph_max_tokens = options.graph_max_tokens;
  engine_options.num_host_layers = options.num_host_layers;
  if (engine_options.num_pages == 0) {
    const int64_t length = options.max_seq_len > 0 ? options.max_seq_len : model.config.max_seq_len;
    engine_options.num_pages = static_cast<int32_t>(CeilDiv<int64_t>(length, options.page_size) *
                                                    options.max_running_requests);
  }
  const uint64_t available = devices[0]->MemoryInfo().free_bytes / devices.size();
  auto memory = PlanMemory(model.config, engine_options, available, devices[0].get());
  MINISGL_CHECK(memory.ok(), "{}", memory.status().message());
  memory->limits.num_window_pages = memory->limits.sliding_window = 0;
  // Graphs take no pages away: on a real GPU other tests' processes start meanwhile, whose memory
  // cannot be told from graphs'.
  memory->graph_bytes = std::numeric_limits<uint64_t>::max();
  if (HasStates(model.config)) memory->limits.num_state_slots = kDeviceStateSlots;
  TakeEngine(MakeDeviceEngine(model.config, *model.checkpoint, *memory, std::move(devices),
                              {.graph_max_rows = options.graph_max_rows,
                               .graph_max_tokens = options.graph_max_tokens,
                               .warms_up = options.warms_up,
                               .host_ops = options.host_ops}));
}

void EngineDriver::TakeEngine(Result<std::unique_ptr<Engine>> engine) {
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  engine_ = std::move(engine).value();
  const EngineLimits& limits = engine_->limits();
  for (int32_t row = 0; row < limits.max_running_requests; ++row) free_table_rows_.push_back(row);
  // Taken from the back, neither ascending nor contiguous: 0, 2, 4, ..., then the odd ones.
  for (int32_t page = 1; page < limits.num_pages; page += 2) free_pages_.push_back(page);
  for (int32_t page = 0; page < limits.num_pages; page += 2) free_pages_.push_back(page);
}

TestRow* EngineDriver::AddRow(std::vector<TokenId> prompt) {
  MINISGL_CHECK(!free_table_rows_.empty(), "no table row is free");
  auto row = std::make_unique<TestRow>();
  row->known_len = static_cast<int32_t>(prompt.size());
  row->prompt = std::move(prompt);
  row->sampling.num_logprobs = 20;
  row->table_row = free_table_rows_.back();
  free_table_rows_.pop_back();
  rows_.push_back(std::move(row));
  return rows_.back().get();
}

TestRow* EngineDriver::AddRowSharing(const TestRow& other, int32_t num_pages,
                                     std::vector<TokenId> prompt) {
  TestRow* row = AddRow(std::move(prompt));
  row->pages.assign(other.pages.begin(), other.pages.begin() + num_pages);
  row->computed_len = num_pages * engine_->limits().page_size;
  const auto first = static_cast<int32_t>(plan_->pages.size());
  plan_->pages.insert(plan_->pages.end(), row->pages.begin(), row->pages.end());
  if (num_pages > 0) plan_->page_table_writes.push_back({row->table_row, 0, num_pages, first});
  if (num_pages > 0 && engine_->limits().num_state_slots > 0) {
    row->states[row->computed_len] = other.states.at(row->computed_len);
  }
  return row;
}

void EngineDriver::FreeRow(TestRow* row) {
  free_table_rows_.push_back(row->table_row);
  free_pages_.insert(free_pages_.end(), row->pages.begin(), row->pages.end());
  row->pages.clear();
}

void EngineDriver::EnsurePages(TestRow* row, int32_t length) {
  const int32_t have = static_cast<int32_t>(row->pages.size());
  const int32_t count = CeilDiv(length, engine_->limits().page_size) - have;
  if (count <= 0) return;
  plan_->page_table_writes.push_back(
      {row->table_row, have, count, static_cast<int32_t>(plan_->pages.size())});
  for (int32_t i = 0; i < count; ++i) {
    MINISGL_CHECK(!free_pages_.empty(), "none of {} pages is free: row {} has {}",
                  engine_->limits().num_pages, row->table_row, have);
    row->pages.push_back(free_pages_.back());
    plan_->pages.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
}

void EngineDriver::WritePool(const TestRow& row, int32_t first, std::span<const TokenId> tokens) {
  plan_->token_pool_writes.push_back({row.table_row, first, static_cast<int32_t>(tokens.size()),
                                      static_cast<int32_t>(plan_->tokens.size())});
  plan_->tokens.insert(plan_->tokens.end(), tokens.begin(), tokens.end());
}

void EngineDriver::Extend(TestRow* row, int32_t num_tokens) {
  MINISGL_CHECK(row->num_drafts == 0, "what the row knows depends on drafts");
  const int32_t end = row->computed_len + num_tokens;
  AddPlanRow(row, end, {});
  row->computed_len = end;
  if (end == row->known_len) ++row->known_len;
}

void EngineDriver::ExtendWithDrafts(TestRow* row, std::span<const TokenId> drafts) {
  if (drafts.empty()) return ExtendAll(row);
  MINISGL_CHECK(row->num_drafts == 0, "what the row knows depends on drafts");
  AddPlanRow(row, row->known_len, drafts);
  row->computed_len = row->known_len++;
  row->num_drafts = static_cast<int32_t>(drafts.size());
}

// Adds the row's tokens up to position `end`, followed by `drafts`.
void EngineDriver::AddPlanRow(TestRow* row, int32_t end, std::span<const TokenId> drafts) {
  BatchPlan& plan = *plan_;
  if (!row->in_pool) WritePool(*row, 0, row->prompt);
  row->in_pool = true;
  const bool wants_token = end == row->known_len;
  if (!drafts.empty()) WritePool(*row, end, drafts);
  end += static_cast<int32_t>(drafts.size());
  const int32_t page_size = engine_->limits().page_size;
  EnsurePages(row, end);
  if (plan.row_begin.empty()) plan.row_begin.push_back(0);
  for (int32_t position = row->computed_len; position < end; ++position) {
    const PageId page = row->pages[static_cast<size_t>(position / page_size)];
    plan.positions.push_back(position);
    plan.slots.push_back(int64_t{page} * page_size + position % page_size);
  }
  if (engine_->limits().num_state_slots > 0) {
    MINISGL_CHECK(drafts.empty(), "drafts of a model with states");
    AddSegments(row, end);
  }
  plan.table_row.push_back(row->table_row);
  plan.row_begin.push_back(plan.num_tokens());
  plan.kv_len.push_back(end);
  plan.wants_token.push_back(wants_token);
  plan.num_drafts.push_back(static_cast<int32_t>(drafts.size()));
  plan.prompt_len.push_back(static_cast<int32_t>(row->prompt.size()));
  plan.sampling.push_back(&row->sampling);
  plan_rows_.push_back(row);
}

// Cuts the row's tokens up to position `end` at ends of pages, whose states are kept.
void EngineDriver::AddSegments(TestRow* row, int32_t end) {
  const int32_t page_size = engine_->limits().page_size;
  for (int32_t first = row->computed_len; first < end;) {
    const int32_t last = std::min(end, (first / page_size + 1) * page_size);
    MINISGL_CHECK(next_slot_ < engine_->limits().num_state_slots, "no state slot is left");
    plan_->state_segments.push_back({static_cast<int32_t>(plan_->table_row.size()), last - first,
                                     first == 0 ? kZeroState : row->states.at(first), next_slot_});
    row->states[last] = next_slot_++;
    first = last;
  }
}

void EngineDriver::Pad() {
  const EngineLimits& limits = engine_->limits();
  BatchPlan& plan = *plan_;
  if (plan.row_begin.empty()) plan.row_begin.push_back(0);
  plan.positions.push_back(0);
  plan.slots.push_back(int64_t{limits.num_pages} * limits.page_size);
  plan.table_row.push_back(limits.max_running_requests);
  plan.row_begin.push_back(plan.num_tokens());
  plan.kv_len.push_back(1);
  plan.wants_token.push_back(0);
  plan.num_drafts.push_back(0);
  plan.prompt_len.push_back(1);
  plan.sampling.push_back(&padding_sampling_);
  plan_rows_.push_back(nullptr);
}

std::shared_ptr<const BatchPlan> EngineDriver::TakePlan() {
  plan_->step = next_step_++;
  return std::exchange(plan_, std::make_shared<BatchPlan>());
}

void EngineDriver::Launch() {
  in_flight_.push_back(std::exchange(plan_rows_, {}));
  engine_->Launch(TakePlan());
}

Status EngineDriver::Collect() {
  StepResult result = engine_->Collect();
  const std::vector<TestRow*> rows = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  MINISGL_CHECK(result.rows.size() == rows.size(), "{} results for {} rows", result.rows.size(),
                rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == nullptr || result.rows[i].outcome == RowResult::Outcome::kNone) continue;
    AddResults(std::move(result.rows[i]), rows[i]);
  }
  return result.status;
}

Status EngineDriver::Step() {
  Launch();
  return Collect();
}

std::vector<RowResult> EngineDriver::Generate(TestRow* row, int32_t chunk, int32_t num_tokens) {
  while (static_cast<int32_t>(row->results.size()) < num_tokens) {
    Extend(row, std::min(chunk, row->known_len - row->computed_len));
    const Status status = Step();
    MINISGL_CHECK(status.ok(), "{}", status.message());
  }
  return row->results;
}

std::vector<TokenId> RandomPrompt(int32_t length, uint64_t seed, int32_t vocab_size) {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < length; ++i) {
    ids.push_back(static_cast<TokenId>(UniformDouble(seed, static_cast<uint64_t>(i)) * vocab_size));
  }
  return ids;
}

testing::AssertionResult SameResults(const std::vector<RowResult>& a,
                                     const std::vector<RowResult>& b) {
  const auto same_bits = [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  };
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " results and " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].outcome != b[i].outcome || a[i].token != b[i].token ||
        !same_bits(a[i].logprob, b[i].logprob) ||
        a[i].top_logprobs.size() != b[i].top_logprobs.size()) {
      return testing::AssertionFailure()
             << "token " << i << ": " << a[i].token << " (" << a[i].logprob << ") and "
             << b[i].token << " (" << b[i].logprob << ")";
    }
    for (size_t k = 0; k < a[i].top_logprobs.size(); ++k) {
      const TokenLogprob x = a[i].top_logprobs[k], y = b[i].top_logprobs[k];
      if (x.id != y.id || !same_bits(x.logprob, y.logprob)) {
        return testing::AssertionFailure()
               << "token " << i << ", choice " << k << ": " << x.id << " (" << x.logprob << ") and "
               << y.id << " (" << y.logprob << ")";
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace minisgl
