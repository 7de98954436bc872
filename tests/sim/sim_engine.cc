#include "sim/sim_engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "minisgl/base/check.h"

namespace minisgl::sim {

TokenId NextMasked(uint64_t prefix, std::span<const uint32_t> mask, int64_t vocab,
                   int64_t end_rate) {
  const TokenId first = NextToken(prefix, vocab, end_rate);
  for (int64_t i = 0; i < vocab; ++i) {
    const auto token = static_cast<TokenId>((first + i) % vocab);
    if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) return token;
  }
  return -1;
}

std::vector<TokenId> RightAnswer(const PrefixKey& prompt, int64_t max_tokens, bool stops,
                                 int64_t vocab, int64_t end_rate) {
  uint64_t prefix = PrefixWalk(prompt.marks()).PushAll(prompt.tokens());
  std::vector<TokenId> answer;
  while (static_cast<int64_t>(answer.size()) < max_tokens) {
    answer.push_back(NextToken(prefix, vocab, end_rate));
    if (stops && answer.back() == 0) break;
    prefix = Extend(prefix, answer.back());
  }
  return answer;
}

SimEngine::SimEngine(const EngineLimits& limits, int64_t end_rate)
    : limits_(limits),
      end_rate_(end_rate),
      is_left_out_(static_cast<size_t>(limits.max_running_requests), false),
      shadow_(static_cast<size_t>(limits.num_pages) * static_cast<size_t>(limits.page_size), 0),
      states_(static_cast<size_t>(limits.num_state_slots), 0),
      is_state_loading_(states_.size(), false),
      is_loading_(static_cast<size_t>(limits.num_pages), false),
      window_shadow_((static_cast<size_t>(limits.num_window_pages) + 1) *
                         static_cast<size_t>(limits.page_size),
                     0),
      page_table_(static_cast<size_t>(limits.max_running_requests)),
      token_pool_(static_cast<size_t>(limits.max_running_requests)) {
  for (auto& row : page_table_) {
    row.assign(static_cast<size_t>(limits.max_seq_len / limits.page_size + 1), -1);
  }
  window_table_ = page_table_;
  for (auto& row : token_pool_) row.assign(static_cast<size_t>(limits.max_seq_len) + 1, -1);
}

void SimEngine::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

std::span<const KeyMark> SimEngine::MarksOf(const BatchPlan& plan, int row) const {
  if (marks_.empty()) return {};
  const auto found = marks_.find(plan.sampling[static_cast<size_t>(row)]->seed);
  return found == marks_.end() ? std::span<const KeyMark>() : found->second;
}

int64_t SimEngine::SlotOf(const Table& table, int32_t table_row, int64_t position) const {
  const int32_t page =
      table[static_cast<size_t>(table_row)][static_cast<size_t>(position / limits_.page_size)];
  return page < 0 ? -1 : int64_t{page} * limits_.page_size + position % limits_.page_size;
}

void SimEngine::Apply(const BatchPlan& plan) {
  for (const PageTableWrite& write : plan.page_table_writes) {
    for (int32_t i = 0; i < write.count; ++i) {
      page_table_[static_cast<size_t>(write.table_row)][static_cast<size_t>(write.first + i)] =
          plan.pages[static_cast<size_t>(write.offset + i)];
      if (limits_.num_window_pages == 0) continue;
      window_table_[static_cast<size_t>(write.table_row)][static_cast<size_t>(write.first + i)] =
          plan.window_pages[static_cast<size_t>(write.offset + i)];
    }
  }
  for (const TokenPoolWrite& write : plan.token_pool_writes) {
    for (int32_t i = 0; i < write.count; ++i) {
      token_pool_[static_cast<size_t>(write.table_row)][static_cast<size_t>(write.first + i)] =
          plan.tokens[static_cast<size_t>(write.offset + i)];
    }
  }
}

void SimEngine::VisitToken(const BatchPlan& plan, int row, int64_t position, uint64_t prefix) {
  const auto at = static_cast<size_t>(row);
  const int64_t begin = plan.kv_len[at] - plan.extend_len(row);
  const int64_t slot = SlotOf(page_table_, plan.table_row[at], position);
  if (slot < 0) {
    Violate(fmt::format("step {}: row {} maps no page at {}", plan.step, row, position));
    return;
  }
  if (is_loading_[static_cast<size_t>(slot / limits_.page_size)]) {
    Violate(fmt::format("step {}: row {} uses page {}, which a load writes", plan.step, row,
                        slot / limits_.page_size));
  }
  uint64_t& held = shadow_[static_cast<size_t>(slot)];
  if (position < begin) {
    if (held == prefix) return;
    if (held == ~prefix) {  // of a row that read embeddings which are not valid
      reads_invalid_[at] = true;
      return;
    }
    Violate(fmt::format("step {}: row {} reads another prefix's KV at {} (page {})", plan.step, row,
                        position, slot / limits_.page_size));
    return;
  }
  const auto token_index = static_cast<size_t>(plan.row_begin[at] + (position - begin));
  if (plan.positions[token_index] != position || plan.slots[token_index] != slot) {
    Violate(fmt::format("step {}: row {} writes {} where its table says {}", plan.step, row,
                        plan.slots[token_index], slot));
  }
  held = prefix;
  ++num_tokens_;
}

