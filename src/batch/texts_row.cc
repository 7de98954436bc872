// See texts_row.h.
#include "batch/texts_row.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace minisgl::batch {
namespace {

constexpr const char* kVectorsUrl = "/v1/embeddings";
constexpr const char* kRerankUrls[] = {"/v1/rerank", "/rerank", "/v2/rerank"};
constexpr const char* kScoreUrls[] = {"/v1/score", "/score"};

// A row may have 2048 documents, and each of them has the query before it.
constexpr size_t kQueryBytesMax = size_t{64} << 10;

bool Has(std::span<const std::string_view> seen, std::string_view name) {
  return std::find(seen.begin(), seen.end(), name) != seen.end();
}

// Fields that only rows of one of the commands have.
std::optional<RowError> RefuseOthers(std::span<const std::string_view> seen,
                                     std::initializer_list<const char*> names, const char* what) {
  for (const char* const name : names) {
    if (!Has(seen, name)) continue;
    const char* const shown = name == std::string_view("queries") ? "query" : name;
    return RowError{"unsupported_field", fmt::format("{} is not a known field of {}", shown, what),
                    shown};
  }
  return std::nullopt;
}

// A row has a second text for each text, or none.
std::optional<RowError> CheckSecondTexts(const Row& row, bool has_messages) {
  const bool has_ids = std::any_of(row.texts.begin(), row.texts.end(),
                                   [](const EmbeddedText& text) { return !text.ids.empty(); });
  if (has_messages || has_ids) {
    return InvalidRow("text_pair is the second of two texts; the first must be a text, too",
                      "text_pair");
  }
  if (row.second_texts.size() == row.texts.size()) return std::nullopt;
  return InvalidRow(fmt::format("text_pair must have a text for each of text (found {} for {})",
                                row.second_texts.size(), row.texts.size()),
                    "text_pair");
}

std::optional<RowError> CheckClassified(Row* row, std::span<const std::string_view> seen) {
  if (auto error =
          RefuseOthers(seen, {"queries", "documents", "instruction", "top_n", "return_documents"},
                       "a row to classify")) {
    return error;
  }
  const bool has_messages = Has(seen, "messages");
  if (has_messages == Has(seen, "input")) {
    return InvalidRow(fmt::format("a row to classify has a text or messages (found {})",
                                  has_messages ? "both" : "neither"),
                      has_messages ? "messages" : "text");
  }
  if (Has(seen, "text_pair")) return CheckSecondTexts(*row, has_messages);
  if (!has_messages) return std::nullopt;
  row->start = AnswerStart::kNothing;
  row->texts.emplace_back();
  row->is_one_text = true;
  return std::nullopt;
}

std::optional<RowError> CheckQueries(const Row& row) {
  const bool is_score = row.format == RowFormat::kBatchScore;
  const bool is_batch = is_score || row.format == RowFormat::kBatchRerank;
  const char* const field = is_score ? "text_1" : "query";
  if (row.queries.empty() && is_batch) {
    return InvalidRow(fmt::format("{} is missing", field), field);
  }
  const bool fits = row.queries.size() <= 1 || (is_score && row.queries.size() == row.texts.size());
  if (fits) return std::nullopt;
  return InvalidRow(is_score ? fmt::format("text_1 must be one text, or as many as text_2 has "
                                           "(found {} and {})",
                                           row.queries.size(), row.texts.size())
                             : fmt::format("query must be one text (found {})", row.queries.size()),
                    field);
}

std::optional<RowError> CheckRanked(Row* row, std::span<const std::string_view> seen) {
  if (auto error =
          RefuseOthers(seen, {"messages", "add_special_tokens", "text_pair"}, "a row to rank")) {
    return error;
  }
  const bool is_batch = row->format != RowFormat::kRankedText;
  const char* const field = row->format == RowFormat::kBatchScore ? "text_2" : "documents";
  const bool has_documents = Has(seen, "documents");
  if (has_documents == Has(seen, "input") || (is_batch && !has_documents)) {
    return InvalidRow(has_documents
                          ? "a row to rank has documents, or is one and has a text (found both)"
                          : fmt::format("{} is missing: what is ranked", field),
                      field);
  }
  const bool has_ids = std::any_of(row->texts.begin(), row->texts.end(),
                                   [](const EmbeddedText& text) { return !text.ids.empty(); });
  if (has_ids || (!has_documents && !row->is_one_text)) {
    return InvalidRow("text must be a string: one document; documents is a list of them", "text");
  }
  if (auto error = CheckQueries(*row)) return error;
  if (!is_batch && has_documents) row->format = RowFormat::kRanking;
  if (row->format == RowFormat::kBatchRerank || row->returns_documents) {
    for (const EmbeddedText& text : row->texts) row->shown_documents.push_back(text.text);
  }
  return std::nullopt;
}

}  // namespace

