// See plan_check.h.
#include "engine/plan_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/window_math.h"

namespace minisgl::engine {
namespace {

bool InRange(int64_t value, int64_t end) { return value >= 0 && value < end; }

// True if count >= 1 and [first, first + count) is within [0, end).
bool SpanInRange(int64_t first, int64_t count, int64_t end) {
  return first >= 0 && count >= 1 && count <= end && first <= end - count;
}

std::string FindWriteFault(const BatchPlan& plan, const EngineLimits& limits) {
  const int64_t table_rows = int64_t{limits.max_running_requests} + 1;
  const int64_t pages_per_row = CeilDiv<int64_t>(limits.max_seq_len, limits.page_size);
  for (const PageTableWrite& write : plan.page_table_writes) {
    if (!InRange(write.table_row, table_rows) ||
        !SpanInRange(write.first, write.count, pages_per_row) ||
        !SpanInRange(write.offset, write.count, std::ssize(plan.pages))) {
      return fmt::format("page-table write of row {}, [{}, +{}) from {} is out of range",
                         write.table_row, write.first, write.count, write.offset);
    }
  }
  for (const PageId page : plan.pages) {
    // The table may hold the dummy page, num_pages.
    if (!InRange(page, int64_t{limits.num_pages} + 1)) {
      return fmt::format("page {} of {} pages", page, limits.num_pages);
    }
  }
  for (const WindowPageId page : plan.window_pages) {
    if (!InRange(page, int64_t{limits.num_window_pages} + 1)) {
      return fmt::format("window page {} of {}", page, limits.num_window_pages);
    }
  }
  for (const TokenPoolWrite& write : plan.token_pool_writes) {
    if (!InRange(write.table_row, table_rows) ||
        !SpanInRange(write.first, write.count, limits.max_seq_len) ||
        !SpanInRange(write.offset, write.count, std::ssize(plan.tokens))) {
      return fmt::format("token-pool write of row {}, [{}, +{}) from {} is out of range",
                         write.table_row, write.first, write.count, write.offset);
    }
  }
  return "";
}

std::string FindRowFault(const BatchPlan& plan, const EngineLimits& limits, int row) {
  const int32_t table_row = plan.table_row[row];
  if (!InRange(table_row, int64_t{limits.max_running_requests} + 1)) {
    return fmt::format("row {}: table row {} of {}", row, table_row, limits.max_running_requests);
  }
  const int32_t num_drafts = plan.num_drafts[row];
  // Not the row's first token: a place samples after the token before the drafts as well.
  if (!InRange(num_drafts, plan.extend_len(row))) {
    return fmt::format("row {}: {} drafts in {} tokens", row, num_drafts, plan.extend_len(row));
  }
  const int32_t num_scored = plan.scored_len(row);
  // A scored token and the one before it are of the prompt.
  const int32_t scored_end = plan.kv_len[row] + (plan.wants_token[row] ? 0 : 1);
  if (!InRange(num_scored, int64_t{plan.extend_len(row)} + (plan.wants_token[row] ? 0 : 1)) ||
      (num_scored > 0 && (num_drafts > 0 || scored_end > plan.prompt_len[row]))) {
    return fmt::format("row {}: {} scored in {} tokens up to {} with {} drafts and prompt_len {}",
                       row, num_scored, plan.extend_len(row), plan.kv_len[row], num_drafts,
                       plan.prompt_len[row]);
  }
  if (num_scored > 0 && plan.sampling[row] == nullptr) {
    return fmt::format("row {} has no sampling parameters", row);
  }
  if (!plan.wants_token[row]) {
    if (plan.masked(row)) return fmt::format("row {}: a mask and no token", row);
    if (num_drafts > 0) return fmt::format("row {}: {} drafts and no token", row, num_drafts);
    return "";
  }
  if (num_drafts > 0 && table_row == limits.max_running_requests) {
    return fmt::format("row {}: {} drafts of the padding row", row, num_drafts);
  }
  if (plan.sampling[row] == nullptr) return fmt::format("row {} has no sampling parameters", row);
  if (plan.prompt_len[row] < 1 || plan.prompt_len[row] > plan.kv_len[row] - num_drafts) {
    return fmt::format("row {}: prompt_len {} of kv_len {} with {} drafts", row,
                       plan.prompt_len[row], plan.kv_len[row], num_drafts);
  }
  return "";
}

template <typename Value>
bool HasDuplicate(std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) != values.end();
}

// Checks the window pages that a row reads and writes against the table. Appends the slots it
// writes to `written`.
std::string FindWindowFault(const BatchPlan& plan, const EngineLimits& limits,
                            const StepTables& tables, int row, std::vector<int64_t>* written) {
  const int32_t table_row = plan.table_row[row];
  if (table_row == limits.max_running_requests) return "";  // padding uses the dummy only
  const int32_t* pages = tables.window_table + table_row * tables.page_table_stride;
  const int32_t first = plan.kv_len[row] - plan.extend_len(row);
  const WindowMath math{limits.page_size, limits.sliding_window};
  for (int32_t page = math.FirstPage(first); page <= (plan.kv_len[row] - 1) / limits.page_size;
       ++page) {
    if (InRange(pages[page], limits.num_window_pages)) continue;
    return fmt::format("row {}: window page {} of {} within its window", row, pages[page],
                       limits.num_window_pages);
  }
  for (int t = plan.row_begin[row]; t < plan.row_begin[row + 1]; ++t) {
    const int32_t position = plan.positions[t];
    const int64_t slot = int64_t{pages[position / limits.page_size]} * limits.page_size +
                         position % limits.page_size;
    if (plan.window_slots[t] != slot) {
      return fmt::format("row {}, position {}: window slot {}, but {} by the table", row, position,
                         plan.window_slots[t], slot);
    }
    written->push_back(slot);
  }
  return "";
}

// The segments cover the rows in order, each goes on from the one before it, and no slot is written
// twice, or read by one row and written by another.
std::string FindSegmentFault(const BatchPlan& plan, const EngineLimits& limits) {
  if (limits.num_state_slots == 0) {
    return plan.state_segments.empty() ? "" : "state segments, but no state slots";
  }
  std::vector<StateSlot> written, read;
  size_t next = 0;
  for (int row = 0; row < plan.num_rows(); ++row) {
    const size_t first = next;
    int64_t num_tokens = 0;
    for (; next < plan.state_segments.size() && plan.state_segments[next].row == row; ++next) {
      const StateSegment& segment = plan.state_segments[next];
      const bool goes_on = next > first;
      const bool may_be_zero = !goes_on && plan.kv_len[row] == plan.extend_len(row);
      if (!InRange(segment.write, limits.num_state_slots) || segment.num_tokens < 1 ||
          (!InRange(segment.read, limits.num_state_slots) &&
           !(segment.read == kZeroState && may_be_zero)) ||
          (goes_on && segment.read != plan.state_segments[next - 1].write)) {
        return fmt::format("row {}: a segment of {} tokens from state {} to {} of {}", row,
                           segment.num_tokens, segment.read, segment.write, limits.num_state_slots);
      }
      num_tokens += segment.num_tokens;
      written.push_back(segment.write);
      if (!goes_on && segment.read != kZeroState) read.push_back(segment.read);
    }
    if (num_tokens != plan.extend_len(row)) {
      return fmt::format("row {}: state segments of {} tokens for {}", row, num_tokens,
                         plan.extend_len(row));
    }
  }
  if (next != plan.state_segments.size()) return "state segments out of the order of rows";
  std::sort(written.begin(), written.end());
  for (const StateSlot slot : read) {
    if (std::binary_search(written.begin(), written.end(), slot)) {
      return fmt::format("state {} is read and written", slot);
    }
  }
  if (std::adjacent_find(written.begin(), written.end()) != written.end()) {
    return "a state is written twice";
  }
  return "";
}

}  // namespace

