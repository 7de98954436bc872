// See token_drafter.h.
#include "engine/token_drafter.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/draft_candidates.h"
#include "engine/draft_pictures.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {
namespace {

// The most likely token; the lowest id of several. NaN is never more likely.
TokenId MostLikely(const float* logits, int64_t vocab_size) {
  return static_cast<TokenId>(std::max_element(logits, logits + vocab_size) - logits);
}

}  // namespace

Result<std::unique_ptr<TokenDrafter>> TokenDrafter::Make(const EngineLimits& limits,
                                                         const ModelConfig& config, Passes passes,
                                                         Ops* ops) {
  std::unique_ptr<TokenDrafter> drafter(new TokenDrafter(limits, config, std::move(passes)));
  const auto tokens = static_cast<uint64_t>(limits.max_step_tokens);
  const auto pages = static_cast<uint64_t>(limits.num_pages) + 1;
  const auto width = static_cast<uint64_t>(drafter->width_);
  if (drafter->wants_states()) {
    MINISGL_ASSIGN_OR_RETURN(drafter->states_, DeviceArray<float>::Make(ops, {tokens, width}));
    MINISGL_ASSIGN_OR_RETURN(drafter->inputs_, DeviceArray<float>::Make(ops, {tokens, width}));
  }
  if (drafter->reads_before()) {
    MINISGL_ASSIGN_OR_RETURN(drafter->kept_, DeviceArray<float>::Make(ops, {pages, width}));
  }
  drafter->num_known_.resize(pages);
  drafter->all_.resize(tokens);
  std::iota(drafter->all_.begin(), drafter->all_.end(), 0);
  return drafter;
}

int64_t TokenDrafter::WidthOf(const ModelConfig& config) {
  if (config.prediction == PredictionLayer::kAssistant) return config.draft_head.target_width;
  return config.is_prediction_layer() ? config.hidden_size : 0;
}

std::optional<uint64_t> TokenDrafter::StepBytes(const EngineLimits& limits,
                                                const ModelConfig& config) {
  const uint64_t factors[] = {2, static_cast<uint64_t>(limits.max_step_tokens),
                              static_cast<uint64_t>(WidthOf(config)), sizeof(float)};
  return CheckedProduct(factors);
}

std::optional<uint64_t> TokenDrafter::PageBytes(const ModelConfig& config) {
  if (config.prediction == PredictionLayer::kBlock) return 0;
  const uint64_t factors[] = {static_cast<uint64_t>(WidthOf(config)), sizeof(float)};
  return CheckedProduct(factors);
}

void TokenDrafter::Pass::Clear() {
  token_ids.clear();
  positions.clear();
  slots.clear();
  table_row.clear();
  row_begin.assign(1, 0);
  kv_len.clear();
  key_end.clear();
  rope_positions.clear();
  placed.clear();
}

int64_t TokenDrafter::SlotOf(const StepTables& tables, int32_t page_size, int32_t table_row,
                             int32_t place) {
  const int64_t page = tables.page_table[table_row * tables.page_table_stride + place / page_size];
  return page * page_size + place % page_size;
}

ForwardInput TokenDrafter::InputOf(const Pass& pass) {
  return {.num_tokens = static_cast<int32_t>(pass.token_ids.size()),
          .num_rows = static_cast<int32_t>(pass.table_row.size()),
          .token_ids = pass.token_ids.data(),
          .positions = pass.positions.data(),
          .slots = pass.slots.data(),
          .table_row = pass.table_row.data(),
          .row_begin = pass.row_begin.data(),
          .kv_len = pass.kv_len.data(),
          .placed = pass.placed,
          .rope_positions = pass.rope_positions.empty() ? nullptr : pass.rope_positions.data(),
          .key_end = pass.key_end.empty() ? nullptr : pass.key_end.data(),
          .states_before = inputs_.data(),
          .first_key = reads_before() && !is_assistant() ? 1 : 0};
}

bool TokenDrafter::KnowsKeys(const StepTables& tables, int32_t table_row, int32_t place) const {
  const int32_t* const pages = tables.page_table + table_row * tables.page_table_stride;
  const int32_t page_size = limits_.page_size;
  for (int32_t first = 0; first < place; first += page_size) {
    const int32_t wanted = std::min(page_size, place - first);
    if (num_known_[static_cast<size_t>(pages[first / page_size])] < wanted) return false;
  }
  return true;
}

