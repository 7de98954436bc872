// See ranked_output.h.
#include "batch/ranked_output.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

namespace minisgl::batch {
namespace {

constexpr int64_t kCreatedAlways = 0;  // so that a repeated run writes the same bytes

int64_t PromptTokens(const std::vector<RowAnswer>& answers) {
  int64_t count = 0;
  for (const RowAnswer& answer : answers) count += answer.usage.prompt_tokens;
  return count;
}

Json BeginOf(const Row& row) {
  Json out = Json(Json::Object());
  out.Set("id", row.id).Set("index", row.index);
  return out;
}

std::string EndOf(const Row& row, const std::vector<RowAnswer>& answers, Json out) {
  out.Set("num_tokens", PromptTokens(answers));
  if (!row.warnings.empty()) out.Set("warnings", WarningsJson(row));
  if (row.metadata) out.Set("metadata", Json::Raw(*row.metadata));
  if (row.model) out.Set("model", *row.model);
  return out.Dump() + "\n";
}

void SetLabel(const ScoreHead& head, const std::vector<float>& values, Json* out) {
  const auto best = std::max_element(values.begin(), values.end());
  out->Set("label", head.labels[static_cast<size_t>(best - values.begin())]);
  Json scores = Json(Json::Object());
  for (size_t i = 0; i < values.size(); ++i) scores.Set(head.labels[i], FloatJson(values[i]));
  out->Set("scores", std::move(scores));
}

float ScoreOf(const RowAnswer& answer) { return answer.vector.front(); }

// The best first; documents of one score in their order.
Json ResultsOf(const Row& row, const std::vector<RowAnswer>& answers) {
  std::vector<size_t> order(answers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&answers](size_t a, size_t b) {
    return ScoreOf(answers[a]) > ScoreOf(answers[b]);
  });
  const auto most = static_cast<size_t>(row.top_n.value_or(std::ssize(order)));
  order.resize(std::min(order.size(), most));
  Json results = Json(Json::Array());
  for (const size_t index : order) {
    Json result = Json(Json::Object());
    result.Set("index", static_cast<int64_t>(index));
    if (!row.shown_documents.empty()) {
      Json document = Json(Json::Object());
      result.Set("document", std::move(document.Set("text", row.shown_documents[index])));
    }
    result.Set("relevance_score", FloatJson(ScoreOf(answers[index])));
    results.Append(std::move(result));
  }
  return results;
}

}  // namespace

std::string FormatClassifiedRow(const Row& row, const std::vector<RowAnswer>& answers,
                                const ScoreHead& head) {
  Json out = BeginOf(row);
  if (row.is_one_text) {
    SetLabel(head, answers.front().vector, &out);
    return EndOf(row, answers, std::move(out));
  }
  Json results = Json(Json::Array());
  for (const RowAnswer& answer : answers) {
    Json result = Json(Json::Object());
    SetLabel(head, answer.vector, &result);
    results.Append(std::move(result));
  }
  out.Set("results", std::move(results));
  return EndOf(row, answers, std::move(out));
}

std::string FormatRankedRow(const Row& row, const std::vector<RowAnswer>& answers) {
  Json out = BeginOf(row);
  if (row.format == RowFormat::kRankedText) {
    out.Set("score", FloatJson(ScoreOf(answers.front())));
  } else {
    out.Set("results", ResultsOf(row, answers));
  }
  return EndOf(row, answers, std::move(out));
}

Json RankedBody(const Row& row, const std::vector<RowAnswer>& answers, const std::string& id) {
  const int64_t num_tokens = PromptTokens(answers);
  Json usage = Json(Json::Object());
  usage.Set("prompt_tokens", num_tokens).Set("total_tokens", num_tokens);
  Json body = Json(Json::Object());
  if (row.format == RowFormat::kBatchRerank) {
    body.Set("id", "rerank-" + id).Set("model", row.model.value_or(""));
    body.Set("usage", std::move(usage)).Set("results", ResultsOf(row, answers));
  } else {
    Json data = Json(Json::Array());
    for (const RowAnswer& answer : answers) {
      Json entry = Json(Json::Object());
      entry.Set("index", std::ssize(data.as_array())).Set("object", "score");
      data.Append(std::move(entry.Set("score", FloatJson(ScoreOf(answer)))));
    }
    body.Set("id", "score-" + id).Set("object", "list").Set("created", kCreatedAlways);
    body.Set("model", row.model.value_or("")).Set("data", std::move(data));
    body.Set("usage", std::move(usage));
  }
  if (!row.warnings.empty()) body.Set("warnings", WarningsJson(row));
  return body;
}

Status ScoredTextWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  std::vector<RowAnswer> scored = answers;
  for (RowAnswer& answer : scored) answer.vector = ScoresOf(head_, answer.vector, raw_);
  if (row.format == RowFormat::kClassify) {
    return WriteFormatted(row, FormatClassifiedRow(row, scored, head_));
  }
  if (IsBatchFormat(row.format)) return JsonAnswerWriter::WriteAnswers(row, scored);
  return WriteFormatted(row, FormatRankedRow(row, scored));
}

}  // namespace minisgl::batch
