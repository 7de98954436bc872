#include "batch/row_limits.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/text/encode_after.h"

namespace minisgl::batch {
namespace {

// Adds the encodings of `word` as an answer may have it: at the beginning of a text or within one.
Status AddWord(const Tokenizer& tokenizer, const std::string& word,
               std::vector<std::vector<TokenId>>* sequences) {
  const size_t begin = word.find_first_not_of(' ');
  const std::string bare = begin == std::string::npos ? word : word.substr(begin);
  for (const std::string& text : {bare, " " + bare}) {
    MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> alone, tokenizer.EncodeText(text));
    MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> within,
                             EncodeAfter(tokenizer, tokenizer.eos_id(), {{text, false}}));
    for (std::vector<TokenId>* ids : {&alone, &within}) {
      const bool is_known =
          std::find(sequences->begin(), sequences->end(), *ids) != sequences->end();
      if (!ids->empty() && !is_known) sequences->push_back(std::move(*ids));
    }
  }
  return Status();
}

bool CanEnd(const Prompt& prompt, const std::vector<TokenId>& allowed) {
  if (prompt.max_tokens >= 0 || !prompt.stop.empty() || prompt.grammar != nullptr) return true;
  return std::any_of(allowed.begin(), allowed.end(), [&](TokenId id) {
    const std::vector<TokenId>& stops = prompt.stop_token_ids;
    return std::find(stops.begin(), stops.end(), id) != stops.end();
  });
}

}  // namespace

std::optional<RowError> SetTokenLimits(const TextModel& text, Row* row, Prompt* prompt) {
  for (const std::string& word : row->bad_words) {
    std::vector<std::vector<TokenId>> sequences;
    const Status status = AddWord(*text.tokenizer, word, &sequences);
    if (!status.ok()) return InvalidRow(status.message(), "bad_words");
    std::move(sequences.begin(), sequences.end(), std::back_inserter(prompt->banned_sequences));
  }
  prompt->allowed_token_ids = row->allowed_token_ids;
  if (!row->allowed_token_ids.empty() && !CanEnd(*prompt, row->allowed_token_ids)) {
    row->warnings.push_back(
        "allowed_token_ids has no token that ends an answer; it goes on to the end of the context");
  }
  if (row->allowed_token_ids.empty() || prompt->banned_sequences.empty()) return std::nullopt;
  std::set<TokenId> banned;
  for (const std::vector<TokenId>& sequence : prompt->banned_sequences) {
    if (sequence.size() == 1) banned.insert(sequence.front());
  }
  const auto is_banned = [&](TokenId id) { return banned.contains(id); };
  const std::vector<TokenId>& allowed = row->allowed_token_ids;
  if (!std::all_of(allowed.begin(), allowed.end(), is_banned)) return std::nullopt;
  return InvalidRow("bad_words forbids every token of allowed_token_ids", "bad_words");
}

}  // namespace minisgl::batch
