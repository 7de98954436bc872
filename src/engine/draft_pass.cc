// See draft_pass.h.
#include "engine/draft_pass.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/decode_graphs.h"
#include "engine/layer_graphs.h"
#include "engine/step_places.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {
namespace {

// A drafter rests in steps of more rows (SchedulerOptions::max_draft_rows).
constexpr int32_t kGraphRows = 8;
// Tokens of a row that steps with drafts feed to a drafter of one draft after the other, at most.
constexpr int32_t kFedTokens = 8;

size_t Aligned(size_t bytes) { return CeilDiv(bytes, kDraftListAlignment) * kDraftListAlignment; }

// Reserves an array of `count` numbers behind *end, and returns where it begins.
size_t Reserve(int32_t count, size_t* end) {
  const size_t begin = *end;
  *end = Aligned(begin + static_cast<size_t>(count) * sizeof(int32_t));
  return begin;
}

template <typename T>
void Write(const std::vector<T>& values, std::byte* to) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
}

// Upper bound on DraftLayout::bytes.
size_t LayoutBytes(size_t rows, size_t tokens, size_t places) {
  constexpr size_t kArrays = 11;
  return (4 * rows + 1 + 6 * tokens + 3 * places) * sizeof(int32_t) + kArrays * kDraftListAlignment;
}

}  // namespace

DraftLayout::DraftLayout(const DraftShape& shape) {
  bytes = 0;
  table_row = Reserve(shape.num_rows, &bytes);
  row_begin = Reserve(shape.num_rows + 1, &bytes);
  kv_len = Reserve(shape.num_rows, &bytes);
  num_seen = Reserve(shape.num_rows, &bytes);
  positions = Reserve(shape.num_tokens, &bytes);
  key_end = Reserve(shape.num_tokens, &bytes);
  states = Reserve(shape.num_tokens, &bytes);
  rope = Reserve(3 * shape.num_tokens, &bytes);
  masks = Reserve(shape.num_places, &bytes);
  places_row = Reserve(shape.num_places, &bytes);
  places_len = Reserve(shape.num_places, &bytes);
}

void PadLists(const DraftShape& shape, bool has_own_rows, int32_t dummy, int32_t state,
              DraftLists* lists) {
  const auto rows = static_cast<size_t>(shape.num_rows);
  const auto places = static_cast<size_t>(shape.num_places);
  MINISGL_CHECK(lists->table_row.size() <= rows && lists->masks.size() <= places,
                "a pass of {} rows in a graph of {}", lists->table_row.size(), rows);
  // Place 0 has no row of a layer that reads the state before its token.
  const int32_t spare = shape.num_tokens - lists->row_begin.back();
  for (int32_t place = 1; place <= spare; ++place) {
    const bool begins = has_own_rows || place == 1;
    if (begins) lists->table_row.push_back(dummy);
    if (begins) lists->row_begin.push_back(lists->row_begin.back());
    if (begins) lists->kv_len.push_back(1);
    if (begins) lists->num_seen.push_back(1);
    ++lists->row_begin.back();
    ++lists->kv_len.back();
    lists->positions.push_back(has_own_rows ? 0 : place - 1);
    lists->key_end.push_back(has_own_rows ? 2 : place + 1);
    lists->states.push_back(state);
    lists->rope.push_back({});
  }
  lists->table_row.resize(rows, dummy);
  lists->row_begin.resize(rows + 1, shape.num_tokens);
  lists->kv_len.resize(rows, 1);
  lists->num_seen.resize(rows, 1);
  lists->masks.resize(places, 0);
  lists->places_row.resize(places, dummy);
  lists->places_len.resize(places, 1);
}

void WriteLists(const DraftLists& lists, const DraftShape& shape, std::byte* memory) {
  const DraftLayout layout(shape);
  MINISGL_CHECK(std::cmp_equal(lists.table_row.size(), shape.num_rows) &&
                    lists.row_begin.back() == shape.num_tokens &&
                    std::cmp_equal(lists.masks.size(), shape.num_places),
                "lists of another shape");
  Write(lists.table_row, memory + layout.table_row);
  Write(lists.row_begin, memory + layout.row_begin);
  Write(lists.kv_len, memory + layout.kv_len);
  Write(lists.num_seen, memory + layout.num_seen);
  Write(lists.positions, memory + layout.positions);
  Write(lists.key_end, memory + layout.key_end);
  Write(lists.states, memory + layout.states);
  Write(lists.rope, memory + layout.rope);
  Write(lists.masks, memory + layout.masks);
  Write(lists.places_row, memory + layout.places_row);
  Write(lists.places_len, memory + layout.places_len);
}

