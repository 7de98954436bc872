#include "batch/row_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "batch/embed_output.h"
#include "batch/openai_batch.h"
#include "minisgl/text/call_messages.h"

namespace minisgl::batch {
namespace {

// The end of the warning about answers that were cut.
constexpr const char* kCutEnding =
    " ended before the grammar allowed an end: not a whole text of it";

Json TokenJson(TokenId id, float logprob, const Tokenizer& tokenizer) {
  const bool known = id >= 0 && id < tokenizer.vocab_size();
  const std::string bytes = known ? tokenizer.PieceBytes(id) : "";
  const bool special = known && bytes.empty();
  Json token = Json(Json::Object());
  token.Set("token", special ? tokenizer.PieceText(id) : bytes);
  token.Set("id", int64_t{id});
  token.Set("logprob", FloatJson(logprob));
  Json byte_values = Json(Json::Array());
  for (const char byte : bytes) byte_values.Append(int64_t{static_cast<uint8_t>(byte)});
  token.Set("bytes", std::move(byte_values));
  return token;
}

Json UsageJson(const Row& row, const Usage& usage) {
  Json json = Json(Json::Object());
  json.Set("prompt_tokens", usage.prompt_tokens);
  json.Set("cached_tokens", usage.cached_tokens);
  json.Set("completion_tokens", usage.completion_tokens);
  if (!row.reasoning.none()) json.Set("reasoning_tokens", usage.reasoning_tokens);
  return json;
}

// Prompt tokens are counted once, whatever the number of answers; cached tokens are those of the
// first answer.
Json UsageJson(const Row& row, std::span<const RowAnswer> answers) {
  Usage sum = WholeUsage(answers.front());
  for (const RowAnswer& answer : answers.subspan(1)) {
    sum.completion_tokens += answer.usage.completion_tokens;
    sum.reasoning_tokens += answer.usage.reasoning_tokens;
  }
  return UsageJson(row, sum);
}

void AddUsage(const Usage& usage, Usage* sum) {
  sum->prompt_tokens += usage.prompt_tokens;
  sum->cached_tokens += usage.cached_tokens;
  sum->completion_tokens += usage.completion_tokens;
  sum->reasoning_tokens += usage.reasoning_tokens;
}

// Each turn has a prompt of its own.
Json UsageOfTurns(const Row& row, std::span<const RowAnswer> answers) {
  Usage sum;
  for (const RowAnswer& answer : answers) AddUsage(WholeUsage(answer), &sum);
  return UsageJson(row, sum);
}

void SetText(const Row& row, const RowAnswer& answer, Json* out) {
  ReasoningPiece piece = SplitAnswer(row, answer);
  out->Set("text", ShownText(row, std::move(piece.text)));
  if (!piece.reasoning.empty()) out->Set("reasoning", std::move(piece.reasoning));
  if (!answer.calls.empty()) out->Set("tool_calls", CallsJson(answer.calls));
  out->Set("finish_reason", FinishReasonOf(answer));
  if (!answer.rounds.empty()) out->Set("tool_messages", ToolMessagesJson(row, answer));
}

// null and an entry for each further token of the prompt.
Json PromptLogprobsJson(const Row& row, const RowAnswer& first, const Tokenizer& tokenizer) {
  const auto tokens = PromptLogprobs(row, first, row.num_prompt_logprobs);
  Json content = LogprobsJson(tokens, tokenizer).as_object().front().second;
  content.as_array().front() = Json();
  return content;
}

// {"id", "index", "logprob", "num_tokens"}, and what --logprobs adds.
std::string FormatScoreRow(const Row& row, const RowAnswer& answer, const Tokenizer& tokenizer) {
  Json out = Json(Json::Object());
  out.Set("id", row.id).Set("index", row.index);
  out.Set("logprob", SumOfLogprobs(answer.prompt_logprobs));
  out.Set("num_tokens", std::ssize(answer.prompt_logprobs));
  if (row.num_logprobs) out.Set("logprobs", LogprobsJson(answer.prompt_logprobs, tokenizer));
  if (!row.warnings.empty()) out.Set("warnings", WarningsJson(row));
  if (row.metadata) out.Set("metadata", Json::Raw(*row.metadata));
  if (row.model) out.Set("model", *row.model);
  return out.Dump() + "\n";
}

Json ChoicesJson(const Row& row, const std::vector<RowAnswer>& answers,
                 const Tokenizer& tokenizer) {
  Json choices = Json(Json::Array());
  for (const RowAnswer& answer : answers) {
    const auto logprobs = ShownLogprobs(row, answers.front(), answer);
    Json choice = Json(Json::Object());
    choice.Set("index", static_cast<int64_t>(choices.as_array().size()));
    SetText(row, answer, &choice);
    if (row.all_turns) choice.Set("usage", UsageJson(row, WholeUsage(answer)));
    if (row.return_token_ids) choice.Set("token_ids", TokenIdsJson(answer));
    if (!logprobs.empty()) choice.Set("logprobs", LogprobsJson(logprobs, tokenizer));
    if (row.with_metrics) choice.Set("metrics", MetricsJson(answer));
    choices.Append(std::move(choice));
  }
  return choices;
}

Json IdsJson(const std::vector<TokenId>& token_ids) {
  Json ids = Json(Json::Array());
  for (TokenId id : token_ids) ids.Append(int64_t{id});
  return ids;
}

Json BeginRow(const Row& row) {
  Json out = Json(Json::Object());
  out.Set("id", row.id);
  out.Set("index", row.index);
  return out;
}

}  // namespace

Json ErrorJson(const Row& row, const RowError& error) {
  Json fields = Json(Json::Object());
  fields.Set("code", error.code);
  fields.Set("message", error.message);
  fields.Set("line", row.line);
  if (!error.field.empty()) fields.Set("field", error.field);
  return fields;
}

void TakeCalls(const Row& row, int32_t number, RowAnswer* answer) {
  if (row.calls == nullptr) return;
  const CallRules& rules = *row.calls;
  ToolCallPiece piece =
      ReadCalls(rules, CallIds(row, number, rules.dialect), answer->text, answer->parts);
  if (piece.calls.empty()) return;
  answer->calls = std::move(piece.calls);
  answer->content = std::move(piece.content);
}

Json ToolMessagesJson(const Row& row, const RowAnswer& answer) {
  Json messages = Json(Json::Array());
  for (const ToolRound& round : answer.rounds) {
    Json message;
    message.Set("role", "assistant").Set("content", round.content);
    if (!round.reasoning.empty()) message.Set("reasoning", round.reasoning);
    message.Set("tool_calls", CallsJson(round.calls));
    if (row.return_token_ids) message.Set("token_ids", IdsJson(round.token_ids));
    messages.Append(std::move(message));
    for (const Json& result : round.results.as_array()) messages.Append(result);
  }
  return messages;
}

Usage WholeUsage(const RowAnswer& answer) {
  Usage sum = answer.usage;
  for (const ToolRound& round : answer.rounds) AddUsage(round.usage, &sum);
  return sum;
}

const std::string& FinishReasonOf(const RowAnswer& answer) {
  return answer.calls.empty() || answer.finish_reason != "stop" ? answer.finish_reason
                                                                : kCallsFinish;
}

ReasoningPiece SplitAnswer(const Row& row, const RowAnswer& answer) {
  ReasoningPiece piece = SplitParts(answer.text, answer.parts);
  if (!answer.calls.empty()) piece.text = answer.content;
  if (row.hide_reasoning) piece.reasoning.clear();
  return piece;
}

std::string ShownText(const Row& row, std::string answer_text) {
  return row.echo ? row.shown.text + answer_text : std::move(answer_text);
}

std::vector<TokenLogprobs> PromptLogprobs(const Row& row, const RowAnswer& first,
                                          int32_t num_ranks) {
  std::vector<TokenLogprobs> tokens;
  if (row.shown.ids.empty()) return tokens;
  tokens.push_back({row.shown.ids.front(), kNoLogprob, {}});
  tokens.insert(tokens.end(), first.prompt_logprobs.begin(), first.prompt_logprobs.end());
  for (TokenLogprobs& token : tokens) {
    token.top.resize(std::min(token.top.size(), static_cast<size_t>(std::max(num_ranks, 0))));
  }
  return tokens;
}

std::vector<TokenLogprobs> ShownLogprobs(const Row& row, const RowAnswer& first,
                                         const RowAnswer& answer) {
  if (!row.echo || row.shown.num_logprobs < 0) return answer.logprobs;
  std::vector<TokenLogprobs> tokens = PromptLogprobs(row, first, row.shown.num_logprobs);
  tokens.insert(tokens.end(), answer.logprobs.begin(), answer.logprobs.end());
  return tokens;
}

double SumOfLogprobs(std::span<const TokenLogprobs> tokens) {
  double sum = 0;
  for (const TokenLogprobs& token : tokens) sum += token.logprob;
  return sum;
}

// Writes the shortest digits that parse to this float, not those of the double it widens to.
Json FloatJson(float value) {
  if (std::isnan(value)) return Json();
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  double parsed = 0;
  const auto result = std::from_chars(digits, end, parsed);
  return error == std::errc() && result.ec == std::errc() ? Json(parsed)
                                                          : Json(static_cast<double>(value));
}

// Rounds times to microseconds; finer digits are noise.
Json MetricsJson(const RowAnswer& answer) {
  const AnswerTimes& times = answer.times;
  const auto num_tokens = static_cast<double>(answer.usage.completion_tokens);
  const double generating_s = std::max(times.last_token_s - times.first_token_s, 0.0);
  const double running_s = times.last_token_s - times.admitted_s;
  const auto rounded = [](double value) { return std::round(value * 1e3) / 1e3; };
  Json metrics = Json(Json::Object());
  metrics.Set("queue_time_ms", rounded(1e3 * times.admitted_s));
  metrics.Set("time_to_first_token_ms", rounded(1e3 * times.first_token_s));
  metrics.Set("generation_time_ms", rounded(1e3 * generating_s));
  metrics.Set("mean_itl_ms",
              num_tokens > 1 ? Json(rounded(1e3 * generating_s / (num_tokens - 1))) : Json());
  metrics.Set("tokens_per_second", running_s > 0 ? Json(rounded(num_tokens / running_s)) : Json());
  return metrics;
}

Json LogprobsJson(std::span<const TokenLogprobs> tokens, const Tokenizer& tokenizer) {
  Json content = Json(Json::Array());
  for (const TokenLogprobs& chosen : tokens) {
    Json token = TokenJson(chosen.id, chosen.logprob, tokenizer);
    Json top = Json(Json::Array());
    for (const TokenLogprob& other : chosen.top) {
      top.Append(TokenJson(other.id, other.logprob, tokenizer));
    }
    token.Set("top_logprobs", std::move(top));
    content.Append(std::move(token));
  }
  Json logprobs = Json(Json::Object());
  logprobs.Set("content", std::move(content));
  return logprobs;
}

Json TokenIdsJson(const RowAnswer& answer) { return IdsJson(answer.token_ids); }

Json WarningsJson(const Row& row) {
  Json warnings = Json(Json::Array());
  for (const std::string& warning : row.warnings) warnings.Append(warning);
  return warnings;
}

std::optional<std::string> CutInGrammarWarning(const std::vector<RowAnswer>& answers) {
  std::string indexes;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].cut_in_grammar) indexes += fmt::format("{}{}", indexes.empty() ? "" : ", ", i);
  }
  if (indexes.empty()) return std::nullopt;
  const std::string subject = answers.size() == 1 ? "the answer" : "of the answers, " + indexes;
  const bool is_stopped = std::all_of(answers.begin(), answers.end(), [](const RowAnswer& answer) {
    return !answer.cut_in_grammar || answer.finish_reason == "stop";
  });
  return subject + (is_stopped
                        ? " ended at a stop string: it may not be a whole text of the grammar"
                        : kCutEnding);
}