void SimEngine::VisitWindowToken(const BatchPlan& plan, int row, int64_t position,
                                 uint64_t prefix) {
  const auto at = static_cast<size_t>(row);
  const int64_t begin = plan.kv_len[at] - plan.extend_len(row);
  if (position < begin - limits_.sliding_window + 1) return;  // no token of the row sees it
  const int64_t slot = SlotOf(window_table_, plan.table_row[at], position);
  const int64_t dummy = int64_t{limits_.num_window_pages} * limits_.page_size;
  if (slot < 0 || slot >= dummy) {
    Violate(fmt::format("step {}: row {} maps no window page at {}", plan.step, row, position));
    return;
  }
  uint64_t& held = window_shadow_[static_cast<size_t>(slot)];
  if (position < begin) {
    if (held == prefix || (held == ~prefix && reads_invalid_[at])) return;
    Violate(fmt::format("step {}: row {} reads another prefix's KV at {} (window page {})",
                        plan.step, row, position, slot / limits_.page_size));
    return;
  }
  const auto token_index = static_cast<size_t>(plan.row_begin[at] + (position - begin));
  if (plan.window_slots[token_index] != slot) {
    Violate(fmt::format("step {}: row {} writes window slot {} where its table says {}", plan.step,
                        row, plan.window_slots[token_index], slot));
  }
  held = prefix;
}

// Scores the token after `position`, which ends the row's prefix. The plan must name it.
RowResult SimEngine::ScoreToken(const BatchPlan& plan, int row, int64_t position, uint64_t prefix) {
  const auto at = static_cast<size_t>(row);
  const int64_t begin = plan.kv_len[at] - plan.extend_len(row);
  const TokenId next =
      token_pool_[static_cast<size_t>(plan.table_row[at])][static_cast<size_t>(position + 1)];
  size_t index = 0;  // of the row's last token that is scored, counted back below
  for (int before = 0; before <= row; ++before) {
    index += static_cast<size_t>(plan.scored_len(before));
  }
  const int64_t last = plan.kv_len[at] - (plan.wants_token[at] != 0 ? 2 : 1);
  index -= static_cast<size_t>(1 + last - position);
  if (position < begin || plan.scored_ids[index] != next) {
    Violate(fmt::format("step {}: row {} scores {} at {}, which is {}, from {} on", plan.step, row,
                        plan.scored_ids[index], position + 1, next, begin));
  }
  RowResult result;
  result.outcome = RowResult::Outcome::kToken;
  result.token = plan.scored_ids[index];
  result.logprob = ScoreOf(Extend(prefix, result.token));
  return result;
}

std::vector<uint64_t> SimEngine::RunRow(const BatchPlan& plan, int row, RowResult* result) {
  const auto at = static_cast<size_t>(row);
  const auto& tokens = token_pool_[static_cast<size_t>(plan.table_row[at])];
  const int64_t end = plan.kv_len[at];
  const int64_t first_sampled = end - 1 - plan.num_drafts[at];
  const int64_t scored_end = end - (plan.wants_token[at] != 0 ? 1 : 0);
  std::vector<uint64_t> prefixes;
  // Before the row's first token, and after each of its tokens.
  std::vector<uint64_t> states = {1};
  PrefixWalk walk(MarksOf(plan, row));
  for (int64_t position = 0; position < end; ++position) {
    const TokenId token = tokens[static_cast<size_t>(position)];
    if (token < 0) {
      Violate(fmt::format("step {}: row {} has no token at {}", plan.step, row, position));
    }
    uint64_t prefix = walk.Push(token);
    const bool is_computed = position >= end - plan.extend_len(row);
    if (is_computed && reads_invalid_[at]) prefix = ~prefix;
    if (!is_computed) states.clear();
    states.push_back(prefix);
    VisitToken(plan, row, position, prefix);
    if (limits_.num_window_pages > 0) VisitWindowToken(plan, row, position, prefix);
    if (plan.wants_token[at] != 0 && position >= first_sampled) {
      prefixes.push_back(prefix);
    }
    if (position < scored_end && position >= scored_end - plan.scored_len(row)) {
      result->scored.push_back(ScoreToken(plan, row, position, prefix));
    }
  }
  if (!plan.extras.pooling.empty()) Pool(plan, row, std::span(states).subspan(1), result);
  if (limits_.num_state_slots > 0) RunSegments(plan, row, states);
  return prefixes;
}