void TokenDrafter::CopyKept(int64_t page, float* to) const {
  std::copy_n(kept_.data() + page * width_, width_, to);
}

void TokenDrafter::AddToken(TokenId id, int32_t place, int64_t slot, const RopePosition& position) {
  // Ids past the end of a vocabulary are of no token.
  pass_.token_ids.push_back(id < num_ids_ ? id : 0);
  pass_.positions.push_back(reads_before() && !is_assistant() ? place - 1 : place);
  pass_.slots.push_back(slot);
  if (has_parts_) pass_.rope_positions.push_back(MovedPosition(position, -1));
}

void TokenDrafter::Propose(const BatchPlan& plan, const StepTables& tables,
                           const DraftGuide& guide) {
  if (plan.makes_drafts.empty()) return;
  guide_ = &guide;
  std::vector<Draft> drafts;
  int32_t most = 0;
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (plan.makes_drafts[static_cast<size_t>(row)] == 0) continue;
    const int32_t count = plan.num_drafts[row], table_row = plan.table_row[row];
    const int32_t place = plan.kv_len[row] - count - 1;
    TokenId* const tokens = tables.token_pool + table_row * tables.token_pool_stride;
    if (place < 1 || !KnowsKeys(tables, table_row, place)) {
      std::fill_n(tokens + place + 1, count, tokens[place]);
      continue;
    }
    if (reads_before()) {
      const int64_t before = SlotOf(tables, limits_.page_size, table_row, place - 1);
      CopyKept(before / limits_.page_size, inputs_.data() + std::ssize(drafts) * width_);
    }
    drafts.push_back({table_row, place, count, tokens[place], row, plan.masked(row),
                      RopePositionOf(plan, plan.row_begin[row], place)});
    most = std::max(most, count);
  }
  if (drafts.empty()) return;
  if (is_block()) return ProposeBlocks(tables, std::move(drafts));
  for (int32_t index = 0; index < most; ++index) ProposeOne(tables, index, &drafts);
}

TokenId TokenDrafter::Best(const float* logits, const StepTables& tables, const Draft& draft,
                           int32_t index) {
  if (draft.is_masked) {
    mask_.assign(static_cast<size_t>(MaskWords(limits_.vocab_size)), 0);
    const TokenId* const first =
        tables.token_pool + draft.table_row * tables.token_pool_stride + draft.place + 1;
    if ((*guide_)(draft.row, {first, static_cast<size_t>(index)}, mask_)) {
      if (const auto allowed = BestAllowed(logits, /*is_masked=*/true)) return *allowed;
    }
  }
  if (!candidates_.empty()) return *BestAllowed(logits, /*is_masked=*/false);
  const TokenId row = MostLikely(logits, num_rows_);
  return head_.row_ids == nullptr ? row : (*head_.row_ids)[static_cast<size_t>(row)];
}