TextsUrl TextsUrlOf(RowPurpose purpose, const Json* url) {
  if (purpose != RowPurpose::kRerank) return {RowFormat::kBatchEmbed, kVectorsUrl, nullptr};
  const auto named = [url](const char* name) { return url != nullptr && *url == Json(name); };
  for (const char* const name : kScoreUrls) {
    if (named(name)) return {RowFormat::kBatchScore, name, nullptr};
  }
  for (const char* const name : kRerankUrls) {
    if (named(name)) return {RowFormat::kBatchRerank, name, nullptr};
  }
  return {RowFormat::kBatchRerank, kRerankUrls[0], kScoreUrls[0]};
}

const char* CommandFor(const Json& url) {
  if (url == Json(kVectorsUrl)) return "; minisgl embed makes vectors";
  const auto is_named = [&url](const char* name) { return url == Json(name); };
  const bool ranks = std::any_of(std::begin(kRerankUrls), std::end(kRerankUrls), is_named) ||
                     std::any_of(std::begin(kScoreUrls), std::end(kScoreUrls), is_named);
  return ranks ? "; minisgl rerank gives scores of documents" : "";
}

std::optional<RowError> CheckTexts(Row* row, RowPurpose purpose,
                                   std::span<const std::string_view> seen) {
  if (purpose == RowPurpose::kClassify) return CheckClassified(row, seen);
  if (purpose == RowPurpose::kRerank) return CheckRanked(row, seen);
  if (Has(seen, "input")) return std::nullopt;
  const char* const field = row->format == RowFormat::kBatchEmbed ? "input" : "text";
  return InvalidRow(fmt::format("{} is missing: what becomes a vector", field), field);
}

std::optional<RowError> CheckRanking(const RankDefaults& defaults, const Row& row) {
  if (row.queries.empty() && !defaults.query) {
    return InvalidRow("query is missing; give it in the row, or one for all with --query", "query");
  }
  size_t longest = row.queries.empty() ? defaults.query->size() : 0;
  for (const std::string& query : row.queries) longest = std::max(longest, query.size());
  longest += row.instruction.empty() ? defaults.instruction.size() : row.instruction.size();
  if (longest <= kQueryBytesMax) return std::nullopt;
  return InvalidRow(fmt::format("query and instruction have at most {} bytes (found {})",
                                kQueryBytesMax, longest),
                    "query");
}

std::optional<RowError> CheckNoInstruction(const RankDefaults& defaults, const Row& row) {
  if (row.instruction.empty() && defaults.instruction.empty()) return std::nullopt;
  return RowError{"unsupported_field", "instruction: the model takes a query and documents alone",
                  "instruction"};
}

std::vector<std::string> QueriesOf(const RankDefaults& defaults, const Row& row) {
  return row.queries.empty() ? std::vector<std::string>{*defaults.query} : row.queries;
}

std::string RankedTextOf(const RerankTemplate& form, const RankDefaults& defaults, const Row& row,
                         size_t i) {
  const std::string& query =
      row.queries.empty() ? *defaults.query : row.queries[row.queries.size() == 1 ? 0 : i];
  const std::string& instruction = row.instruction.empty() ? defaults.instruction : row.instruction;
  return RankedText(instruction.empty() ? form.instruction : std::string_view(instruction), query,
                    row.texts[i].text);
}

}  // namespace minisgl::batch