void SimEngine::RunSegments(const BatchPlan& plan, int row, std::span<const uint64_t> states) {
  size_t at = 0;
  bool is_first = true;
  for (const StateSegment& segment : plan.state_segments) {
    if (segment.row != row) continue;
    const uint64_t held =
        segment.read == kZeroState ? 1 : states_[static_cast<size_t>(segment.read)];
    if ((segment.read != kZeroState && is_state_loading_[static_cast<size_t>(segment.read)]) ||
        is_state_loading_[static_cast<size_t>(segment.write)]) {
      Violate(fmt::format("step {}: row {} uses a state that a load writes", plan.step, row));
    }
    const bool may_be_invalid = reads_invalid_[static_cast<size_t>(row)] && held == ~states[at];
    if (held != states[at] && !may_be_invalid) {
      Violate(fmt::format("step {}: row {} goes on from another prefix's state in slot {}",
                          plan.step, row, segment.read));
    }
    at += static_cast<size_t>(segment.num_tokens);
    if (at >= states.size() || segment.read == segment.write) {
      Violate(fmt::format("step {}: row {} has a wrong segment", plan.step, row));
      return;
    }
    states_[static_cast<size_t>(segment.write)] = states[at];
    is_first = false;
  }
  if (at + 1 != states.size() || is_first) {
    Violate(fmt::format("step {}: row {} has segments of {} tokens", plan.step, row, at));
  }
}

void SimEngine::SampleRow(const BatchPlan& plan, int row, std::span<const uint64_t> prefixes,
                          std::span<const uint32_t> masks, RowResult* result) {
  if (prefixes.empty()) return;
  const auto at = static_cast<size_t>(row);
  auto& tokens = token_pool_[static_cast<size_t>(plan.table_row[at])];
  const auto first = static_cast<size_t>(plan.kv_len[at] - plan.num_drafts[at]);
  const auto num_words = static_cast<size_t>(MaskWords(limits_.vocab_size));
  std::vector<RowResult> results;
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const TokenId sampled = masks.empty()
                                ? NextToken(prefixes[i], limits_.vocab_size, end_rate_)
                                : NextMasked(prefixes[i], masks.subspan(i * num_words, num_words),
                                             limits_.vocab_size, end_rate_);
    RowResult& one = results.emplace_back();
    one.outcome = sampled < 0 ? RowResult::Outcome::kNonFinite : RowResult::Outcome::kToken;
    one.token = sampled;
    TokenId& place = tokens[first + i];
    if (sampled < 0) {
      place = std::max(place, 0);  // a step launched ahead reads some token there
      break;
    }
    const bool accepts_next = i + 1 < prefixes.size() && place == sampled;
    place = sampled;
    if (!accepts_next) break;
  }
  results.front().scored = std::move(result->scored);
  *result = std::move(results.front());
  result->more.assign(results.begin() + 1, results.end());
}

std::vector<PageId> SimEngine::PagesRead(const BatchPlan& plan, int row) const {
  const auto at = static_cast<size_t>(row);
  std::vector<PageId> pages;
  for (int64_t position = 0; position < plan.kv_len[at]; position += limits_.page_size) {
    pages.push_back(
        static_cast<PageId>(SlotOf(page_table_, plan.table_row[at], position) / limits_.page_size));
  }
  return pages;
}

void SimEngine::Launch(std::shared_ptr<const BatchPlan> plan) {
  MINISGL_CHECK(in_flight() < limits_.max_in_flight, "too many steps in flight");
  Apply(*plan);
  MakeDrafts(*plan);
  MINISGL_CHECK(in_flight_.empty() || !in_flight_.back().waits_for_masks,
                "a step is launched before the masks of the last came");
  InFlight step;
  step.plan = plan;
  step.waits_for_masks = plan->has_masks();
  step.non_finite_row = std::exchange(non_finite_row_, -1);
  step.foreign_row = std::exchange(foreign_row_, -1);
  step.result.status = std::exchange(fail_next_, Status());
  step.result.rows.resize(plan->table_row.size());
  Encode(*plan, !step.result.status.ok());
  reads_invalid_.assign(plan->table_row.size(), false);
  CheckExtras(*plan);
  for (int row = 0; row < plan->num_rows(); ++row) {
    step.prefixes.push_back(RunRow(*plan, row, &step.result.rows[static_cast<size_t>(row)]));
    step.pages_read.push_back(PagesRead(*plan, row));
  }
  in_flight_.push_back(std::move(step));
  if (!plan->has_masks()) Sample({}, &in_flight_.back());
}