int32_t DraftStep::NumRows(int32_t index) const {
  return static_cast<int32_t>(std::count_if(
      rows.begin(), rows.end(), [index](const DraftRow& row) { return row.count > index; }));
}

int32_t DraftStep::First(int32_t index) const {
  int32_t first = 0;
  for (const DraftRow& row : rows) first += std::min(row.count, index);
  return first;
}

std::vector<DraftGraphSize> DraftGraphSizes(const ModelConfig& drafter, const EngineLimits& limits,
                                            int32_t max_rows, int32_t max_tokens) {
  std::vector<DraftGraphSize> sizes;
  if (limits.attends_both_ways) return sizes;
  const bool is_block = drafter.prediction == PredictionLayer::kBlock;
  const int32_t first = drafter.draft_head.predicts_next ? 0 : 1;  // token with a draft
  const bool is_assistant = drafter.prediction == PredictionLayer::kAssistant;
  const auto places = static_cast<int32_t>(
      DrafterRows(drafter, limits.max_running_requests, limits.max_step_drafts));
  if (!is_block) {
    for (const int32_t rows : GraphBatchSizes(std::min({max_rows, kGraphRows, places}))) {
      sizes.push_back({DraftPart::kPropose, {rows, rows, 0}});
    }
  }
  // Padding alone has the places from 1 on.
  const int32_t of_row = is_block ? drafter.draft_head.block_size : kFedTokens;
  const int32_t most = std::min({LayerGraphTokensMax(max_tokens, limits), limits.max_seq_len - 1,
                                 kGraphRows * std::min(of_row, limits.max_step_tokens)});
  const int32_t rows_max = limits.max_running_requests + 1;
  for (const int32_t tokens : LayerGraphSizes(most)) {
    if (!is_block || tokens < 2) continue;
    const DraftShape shape = {std::min(tokens, rows_max), tokens, std::min(tokens - first, places)};
    sizes.push_back({DraftPart::kPropose, shape});
  }
  for (const int32_t tokens : LayerGraphSizes(most)) {
    if (is_assistant) break;  // it has no keys
    sizes.push_back({DraftPart::kFeed, {std::min(tokens, rows_max), tokens, 0}});
  }
  return sizes;
}

size_t DraftFrontBytes(const ModelConfig& drafter, const EngineLimits& limits) {
  constexpr int32_t kAny = std::numeric_limits<int32_t>::max();
  size_t most = 0;
  for (const DraftGraphSize& size : DraftGraphSizes(drafter, limits, kAny, kAny)) {
    most = std::max(most, DraftLayout(size.shape).bytes);
  }
  return most;
}

uint64_t DraftMasksBytes(const ModelConfig& drafter, const EngineLimits& limits) {
  const auto rows = static_cast<uint64_t>(
      std::max(std::min(limits.max_running_requests, limits.max_step_drafts), 1));
  const auto words = static_cast<uint64_t>(MaskWords(drafter.vocab_size));
  return Aligned(rows * sizeof(int32_t)) + rows * words * sizeof(uint32_t);
}

// Padding at most doubles rows of one draft each, and tokens of more than 8.
size_t DraftListBytes(const EngineLimits& limits) {
  const auto tokens = static_cast<size_t>(limits.max_step_tokens);
  const auto rows = static_cast<size_t>(limits.max_running_requests) + 1;
  const auto drafts = static_cast<size_t>(limits.max_step_drafts);
  const size_t in_turn = drafts * LayoutBytes(2, 2, 0);
  const size_t blocks = LayoutBytes(rows, 2 * tokens + 8, 2 * tokens + 8);
  const size_t feed = LayoutBytes(rows, 2 * tokens + 8, 0);
  const size_t writes = rows * sizeof(TokenPoolWrite) + drafts * sizeof(int32_t);
  return std::max(in_turn, blocks + writes) + feed + tokens * sizeof(KeptState) +
         4 * kDraftListAlignment;
}

}  // namespace minisgl::engine