std::string FindPlanSizeFault(const BatchPlan& plan, const EngineLimits& limits) {
  const size_t num_rows = plan.table_row.size();
  const size_t num_tokens = plan.positions.size();
  if (plan.row_begin.size() != num_rows + 1 || plan.kv_len.size() != num_rows ||
      plan.wants_token.size() != num_rows || plan.num_drafts.size() != num_rows ||
      plan.prompt_len.size() != num_rows || plan.sampling.size() != num_rows ||
      plan.slots.size() != num_tokens) {
    return fmt::format("arrays of different lengths for {} rows and {} tokens", num_rows,
                       num_tokens);
  }
  const auto lacking = static_cast<RowExtraSet>(plan.extras.parts() & ~limits.extras);
  if (lacking != 0) {
    return fmt::format("rows with {}, which the engine lacks", NameOfFirst(lacking));
  }
  if (num_rows > static_cast<size_t>(limits.max_running_requests) + 1) {
    return fmt::format("{} rows, at most {}", num_rows, limits.max_running_requests + 1);
  }
  if (num_tokens > static_cast<size_t>(limits.max_step_tokens)) {
    return fmt::format("{} tokens, at most {}", num_tokens, limits.max_step_tokens);
  }
  if (plan.row_begin[0] != 0 || plan.row_begin[num_rows] != plan.num_tokens()) {
    return fmt::format("rows cover tokens [{}, {}) of {}", plan.row_begin[0],
                       plan.row_begin[num_rows], num_tokens);
  }
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (plan.extend_len(row) < 1) return fmt::format("row {} has no token", row);
    if (plan.kv_len[row] < plan.extend_len(row) || plan.kv_len[row] > limits.max_seq_len) {
      return fmt::format("row {}: kv_len {} with {} new tokens and at most {}", row,
                         plan.kv_len[row], plan.extend_len(row), limits.max_seq_len);
    }
  }
  return "";
}