std::optional<TokenId> TokenDrafter::BestAllowed(const float* logits, bool is_masked) const {
  std::optional<TokenId> best;
  float most = 0;
  const auto consider = [&](TokenId id, float logit) {
    if (is_masked && (mask_[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) return;
    if (best && !(logit > most)) return;
    best = id;
    most = logit;
  };
  for (const TokenId id : candidates_) consider(id, logits[id]);
  if (!candidates_.empty()) return best;
  for (int64_t row = 0; row < num_rows_; ++row) {
    consider(head_.row_ids == nullptr ? static_cast<TokenId>(row)
                                      : (*head_.row_ids)[static_cast<size_t>(row)],
             logits[row]);
  }
  return best;
}

// Each token of a block sees the whole block. Logits are listed draft by draft, and within a draft
// in the order of rows.
void TokenDrafter::ProposeBlocks(const StepTables& tables, std::vector<Draft> drafts) {
  std::stable_sort(drafts.begin(), drafts.end(),
                   [](const Draft& a, const Draft& b) { return a.count > b.count; });
  const int32_t first = head_.predicts_next ? 0 : 1;  // token of a block with the first draft
  pass_.Clear();
  for (const Draft& draft : drafts) {
    const int32_t end = draft.place + draft.count + first;
    for (int32_t place = draft.place; place < end; ++place) {
      AddToken(place == draft.place ? draft.last : head_.mask_id, place,
               SlotOf(tables, limits_.page_size, draft.table_row, place), draft.position);
      pass_.key_end.push_back(end);
    }
    pass_.table_row.push_back(draft.table_row);
    pass_.row_begin.push_back(static_cast<int32_t>(pass_.token_ids.size()));
    pass_.kv_len.push_back(end);
  }
  std::vector<int32_t> wanted;
  for (int32_t index = 0; index < drafts.front().count; ++index) {
    for (size_t i = 0; i < drafts.size() && drafts[i].count > index; ++i) {
      wanted.push_back(pass_.row_begin[i] + first + index);
    }
  }
  passes_.run_layers(InputOf(pass_));
  float* logits = passes_.logits(
      {.logit_tokens = wanted.data(), .num_logit_tokens = static_cast<int32_t>(wanted.size())});
  for (int32_t index = 0; index < drafts.front().count; ++index) {
    std::vector<TokenId> before;
    for (const Draft& draft : drafts) {
      if (draft.count > index) before.push_back(draft.last);
    }
    if (head_.transition_rank > 0)
      passes_.add_transitions(before.data(), std::ssize(before), logits);
    for (size_t i = 0; i < before.size(); ++i, logits += vocab_size_) {
      Draft& draft = drafts[i];
      draft.last = Best(logits, tables, draft, index);
      tables.token_pool[draft.table_row * tables.token_pool_stride + draft.place + 1 + index] =
          draft.last;
    }
  }
}

// Makes draft `index` of each row, a layer from the states in inputs_, and leaves its own there for
// the next. Rows that have all of theirs go.
void TokenDrafter::ProposeOne(const StepTables& tables, int32_t index, std::vector<Draft>* drafts) {
  pass_.Clear();
  for (const Draft& draft : *drafts) {
    // An assistant stays where the last known token is, and reads the keys before it.
    const int32_t place = draft.place + (is_assistant() ? 0 : index);
    AddToken(draft.last, place, SlotOf(tables, limits_.page_size, draft.table_row, place),
             MovedPosition(draft.position, index));
    pass_.table_row.push_back(draft.table_row);
    pass_.row_begin.push_back(static_cast<int32_t>(pass_.token_ids.size()));
    pass_.kv_len.push_back(is_assistant() ? place : place + 1);
  }
  passes_.run_layers(InputOf(pass_));
  const ForwardInput wanted = {.logit_tokens = all_.data(),
                               .num_logit_tokens = static_cast<int32_t>(drafts->size())};
  if (reads_before()) {
    const float* const states = passes_.states(wanted).f32();
    std::copy_n(states, std::ssize(*drafts) * width_, inputs_.data());
  }
  const float* const scores = head_.num_clusters > 0 ? passes_.cluster_scores(wanted) : nullptr;
  const float* const logits = passes_.logits(wanted);
  size_t kept = 0;
  for (size_t i = 0; i < drafts->size(); ++i) {
    Draft draft = (*drafts)[i];
    if (scores != nullptr) {
      candidates_ = ClusterCandidates(head_, scores + static_cast<int64_t>(i) * head_.num_clusters);
    }
    draft.last = Best(logits + static_cast<int64_t>(i) * vocab_size_, tables, draft, index);
    tables.token_pool[draft.table_row * tables.token_pool_stride + draft.place + index + 1] =
        draft.last;
    if (index + 1 == draft.count) continue;
    if (reads_before()) {
      std::copy_n(inputs_.data() + static_cast<int64_t>(i) * width_, width_,
                  inputs_.data() + static_cast<int64_t>(kept) * width_);
    }
    (*drafts)[kept++] = draft;
  }
  drafts->resize(kept);
}

void TokenDrafter::TakeStates(const float* states, int64_t first, int64_t count) {
  std::copy_n(states, count * width_, states_.data() + first * width_);
}

void TokenDrafter::ForgetOthers(const BatchPlan& plan) {
  auto span = plan.extras.hidden.begin();
  for (int32_t token = 0; token < plan.num_tokens(); ++token) {
    while (span != plan.extras.hidden.end() && span->token + span->count <= token) ++span;
    if (span != plan.extras.hidden.end() && span->token <= token) continue;
    const int64_t slot = plan.slots[static_cast<size_t>(token)];
    int32_t& known = num_known_[static_cast<size_t>(slot / limits_.page_size)];
    known = std::min(known, static_cast<int32_t>(slot % limits_.page_size));
  }
}

void TokenDrafter::AddTokens(const BatchPlan& plan, const StepTables& tables, int32_t row,
                             int32_t begin, int32_t end, std::span<const PlacedEmbeddings> placed) {
  const int32_t table_row = plan.table_row[static_cast<size_t>(row)];
  const TokenId* const tokens = tables.token_pool + table_row * tables.token_pool_stride;
  for (int32_t token = begin; token < end; ++token) {
    const int32_t place = plan.positions[static_cast<size_t>(token)];
    float* const input = inputs_.data() + std::ssize(pass_.token_ids) * width_;
    if (is_block()) {
      std::copy_n(states_.data() + int64_t{token} * width_, width_, input);
    } else if (reads_before()) {
      if (place == 0) continue;
      if (token > plan.row_begin[static_cast<size_t>(row)]) {
        std::copy_n(states_.data() + int64_t{token - 1} * width_, width_, input);
      } else {
        const int64_t before = SlotOf(tables, limits_.page_size, table_row, place - 1);
        CopyKept(before / limits_.page_size, input);
      }
    }
    AddToken(tokens[place], place, plan.slots[static_cast<size_t>(token)],
             RopePositionOf(plan, token, place));
  }
  const auto count = static_cast<int32_t>(pass_.token_ids.size());
  const int32_t num_rows = count - pass_.row_begin.back();
  if (num_rows == 0) return;
  if (is_layer()) {
    AddPlaced(placed, hidden_size_, end - num_rows, end, pass_.row_begin.back(), &pass_.placed);
  }
  pass_.table_row.push_back(table_row);
  pass_.row_begin.push_back(count);
  pass_.kv_len.push_back(plan.positions[static_cast<size_t>(end) - 1] + 1);
}

void TokenDrafter::KeepStates(const BatchPlan& plan, int32_t begin, int32_t end) {
  for (int32_t token = begin; token < end; ++token) {
    const int64_t slot = plan.slots[static_cast<size_t>(token)];
    const auto page = static_cast<size_t>(slot / limits_.page_size);
    const auto offset = static_cast<int32_t>(slot % limits_.page_size);
    // Keys after an unknown one are not known.
    if (num_known_[page] >= offset) num_known_[page] = offset + 1;
    const bool is_last = token + 1 == end || offset + 1 == limits_.page_size;
    if (!reads_before() || !is_last) continue;
    std::copy_n(states_.data() + int64_t{token} * width_, width_,
                kept_.data() + static_cast<int64_t>(page) * width_);
  }
}

void TokenDrafter::Feed(const BatchPlan& plan, const StepTables& tables,
                        const int32_t* num_accepted, std::span<const PlacedEmbeddings> placed) {
  ForgetOthers(plan);
  // The tokens of each span that stay.
  struct Part {
    int32_t row, begin, end;
  };
  std::vector<Part> parts;
  int32_t row = 0;
  for (const HiddenSpan& span : plan.extras.hidden) {
    while (plan.row_begin[static_cast<size_t>(row) + 1] <= span.token) ++row;
    const int32_t rejected = plan.wants_token[static_cast<size_t>(row)] != 0
                                 ? plan.num_drafts[static_cast<size_t>(row)] - num_accepted[row]
                                 : 0;
    parts.push_back({row, span.token, span.token + span.count - rejected});
  }
  pass_.Clear();
  for (const Part& part : parts) {
    if (is_assistant()) break;
    // The row of the last known token ran before the drafts, but in a block it has no keys that
    // stay.
    const bool has_first = !is_block() && !plan.makes_drafts.empty() &&
                           plan.makes_drafts[static_cast<size_t>(part.row)] != 0;
    AddTokens(plan, tables, part.row, part.begin + (has_first ? 1 : 0), part.end, placed);
  }
  if (!pass_.token_ids.empty()) {
    const auto& run = is_block() ? passes_.write_keys : passes_.run_layers;
    run(InputOf(pass_));
  }
  for (const Part& part : parts) KeepStates(plan, part.begin, part.end);
}

void TokenDrafter::TakeLoaded(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    if (page == kNoPage) continue;
    num_known_[static_cast<size_t>(page)] = limits_.page_size;
    if (reads_before()) std::fill_n(kept_.data() + page * width_, width_, 0.0f);
  }
}

}  // namespace minisgl::engine