bool HasCutWarning(const Json& warnings, size_t num_answers) {
  if (!warnings.is_array()) return false;
  const Json::Array& list = warnings.as_array();
  return std::any_of(list.begin(), list.end(), [num_answers](const Json& warning) {
    if (!warning.is_string() || !warning.as_string().ends_with(kCutEnding)) return false;
    const std::string_view text = warning.as_string();
    const std::string_view named =
        text.substr(0, text.size() - std::string_view(kCutEnding).size());
    const auto commas = static_cast<size_t>(std::count(named.begin(), named.end(), ','));
    return num_answers == 1 || commas == num_answers;  // one before each index
  });
}

std::optional<std::string> IncompleteMessage(const Row& row,
                                             const std::vector<RowAnswer>& answers) {
  const auto is_cut = [](const RowAnswer& answer) {
    return answer.cut_in_grammar && answer.finish_reason != "stop";
  };
  const auto first = std::find_if(answers.begin(), answers.end(), is_cut);
  if (first == answers.end()) return std::nullopt;
  if (!row.all_turns && !std::all_of(answers.begin(), answers.end(), is_cut)) return std::nullopt;
  const char* const remedy =
      first->finish_reason == "timeout" ? "more time (timeout_s)" : "more tokens (max_tokens)";
  return fmt::format(
      "the answer was cut before its form was complete (finish_reason {}); give it {}",
      first->finish_reason, remedy);
}

