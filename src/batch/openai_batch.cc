#include "batch/openai_batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "batch/embed_output.h"
#include "batch/ranked_output.h"
#include "minisgl/base/random.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/call_messages.h"

namespace minisgl::batch {
namespace {

// Creation time of every answer: constant, so that a repeated run writes the same bytes.
constexpr int64_t kCreated = 0;

// FNV-1a with its standard parameters: ids must differ, but need not be unpredictable.
uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

// The part that all ids of a row share: a hash of its custom_id and its index.
std::string IdTail(const Row& row) {
  const uint64_t name = HashBytes(row.id.Dump());
  const auto place = static_cast<uint64_t>(row.index);
  return fmt::format("{:016x}{:08x}", DeriveSeed(name, place),
                     static_cast<uint32_t>(DeriveSeed(~name, place)));
}

std::string ModelName(const Row& row) { return row.model.value_or(""); }

// The service has no finish reason for a timeout, so it becomes "length"; `warnings` mentions it.
std::string FinishReason(const RowAnswer& answer) {
  const std::string& reason = FinishReasonOf(answer);
  return reason == "stop" || reason == kCallsFinish ? reason : "length";
}

Json ChatLogprobs(const RowAnswer& answer, const Tokenizer& tokenizer) {
  if (answer.logprobs.empty()) return Json();
  Json logprobs = LogprobsJson(answer.logprobs, tokenizer);
  logprobs.Set("refusal", Json());
  return logprobs;
}

// Spells a token as the completions API does: bytes that are not characters on their own are
// escaped.
std::string TokenSpelling(TokenId id, const Tokenizer& tokenizer) {
  if (id < 0 || id >= tokenizer.vocab_size()) return "";
  const std::string bytes = tokenizer.PieceBytes(id);
  if (bytes.empty()) return tokenizer.PieceText(id);
  if (IsValidUtf8(bytes)) return bytes;
  std::string spelling = "bytes:";
  for (const char byte : bytes) spelling += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return spelling;
}

int64_t CountCharacters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

// Counts the characters of a text up to each of its tokens.
class TextOffsets {
 public:
  // `prompt`: what the text begins with, which may spell control tokens.
  explicit TextOffsets(std::string_view prompt) : prompt_(prompt) {}

  // Returns the offset of `id`, and moves past it.
  int64_t Next(TokenId id, const Tokenizer& tokenizer) {
    const int64_t offset = offset_;
    if (id < 0 || id >= tokenizer.vocab_size()) return offset;
    std::string bytes = tokenizer.PieceBytes(id);
    const std::string_view rest = prompt_.substr(std::min(num_bytes_, prompt_.size()));
    if (bytes.empty() && rest.starts_with(tokenizer.PieceText(id))) {
      bytes = tokenizer.PieceText(id);
    } else if (num_bytes_ == 0 && bytes.starts_with(' ') && !rest.empty() && rest[0] != ' ') {
      bytes.erase(0, 1);  // some tokenizers put a space before every text
    }
    num_bytes_ += bytes.size();
    offset_ += CountCharacters(bytes);
    return offset;
  }

