// The prompts of a row for a model that reads two texts together (a cross encoder): one for each
// pair of a query and a document that is ranked, or of a text and its second one.
//
// A pair that is longer than the model's bound is cut as the reference does (the strategy
// longest_first): the longer text loses its end until both are equally long, then both do.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "batch/row_prompt.h"
#include "batch/texts_row.h"
#include "minisgl/plan/row_extras.h"

namespace minisgl::batch {
namespace {

// Cuts the two to `most` tokens together.
void CutPair(int64_t most, std::vector<TokenId>* first, std::vector<TokenId>* second) {
  int64_t shorter = std::ssize(*first), longer = std::ssize(*second);
  const bool is_swapped = shorter > longer;
  if (is_swapped) std::swap(shorter, longer);
  longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (shorter + longer > most) {
    shorter = most / 2;
    longer = shorter + most % 2;
  }
  if (is_swapped) std::swap(shorter, longer);
  first->resize(std::min(first->size(), static_cast<size_t>(shorter)));
  second->resize(std::min(second->size(), static_cast<size_t>(longer)));
}

std::vector<TokenId> Join(const PairFrame& frame, const std::vector<TokenId>& first,
                          const std::vector<TokenId>& second) {
  std::vector<TokenId> ids;
  for (const auto* part : {&frame.before, &first, &frame.between, &second, &frame.after}) {
    ids.insert(ids.end(), part->begin(), part->end());
  }
  return ids;
}

}  // namespace

std::optional<RowError> PromptBuilder::BuildPairs(Row* row, std::vector<Prompt>* prompts,
                                                  const std::atomic<bool>* cancelled) const {
  const EmbeddingOptions& embedding = options_.embedding;
  const bool ranks = IsRankedFormat(row->format);
  if (ranks) {
    if (auto error = CheckNoInstruction(embedding.rank, *row)) return error;
  }
  const PairFrame& frame = *embedding.pair;
  const int64_t num_added =
      std::ssize(frame.before) + std::ssize(frame.between) + std::ssize(frame.after);
  const int64_t most = TextMax();
  if (num_added > most) {
    return RowError{"length_exceeded",
                    fmt::format("what stands around two texts has {} tokens; the context holds {}",
                                num_added, most),
                    ""};
  }
  std::vector<EmbeddedText> first_texts, second_texts;
  for (std::string& text : ranks ? QueriesOf(embedding.rank, *row) : row->second_texts) {
    (ranks ? first_texts : second_texts).push_back({std::move(text), {}});
  }
  (ranks ? second_texts : first_texts) = std::move(row->texts);
  std::vector<std::vector<TokenId>> firsts;
  for (EmbeddedText& text : first_texts) {
    firsts.emplace_back();
    if (auto error = EncodeText(std::move(text), cancelled, &firsts.back())) return error;
  }
  for (EmbeddedText& text : second_texts) {
    const size_t i = prompts->size();
    std::vector<TokenId> first = firsts[firsts.size() == 1 ? 0 : i], second;
    if (auto error = EncodeText(std::move(text), cancelled, &second)) return error;
    const int64_t length = std::ssize(first) + std::ssize(second) + num_added;
    if (length > most) {
      const std::string which = row->is_one_text ? "" : fmt::format(" {}", i);
      row->warnings.push_back(
          fmt::format("{}{} were cut to {} of {} tokens, the most that the model takes",
                      ranks ? "the query and document" : "the texts of pair", which, most, length));
      CutPair(most - num_added, &first, &second);
    }
    Prompt prompt = BeginEmbedded(*row);
    if (auto error = SetAdapter(*row, &prompt)) return error;
    prompt.ids = Join(frame, first, second);
    if (prompt.ids.empty()) {
      return InvalidRow("both texts are empty: they have no tokens", "text");
    }
    if (embedding.has_types && frame.types_from) {
      RowExtras extras = *prompt.extras;
      extras.second_text =
          std::ssize(frame.before) + std::ssize(first) + static_cast<int64_t>(*frame.types_from);
      prompt.extras = std::make_shared<RowExtras>(std::move(extras));
    }
    prompts->push_back(std::move(prompt));
  }
  return std::nullopt;
}

}  // namespace minisgl::batch
