// See embed_output.h.
#include "batch/embed_output.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "minisgl/base/base64.h"

namespace minisgl::batch {
namespace {

// OpenAI's base64 is of little-endian f32.
Json VectorJson(const std::vector<float>& vector, bool in_base64) {
  if (in_base64) {
    std::string bytes;
    bytes.reserve(vector.size() * sizeof(float));
    for (const float value : vector) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
    }
    return Json(EncodeBase64(bytes));
  }
  Json list = Json(Json::Array());
  for (const float value : vector) list.Append(FloatJson(value));
  return list;
}

int64_t CountTokens(const std::vector<RowAnswer>& answers) {
  int64_t count = 0;
  for (const RowAnswer& answer : answers) count += answer.usage.prompt_tokens;
  return count;
}

}  // namespace

std::string FormatEmbedRow(const Row& row, const std::vector<RowAnswer>& answers) {
  Json out = Json(Json::Object());
  out.Set("id", row.id).Set("index", row.index);
  if (row.is_one_text) {
    out.Set("embedding", VectorJson(answers.front().vector, row.in_base64));
  } else {
    Json list = Json(Json::Array());
    for (const RowAnswer& answer : answers) list.Append(VectorJson(answer.vector, row.in_base64));
    out.Set("embeddings", std::move(list));
  }
  out.Set("num_tokens", CountTokens(answers));
  if (!row.warnings.empty()) out.Set("warnings", WarningsJson(row));
  if (row.metadata) out.Set("metadata", Json::Raw(*row.metadata));
  if (row.model) out.Set("model", *row.model);
  return out.Dump() + "\n";
}

Json EmbeddingsBody(const Row& row, const std::vector<RowAnswer>& answers, std::string model) {
  Json data = Json(Json::Array());
  for (const RowAnswer& answer : answers) {
    Json entry = Json(Json::Object());
    entry.Set("object", "embedding").Set("index", std::ssize(data.as_array()));
    entry.Set("embedding", VectorJson(answer.vector, row.in_base64));
    data.Append(std::move(entry));
  }
  const int64_t num_tokens = CountTokens(answers);
  Json usage = Json(Json::Object());
  usage.Set("prompt_tokens", num_tokens).Set("total_tokens", num_tokens);
  Json body = Json(Json::Object());
  body.Set("object", "list").Set("data", std::move(data)).Set("model", std::move(model));
  body.Set("usage", std::move(usage));
  return body;
}

Status VectorWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  Row written = row;
  written.in_base64 = row.in_base64 || format_.in_base64;
  if (format_.for_array) written.format = RowFormat::kEmbed;
  std::vector<RowAnswer> finished = answers;
  for (RowAnswer& answer : finished) {
    answer.vector =
        FinishVector(pipeline_, std::move(answer.vector),
                     row.dimensions ? row.dimensions : format_.dimensions, format_.normalizes);
  }
  return JsonAnswerWriter::WriteAnswers(written, finished);
}

Status VectorWriter::WriteError(const Row& row, const RowError& error) {
  if (!format_.for_array) return JsonAnswerWriter::WriteError(row, error);
  Row written = row;
  written.format = RowFormat::kEmbed;
  return JsonAnswerWriter::WriteError(written, error);
}

}  // namespace minisgl::batch