 private:
  const std::string_view prompt_;
  size_t num_bytes_ = 0;
  int64_t offset_ = 0;
};

// An object of the most likely tokens; null for the first token of a prompt.
Json TopByToken(const TokenLogprobs& token, const Tokenizer& tokenizer) {
  if (std::isnan(token.logprob)) return Json();
  Json top = Json(Json::Object());
  for (const TokenLogprob& other : token.top) {
    top.Set(TokenSpelling(other.id, tokenizer), FloatJson(other.logprob));
  }
  return top;
}

// Four arrays with an entry for each token; text_offset counts the characters of the text.
Json CompletionLogprobs(const Row& row, const RowAnswer& first, const RowAnswer& answer,
                        const Tokenizer& tokenizer) {
  const std::vector<TokenLogprobs> shown = ShownLogprobs(row, first, answer);
  if (shown.empty()) return Json();
  Json tokens = Json(Json::Array()), values = tokens, tops = tokens, offsets = tokens;
  TextOffsets offset(row.echo ? row.shown.text : std::string_view());
  bool has_top = row.num_logprobs.value_or(0) > 0;
  for (const TokenLogprobs& token : shown) {
    tokens.Append(TokenSpelling(token.id, tokenizer));
    values.Append(FloatJson(token.logprob));
    offsets.Append(offset.Next(token.id, tokenizer));
    tops.Append(TopByToken(token, tokenizer));
    has_top = has_top || !token.top.empty();
  }
  Json logprobs = Json(Json::Object());
  logprobs.Set("tokens", std::move(tokens));
  logprobs.Set("token_logprobs", std::move(values));
  logprobs.Set("top_logprobs", has_top ? std::move(tops) : Json());
  logprobs.Set("text_offset", std::move(offsets));
  return logprobs;
}

// As other services write it: null, then for each token of the prompt an object of the most likely
// ones and itself, by id. Its rank is known if it is one of them.
Json PromptLogprobsById(const Row& row, const RowAnswer& first, const Tokenizer& tokenizer) {
  Json list = Json(Json::Array());
  for (const TokenLogprobs& token : PromptLogprobs(row, first, row.num_prompt_logprobs)) {
    if (std::isnan(token.logprob)) {
      list.Append(Json());
      continue;
    }
    Json entry = Json(Json::Object());
    const auto add = [&](TokenId id, float logprob, Json rank) {
      Json value = Json(Json::Object());
      value.Set("logprob", FloatJson(logprob)).Set("rank", std::move(rank));
      value.Set("decoded_token", TokenSpelling(id, tokenizer));
      entry.Set(fmt::format("{}", id), std::move(value));
    };
    add(token.id, token.logprob, Json());
    for (size_t i = 0; i < token.top.size(); ++i) {
      add(token.top[i].id, token.top[i].logprob, Json(static_cast<int64_t>(i + 1)));
    }
    list.Append(std::move(entry));
  }
  return list;
}

Json Choice(const Row& row, const RowAnswer& first, const RowAnswer& answer, int64_t index,
            const Tokenizer& tokenizer) {
  ReasoningPiece piece = SplitAnswer(row, answer);
  Json choice = Json(Json::Object());
  choice.Set("index", index);
  if (row.format == RowFormat::kBatchChat) {
    Json message = Json(Json::Object());
    const bool only_calls = !answer.calls.empty() && piece.text.empty();
    message.Set("role", "assistant");
    message.Set("content", only_calls ? Json() : Json(std::move(piece.text)));
    message.Set("refusal", Json());
    if (!answer.calls.empty()) message.Set("tool_calls", CallsJson(answer.calls));
    if (!piece.reasoning.empty()) message.Set("reasoning", std::move(piece.reasoning));
    choice.Set("message", std::move(message));
    choice.Set("logprobs", ChatLogprobs(answer, tokenizer));
  } else {
    choice.Set("text", ShownText(row, std::move(piece.text)));
    choice.Set("logprobs", CompletionLogprobs(row, first, answer, tokenizer));
    if (row.num_prompt_logprobs >= 0) {
      choice.Set("prompt_logprobs", PromptLogprobsById(row, first, tokenizer));
    }
  }
  choice.Set("finish_reason", FinishReason(answer));
  if (row.return_token_ids) choice.Set("token_ids", TokenIdsJson(answer));
  if (row.with_metrics && row.n > 1) choice.Set("metrics", MetricsJson(answer));
  return choice;
}

// Prompt tokens are counted once, whatever the number of answers.
Json BatchUsageJson(const Row& row, const std::vector<RowAnswer>& answers) {
  const Usage first = WholeUsage(answers.front());
  int64_t completion_tokens = 0, reasoning_tokens = 0;
  for (const RowAnswer& answer : answers) {
    const Usage usage = WholeUsage(answer);
    completion_tokens += usage.completion_tokens;
    reasoning_tokens += usage.reasoning_tokens;
  }
  Json details = Json(Json::Object());
  details.Set("cached_tokens", first.cached_tokens);
  Json usage = Json(Json::Object());
  usage.Set("prompt_tokens", first.prompt_tokens).Set("completion_tokens", completion_tokens);
  usage.Set("total_tokens", first.prompt_tokens + completion_tokens);
  usage.Set("prompt_tokens_details", std::move(details));
  if (!row.reasoning.none()) {
    usage.Set("completion_tokens_details",
              std::move(Json(Json::Object()).Set("reasoning_tokens", reasoning_tokens)));
  }
  return usage;
}

std::string Line(const Row& row, int status_code, Json body, Json error) {
  const std::string tail = IdTail(row);
  Json response = Json(Json::Object());
  response.Set("status_code", status_code).Set("request_id", "req_" + tail);
  response.Set("body", std::move(body));
  Json line = Json(Json::Object());
  line.Set("id", "batch_req_" + tail).Set("custom_id", row.id);
  line.Set("response", std::move(response)).Set("error", std::move(error));
  return line.Dump() + "\n";
}

// HTTP status and error type that the service would return for each code of an error row.
struct HttpFailure {
  const char* code;
  int status_code;
  const char* type;
  bool internal;  // not the row's fault: also reported beside `response`
};
constexpr HttpFailure kFailures[] = {
    {"invalid_row", 400, "invalid_request_error", false},
    {"invalid_grammar", 400, "invalid_request_error", false},
    {"unsupported_field", 400, "invalid_request_error", false},
    {"duplicate_id", 400, "invalid_request_error", false},
    {"length_exceeded", 400, "invalid_request_error", false},
    {"bad_image", 400, "invalid_request_error", false},
    {"template_error", 400, "invalid_request_error", false},
    {"timeout", 408, "timeout_error", false},
    {"aborted", 400, "invalid_request_error", false},
    {"cancelled", 503, "server_error", true},
};
// Used for all other codes: nan_logits, device_fault, internal.
constexpr HttpFailure kServerFailure = {"", 500, "server_error", true};

const HttpFailure& FailureOf(std::string_view code) {
  for (const HttpFailure& failure : kFailures) {
    if (code == failure.code) return failure;
  }
  return kServerFailure;
}

}  // namespace

std::string FormatBatchAnswer(const Row& row, const std::vector<RowAnswer>& answers,
                              const Tokenizer& tokenizer) {
  if (row.format == RowFormat::kBatchEmbed) {
    return Line(row, 200, EmbeddingsBody(row, answers, ModelName(row)), Json());
  }
  if (IsRankedFormat(row.format)) {
    return Line(row, 200, RankedBody(row, answers, IdTail(row)), Json());
  }
  const bool chat = row.format == RowFormat::kBatchChat;
  Json choices = Json(Json::Array());
  bool timed_out = false;
  for (size_t i = 0; i < answers.size(); ++i) {
    choices.Append(Choice(row, answers.front(), answers[i], static_cast<int64_t>(i), tokenizer));
    timed_out = timed_out || answers[i].finish_reason == "timeout";
  }
  Json body = Json(Json::Object());
  body.Set("id", (chat ? "chatcmpl-" : "cmpl-") + IdTail(row));
  body.Set("object", chat ? "chat.completion" : "text_completion");
  body.Set("created", kCreated).Set("model", ModelName(row));
  body.Set("choices", std::move(choices)).Set("usage", BatchUsageJson(row, answers));
  body.Set("system_fingerprint", Json());
  if (chat && row.num_prompt_logprobs >= 0) {
    body.Set("prompt_logprobs", PromptLogprobsById(row, answers.front(), tokenizer));
  }
  if (!answers.front().rounds.empty()) {
    body.Set("tool_messages", ToolMessagesJson(row, answers.front()));
  }
  if (row.with_metrics && row.n == 1) body.Set("metrics", MetricsJson(answers.front()));
  if (row.metadata) body.Set("metadata", Json::Raw(*row.metadata));
  Json warnings = WarningsJson(row);
  if (timed_out) warnings.Append("timeout_s passed before the answer was complete");
  if (!warnings.as_array().empty()) body.Set("warnings", std::move(warnings));
  return Line(row, 200, std::move(body), Json());
}

std::string FormatBatchError(const Row& row, const RowError& error) {
  const HttpFailure& failure = FailureOf(error.code);
  Json fields = Json(Json::Object());
  fields.Set("message", error.message).Set("type", failure.type);
  fields.Set("param", error.field.empty() ? Json() : Json(error.field));
  fields.Set("code", error.code).Set("line", row.line);
  Json body = Json(Json::Object());
  body.Set("error", std::move(fields));
  Json outer;
  if (failure.internal) {
    outer.Set("code", error.code).Set("message", error.message);
  }
  return Line(row, failure.status_code, std::move(body), std::move(outer));
}

}  // namespace minisgl::batch
