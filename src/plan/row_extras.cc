#include "minisgl/plan/row_extras.h"

#include <fmt/core.h>

#include <algorithm>

namespace minisgl {
namespace {

Status CheckEmbeddings(const RowExtras& extras, int64_t prompt_len,
                       std::span<const KeyMark> marks) {
  int64_t end = 0;
  std::vector<EmbeddingSource> seen;
  for (const ReplacedEmbeddings& run : extras.embeddings) {
    if (run.token < end || run.count < 1 || run.first < 0 || run.count > prompt_len - run.token) {
      return BadInput(
          "replaced embeddings of tokens {} to {} are not in the prompt, or not in order",
          run.token, run.token + run.count);
    }
    end = run.token + run.count;
    if (std::find(seen.begin(), seen.end(), run.source) != seen.end()) continue;
    seen.push_back(run.source);
    const bool has_mark = std::any_of(marks.begin(), marks.end(), [&run](const KeyMark& mark) {
      return mark.place == run.token;
    });
    if (!has_mark) return BadInput("replaced embeddings begin at token {}, without a mark", end);
  }
  return Status();
}

Status CheckInputs(const RowExtras& extras, int64_t prompt_len, std::span<const KeyMark> marks) {
  int64_t end = 0;
  for (const EncoderInput& input : extras.inputs) {
    const int64_t most = prompt_len - (input.attends_both_ways ? 1 : 0);
    if (input.token < end || input.length < 1 || input.length > most - input.token) {
      return BadInput("an input at tokens {} to {} is not in the prompt, or not in order",
                      input.token, input.token + input.length);
    }
    end = input.end();
    if (input.num_embeddings < 1)
      return BadInput("an input of {} embeddings", input.num_embeddings);
    const bool has_mark = std::any_of(marks.begin(), marks.end(), [&input](const KeyMark& mark) {
      return mark.place == input.token;
    });
    if (!has_mark) return BadInput("an input begins at token {}, without a mark", input.token);
  }
  if (extras.inputs.empty()) return Status();
  for (const ReplacedEmbeddings& run : extras.embeddings) {
    const bool is_known = run.source < extras.inputs.size();
    const EncoderInput* const input = is_known ? &extras.inputs[run.source] : nullptr;
    if (input == nullptr || run.token < input->token || run.token + run.count > input->end() ||
        run.count > input->num_embeddings - run.first) {
      return BadInput("replaced embeddings of tokens {} to {} are not those of an input", run.token,
                      run.token + run.count);
    }
  }
  return Status();
}

Status CheckPositions(const GivenPositions& positions, int64_t prompt_len,
                      std::span<const KeyMark> marks) {
  if (positions.empty()) return Status();
  if (std::ssize(positions.of_prompt) != prompt_len) {
    return BadInput("{} positions for a prompt of {} tokens", positions.of_prompt.size(),
                    prompt_len);
  }
  const int64_t first_mark = marks.empty() ? prompt_len : marks.front().place;
  for (int64_t place = 0; place < prompt_len; ++place) {
    const RopePosition& position = positions.of_prompt[static_cast<size_t>(place)];
    const auto least = *std::min_element(position.begin(), position.end());
    const auto most = *std::max_element(position.begin(), position.end());
    if (least < 0 || (place < first_mark && (least != place || most != place))) {
      return BadInput("token {} has a position of its own, without a mark before it", place);
    }
  }
  return Status();
}

// A span within one row; `row` only grows.
class RowFinder {
 public:
  explicit RowFinder(std::span<const int32_t> row_begin) : row_begin_(row_begin) {}
  // The row of tokens [token, token + count); -1: they are in no row, or in several.
  int64_t Find(int64_t token, int64_t count) {
    if (count < 1 || token < row_begin_.front()) return -1;
    while (row_ + 1 < std::ssize(row_begin_) && row_begin_[static_cast<size_t>(row_ + 1)] <= token)
      ++row_;
    const bool is_in = row_ + 1 < std::ssize(row_begin_) &&
                       token + count <= row_begin_[static_cast<size_t>(row_ + 1)] &&
                       token >= row_begin_[static_cast<size_t>(row_)];
    return is_in ? row_ : -1;
  }