void SimEngine::SupplyMasks(StepMasks masks) {
  MINISGL_CHECK(!in_flight_.empty() && in_flight_.back().waits_for_masks, "no step needs masks");
  in_flight_.back().waits_for_masks = false;
  Sample(masks, &in_flight_.back());
}

void SimEngine::Sample(const StepMasks& masks, InFlight* step) {
  const BatchPlan& plan = *step->plan;
  std::vector<RowResult>& rows = step->result.rows;
  std::span<const uint32_t> left = masks.words;
  for (int row = 0; row < plan.num_rows(); ++row) {
    const std::vector<uint64_t>& prefixes = step->prefixes[static_cast<size_t>(row)];
    const size_t num_words =
        !plan.masked(row) ? 0
                          : prefixes.size() * static_cast<size_t>(MaskWords(limits_.vocab_size));
    MINISGL_CHECK(num_words <= left.size(), "masks are missing");
    RowResult& result = rows[static_cast<size_t>(row)];
    SampleRow(plan, row, prefixes, left.first(num_words), &result);
    left = left.subspan(num_words);
    if (row == step->non_finite_row) {
      result = {};
      result.outcome = RowResult::Outcome::kNonFinite;
    }
    if (row == step->foreign_row && result.outcome == RowResult::Outcome::kToken) {
      result.token = static_cast<TokenId>(limits_.vocab_size);
    }
  }
  MINISGL_CHECK(left.empty(), "{} words of masks too many", left.size());
  if (!step->result.status.ok()) rows.clear();
}

StepResult SimEngine::Collect() {
  MINISGL_CHECK(!in_flight_.empty(), "nothing in flight");
  MINISGL_CHECK(!in_flight_.front().waits_for_masks, "a step is collected without its masks");
  StepResult result = std::move(in_flight_.front().result);
  in_flight_.pop_front();
  return result;
}

void SimEngine::BeginLoad(std::span<const PageId> pages) {
  for (PageId page : pages) is_loading_[static_cast<size_t>(page)] = true;
  for (InFlight& step : in_flight_) {
    for (size_t row = 0; row < step.result.rows.size(); ++row) {
      const auto& read = step.pages_read[row];
      const bool is_hit =
          std::find_first_of(read.begin(), read.end(), pages.begin(), pages.end()) != read.end();
      TokenId& token = step.result.rows[row].token;
      if (is_hit && token >= 0) token = (token + 1) % static_cast<TokenId>(limits_.vocab_size);
    }
  }
}

void SimEngine::EndLoad(std::span<const PageId> pages, const PrefixKey& key, int64_t begin,
                        int64_t count) {
  PrefixWalk walk(key.marks());
  walk.PushAll(key.tokens().first(static_cast<size_t>(begin)));
  for (size_t at = 0; at < pages.size(); ++at) {
    is_loading_[static_cast<size_t>(pages[at])] = false;
    for (int64_t offset = 0; offset < limits_.page_size; ++offset) {
      const int64_t index = static_cast<int64_t>(at) * limits_.page_size + offset;
      if (index < count) walk.Push(key.tokens()[static_cast<size_t>(begin + index)]);
      shadow_[static_cast<size_t>(int64_t{pages[at]} * limits_.page_size + offset)] =
          index < count ? walk.prefix() : 0xDEADull;
    }
  }
}

