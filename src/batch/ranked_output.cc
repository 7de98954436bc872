// See ranked_output.h.
#include "batch/ranked_output.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
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

double Product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

// A vector of zeros is like no other.
float Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  const double lengths = std::sqrt(Product(a, a)) * std::sqrt(Product(b, b));
  return static_cast<float>(Product(a, b) / std::max(lengths, 1e-12));
}

// The answers of documents alone, with their cosines. The tokens of queries count with the first.
std::vector<RowAnswer> CosinesOf(const VectorPipeline& pipeline, const Row& row,
                                 std::vector<RowAnswer> answers) {
  for (RowAnswer& answer : answers) {
    answer.vector =
        FinishVector(pipeline, std::move(answer.vector), pipeline.dimensions, /*normalizes=*/false);
  }
  const size_t num_queries = row.num_query_prompts;
  std::vector<RowAnswer> documents(answers.begin() + static_cast<std::ptrdiff_t>(num_queries),
                                   answers.end());
  for (size_t i = 0; i < documents.size(); ++i) {
    documents[i].vector = {Cosine(answers[num_queries == 1 ? 0 : i].vector, documents[i].vector)};
  }
  for (size_t i = 0; i < num_queries; ++i) {
    documents.front().usage.prompt_tokens += answers[i].usage.prompt_tokens;
  }
  return documents;
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
  if (maker_.pipeline != nullptr) {
    scored = CosinesOf(*maker_.pipeline, row, std::move(scored));
  } else {
    for (RowAnswer& answer : scored) {
      answer.vector = ScoresOf(*maker_.head, answer.vector, maker_.raw);
    }
  }
  if (row.format == RowFormat::kClassify) {
    return WriteFormatted(row, FormatClassifiedRow(row, scored, *maker_.head));
  }
  if (IsBatchFormat(row.format)) return JsonAnswerWriter::WriteAnswers(row, scored);
  return WriteFormatted(row, FormatRankedRow(row, scored));
}

}  // namespace minisgl::batch