 private:
  std::span<const int32_t> row_begin_;
  int64_t row_ = 0;
};

// `is_whole`: each is all tokens of its row. `is_alone`: no row has two.
template <typename Span>
std::string SpansFault(const char* what, const std::vector<Span>& spans,
                       std::span<const int32_t> row_begin, bool is_whole, bool is_alone) {
  RowFinder rows(row_begin);
  int64_t end = 0, last_row = -1;
  for (const Span& span : spans) {
    const int64_t row = span.token < end ? -1 : rows.Find(span.token, span.count);
    const bool is_part =
        row >= 0 && is_whole &&
        span.count != row_begin[static_cast<size_t>(row + 1)] - row_begin[static_cast<size_t>(row)];
    if (row < 0 || is_part || (is_alone && row == last_row)) {
      return fmt::format("{} of tokens {} to {} are not those of a row", what, span.token,
                         span.token + span.count);
    }
    end = span.token + span.count;
    last_row = row;
  }
  return "";
}

}  // namespace

RowExtraSet RowExtras::parts() const {
  return static_cast<RowExtraSet>(
      (embeddings.empty() ? 0 : kReplacesEmbeddings) | (positions.empty() ? 0 : kGivesPositions) |
      (adapter == kNoAdapter ? 0 : kHasAdapter) | (hidden ? kWantsHidden : 0) |
      (pooling ? kWantsPooling : 0) | (inputs.empty() ? 0 : kHasInputs));
}

RowExtraSet PlanExtras::parts() const {
  return static_cast<RowExtraSet>(
      (embeddings.empty() ? 0 : kReplacesEmbeddings) | (positions.empty() ? 0 : kGivesPositions) |
      (adapters.empty() ? 0 : kHasAdapter) | (hidden.empty() ? 0 : kWantsHidden) |
      (pooling.empty() ? 0 : kWantsPooling) |
      (encoded.empty() && dropped.empty() ? 0 : kHasInputs));
}

const char* NameOfFirst(RowExtraSet parts) {
  if ((parts & kHasInputs) != 0) return "a picture";
  if ((parts & kReplacesEmbeddings) != 0) return "replaced embeddings";
  if ((parts & kGivesPositions) != 0) return "positions of its own";
  if ((parts & kHasAdapter) != 0) return "an adapter";
  if ((parts & kWantsHidden) != 0) return "hidden states for a drafter";
  if ((parts & kWantsPooling) != 0) return "a vector of its prompt";
  return "";
}

Status CheckExtras(const RowExtras& extras, int64_t prompt_len, std::span<const KeyMark> marks) {
  MINISGL_RETURN_IF_ERROR(CheckEmbeddings(extras, prompt_len, marks));
  MINISGL_RETURN_IF_ERROR(CheckInputs(extras, prompt_len, marks));
  MINISGL_RETURN_IF_ERROR(CheckPositions(extras.positions, prompt_len, marks));
  if (extras.adapter < kNoAdapter) return BadInput("adapter slot {}", extras.adapter);
  if (extras.adapter != kNoAdapter && (marks.empty() || marks.front().place != 0)) {
    return BadInput("adapter slot {} has no mark at place 0", extras.adapter);
  }
  if (extras.hidden && extras.hidden->from < 0) {
    return BadInput("hidden states are wanted from token {} on", extras.hidden->from);
  }
  if (extras.pooled_from < 0 || (extras.pooled_from > 0 && extras.pooled_from >= prompt_len)) {
    return BadInput("the first {} tokens of {} are left out of a vector", extras.pooled_from,
                    prompt_len);
  }
  if (extras.second_text && (*extras.second_text < 0 || extras.pooling == Pooling::kLast)) {
    return BadInput("a second text at token {}", *extras.second_text);
  }
  return Status();
}

std::string PlanExtrasFault(const PlanExtras& extras, std::span<const int32_t> row_begin) {
  std::string fault = SpansFault("replaced embeddings", extras.embeddings, row_begin, false, false);
  if (fault.empty()) fault = SpansFault("positions", extras.positions, row_begin, true, true);
  if (fault.empty()) fault = SpansFault("adapters", extras.adapters, row_begin, true, true);
  if (fault.empty()) fault = SpansFault("hidden states", extras.hidden, row_begin, false, true);
  if (fault.empty()) fault = SpansFault("pooled states", extras.pooling, row_begin, false, true);
  if (!fault.empty()) return fault;
  int64_t offset = 0;
  for (const PositionSpan& span : extras.positions) {
    if (span.offset != offset)
      return fmt::format("positions from {} on, not {}", span.offset, offset);
    offset += span.count;
  }
  if (offset != std::ssize(extras.rope_positions)) {
    return fmt::format("{} positions for {} tokens", extras.rope_positions.size(), offset);
  }
  for (const PoolingSpan& span : extras.pooling) {
    if (span.num_skipped < 0 || span.num_skipped > span.count || span.num_second < 0 ||
        span.num_second > span.count) {
      return fmt::format("{} tokens are pooled, without {}, {} of a second text", span.count,
                         span.num_skipped, span.num_second);
    }
  }
  for (const EncoderRun& run : extras.encoded) {
    if (run.source == 0 || run.num_embeddings < 1) {
      return fmt::format("an input of {} embeddings as source {}", run.num_embeddings, run.source);
    }
    if (run.begin < 0 || run.begin >= run.end || run.end > run.num_embeddings) {
      return fmt::format("a piece [{}, {}) of an input of {} embeddings", run.begin, run.end,
                         run.num_embeddings);
    }
  }
  for (const AdapterSpan& span : extras.adapters) {
    if (span.slot < 0) return fmt::format("adapter slot {}", span.slot);
  }
  return "";
}

}  // namespace minisgl