class SimEngine::BlockCopy final : public KvBlockCopy {
 public:
  BlockCopy(SimEngine* engine, std::span<const PageId> pages, bool reads)
      : engine_(engine), pages_(pages.begin(), pages.end()), reads_(reads) {
    ++engine_->num_copies_;
    begun_ = engine_->HashesOf(pages_);
    if (reads_) return;
    std::vector<PageId> written = pages_;
    std::erase(written, kNoPage);
    engine_->BeginLoad(written);
  }
  ~BlockCopy() override {
    --engine_->num_copies_;
    if (!reads_) Write(std::vector<uint64_t>(begun_.size(), 0xDEADull));
  }
  bool IsReady() override { return true; }
  Status TakeBlock(std::span<std::byte> block) override {
    const std::vector<uint64_t> hashes = engine_->HashesOf(pages_);
    if (hashes != begun_) engine_->Violate("a page changes while a copy reads it");
    MINISGL_CHECK(block.size() == hashes.size() * sizeof(uint64_t), "a block of {} bytes",
                  block.size());
    std::memcpy(block.data(), hashes.data(), block.size());
    return Status();
  }
  void PutBlock(std::span<const std::byte> block) override {
    MINISGL_CHECK(block.size() == begun_.size() * sizeof(uint64_t), "a block of {} bytes",
                  block.size());
    put_.resize(begun_.size());
    std::memcpy(put_.data(), block.data(), block.size());
  }
  // What was put reaches the pages.
  void Finish() {
    MINISGL_CHECK(put_.size() == begun_.size(), "a block is written before it is put");
    Write(put_);
    reads_ = true;
  }

 private:
  void Write(const std::vector<uint64_t>& hashes) {
    const int64_t page_size = engine_->limits_.page_size;
    for (size_t i = 0; i < pages_.size(); ++i) {
      if (pages_[i] == kNoPage) continue;
      engine_->is_loading_[static_cast<size_t>(pages_[i])] = false;
      const auto from = hashes.begin() + static_cast<std::ptrdiff_t>(i) * page_size;
      std::copy(from, from + page_size, engine_->shadow_.begin() + pages_[i] * page_size);
    }
  }

  SimEngine* engine_;
  std::vector<PageId> pages_;
  bool reads_;
  std::vector<uint64_t> begun_, put_;
};

std::vector<uint64_t> SimEngine::HashesOf(std::span<const PageId> pages) const {
  const auto page_size = static_cast<size_t>(limits_.page_size);
  std::vector<uint64_t> hashes(pages.size() * page_size, 0);
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i] == kNoPage) continue;
    const auto from = shadow_.begin() + pages[i] * limits_.page_size;
    std::copy(from, from + limits_.page_size,
              hashes.begin() + static_cast<std::ptrdiff_t>(i * page_size));
  }
  return hashes;
}

std::unique_ptr<KvBlockCopy> SimEngine::ReadPages(std::span<const PageId> pages) {
  if (num_copies_ == kCopiesMax) return nullptr;
  return std::make_unique<BlockCopy>(this, pages, true);
}

std::unique_ptr<KvBlockCopy> SimEngine::BeginWrite(std::span<const PageId> pages) {
  if (num_copies_ == kCopiesMax) return nullptr;
  return std::make_unique<BlockCopy>(this, pages, false);
}

void SimEngine::WritePages(std::unique_ptr<KvBlockCopy> copy) {
  static_cast<BlockCopy*>(copy.get())->Finish();
}

class SimEngine::StateCopy final : public KvBlockCopy {
 public:
  StateCopy(SimEngine* engine, StateSlot slot, bool reads)
      : engine_(engine), slot_(static_cast<size_t>(slot)), reads_(reads) {
    ++engine_->num_copies_;
    begun_ = engine_->states_[slot_];
    if (!reads_) engine_->is_state_loading_[slot_] = true;
  }
  ~StateCopy() override {
    --engine_->num_copies_;
    if (!reads_) Write(0xDEADull);
  }
  bool IsReady() override { return true; }
  Status TakeBlock(std::span<std::byte> state) override {
    if (engine_->states_[slot_] != begun_) engine_->Violate("a state changes while it is read");
    std::memcpy(state.data(), &begun_, sizeof(begun_));
    return Status();
  }
  void PutBlock(std::span<const std::byte> state) override {
    std::memcpy(&put_, state.data(), sizeof(put_));
  }
  void Finish() {
    Write(put_);
    reads_ = true;
  }

 private:
  void Write(uint64_t hash) {
    engine_->states_[slot_] = hash;
    engine_->is_state_loading_[slot_] = false;
  }

  SimEngine* engine_;
  size_t slot_;
  bool reads_;
  uint64_t begun_ = 0, put_ = 0;
};

std::unique_ptr<KvBlockCopy> SimEngine::ReadState(StateSlot slot) {
  if (num_copies_ == kCopiesMax) return nullptr;
  return std::make_unique<StateCopy>(this, slot, true);
}

std::unique_ptr<KvBlockCopy> SimEngine::BeginStateWrite(StateSlot slot) {
  if (num_copies_ == kCopiesMax) return nullptr;
  return std::make_unique<StateCopy>(this, slot, false);
}

void SimEngine::WriteState(std::unique_ptr<KvBlockCopy> copy) {
  static_cast<StateCopy*>(copy.get())->Finish();
}

}  // namespace minisgl::sim