std::string FormatAnswerRow(const Row& row, const std::vector<RowAnswer>& answers,
                            const Tokenizer& tokenizer) {
  if (IsBatchFormat(row.format)) return FormatBatchAnswer(row, answers, tokenizer);
  if (row.format == RowFormat::kScore) return FormatScoreRow(row, answers.front(), tokenizer);
  if (row.format == RowFormat::kEmbed) return FormatEmbedRow(row, answers);
  const RowAnswer& first = answers.front();
  const bool several = row.n > 1 || row.all_turns;
  Json out = BeginRow(row);
  if (!several) SetText(row, first, &out);
  out.Set("usage", row.all_turns ? UsageOfTurns(row, answers) : UsageJson(row, answers));
  if (!several && row.return_token_ids) out.Set("token_ids", TokenIdsJson(first));
  if (!row.warnings.empty()) out.Set("warnings", WarningsJson(row));
  if (row.incomplete) out.Set("error", ErrorJson(row, {kIncompleteAnswer, *row.incomplete, ""}));
  if (row.metadata) out.Set("metadata", Json::Raw(*row.metadata));
  if (row.model) out.Set("model", *row.model);
  if (row.num_prompt_logprobs >= 0) {
    out.Set("prompt_logprobs", PromptLogprobsJson(row, first, tokenizer));
  }
  if (!several) {
    const auto logprobs = ShownLogprobs(row, first, first);
    if (!logprobs.empty()) out.Set("logprobs", LogprobsJson(logprobs, tokenizer));
  }
  if (!several && row.with_metrics) out.Set("metrics", MetricsJson(first));
  if (several) {
    out.Set(row.all_turns ? "turns" : "choices", ChoicesJson(row, answers, tokenizer));
  }
  return out.Dump() + "\n";
}

std::string FormatTurns(const Row& row, const std::vector<RowAnswer>& answers,
                        const Tokenizer& tokenizer) {
  return ChoicesJson(row, answers, tokenizer).Dump();
}

std::string FormatErrorRow(const Row& row, const RowError& error) {
  if (IsBatchFormat(row.format)) return FormatBatchError(row, error);
  Json out = BeginRow(row);
  out.Set("error", ErrorJson(row, error));
  if (row.turns) out.Set("turns", Json::Raw(*row.turns));
  if (row.tool_messages) out.Set("tool_messages", Json::Raw(*row.tool_messages));
  return out.Dump() + "\n";
}

}  // namespace minisgl::batch