std::string FindPlanShapeFault(const BatchPlan& plan, const EngineLimits& limits) {
  std::string size_fault = FindPlanSizeFault(plan, limits);
  if (!size_fault.empty()) return size_fault;
  const size_t num_tokens = plan.positions.size();
  if (plan.num_rows() == 0 && (!limits.encodes_in_pieces || plan.extras.encoded.empty())) {
    return "no rows";
  }
  std::string extras_fault = PlanExtrasFault(plan.extras, plan.row_begin);
  if (!extras_fault.empty()) return extras_fault;
  for (const AdapterSpan& span : plan.extras.adapters) {
    if (span.slot >= limits.num_adapters) return fmt::format("adapter slot {}", span.slot);
  }
  int64_t num_scored = 0;
  for (const int32_t of_row : plan.num_scored) num_scored += of_row;
  if ((!plan.num_scored.empty() &&
       plan.num_scored.size() != static_cast<size_t>(plan.num_rows())) ||
      std::ssize(plan.scored_ids) != num_scored) {
    return fmt::format("{} scored tokens in {} of {} rows, {} ids", num_scored,
                       plan.num_scored.size(), plan.num_rows(), plan.scored_ids.size());
  }
  for (const TokenId id : plan.scored_ids) {
    if (!InRange(id, limits.vocab_size)) {
      return fmt::format("scored token {} of a vocabulary of {}", id, limits.vocab_size);
    }
  }
  if (plan.has_masks() && plan.is_masked.size() != static_cast<size_t>(plan.num_rows())) {
    return fmt::format("masks of {} of {} rows", plan.is_masked.size(), plan.num_rows());
  }
  const bool has_windows = limits.num_window_pages > 0;
  if (plan.window_slots.size() != (has_windows ? num_tokens : 0) ||
      plan.window_pages.size() != (has_windows ? plan.pages.size() : 0)) {
    return fmt::format("{} window slots for {} tokens, {} window pages for {} pages",
                       plan.window_slots.size(), num_tokens, plan.window_pages.size(),
                       plan.pages.size());
  }
  if (!plan.makes_drafts.empty() && !limits.makes_drafts) return "drafts that the engine makes";
  if (!plan.makes_drafts.empty() &&
      plan.makes_drafts.size() != static_cast<size_t>(plan.num_rows())) {
    return fmt::format("{} rows of {} with drafts that the engine makes or not",
                       plan.makes_drafts.size(), plan.num_rows());
  }
  int64_t num_drafts = 0;
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (!plan.makes_drafts.empty() && plan.makes_drafts[static_cast<size_t>(row)] != 0 &&
        (plan.num_drafts[row] < 1 || plan.extend_len(row) != 1 + plan.num_drafts[row])) {
      return fmt::format("row {}: {} drafts to make in {} tokens", row, plan.num_drafts[row],
                         plan.extend_len(row));
    }
    std::string fault = FindRowFault(plan, limits, row);
    if (!fault.empty()) return fault;
    num_drafts += plan.num_drafts[row];
  }
  if (num_drafts > limits.max_step_drafts) {
    return fmt::format("{} drafts, at most {}", num_drafts, limits.max_step_drafts);
  }
  if (HasDuplicate(plan.table_row)) return "a table row is used twice";
  std::string segment_fault = FindSegmentFault(plan, limits);
  if (!segment_fault.empty()) return segment_fault;
  return FindWriteFault(plan, limits);
}

std::string FindPlanStateFault(const BatchPlan& plan, const EngineLimits& limits,
                               const StepTables& tables) {
  std::vector<int64_t> written, window_written;
  for (int row = 0; row < plan.num_rows(); ++row) {
    const int32_t table_row = plan.table_row[row];
    const bool padding = table_row == limits.max_running_requests;
    const int32_t* pages = tables.page_table + table_row * tables.page_table_stride;
    const TokenId* tokens = tables.token_pool + table_row * tables.token_pool_stride;
    const int32_t first_position = plan.kv_len[row] - plan.extend_len(row);
    for (int t = plan.row_begin[row]; t < plan.row_begin[row + 1]; ++t) {
      const int32_t position = first_position + (t - plan.row_begin[row]);
      if (plan.positions[t] != position) {
        return fmt::format("row {}: position {}, expected {}", row, plan.positions[t], position);
      }
      const int64_t slot = int64_t{pages[position / limits.page_size]} * limits.page_size +
                           position % limits.page_size;
      if (plan.slots[t] != slot) {
        return fmt::format("row {}, position {}: slot {}, but {} by the page table", row, position,
                           plan.slots[t], slot);
      }
      if (!InRange(tokens[position], limits.vocab_size)) {
        return fmt::format("row {}, position {}: token {} of a vocabulary of {}", row, position,
                           tokens[position], limits.vocab_size);
      }
      if (!padding) written.push_back(slot);
    }
    if (limits.num_window_pages == 0) continue;
    std::string fault = FindWindowFault(plan, limits, tables, row, &window_written);
    if (!fault.empty()) return fault;
  }
  if (HasDuplicate(std::move(written))) return "a slot is written twice";
  if (HasDuplicate(std::move(window_written))) return "a window slot is written twice";
  return "";
}

}  // namespace minisgl::engine
