// Formats a row of the answer file: one JSON object and a line break, with its keys in the order of
// the manual. Rows of an OpenAI Batch file have that format instead (openai_batch.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch/row.h"
#include "minisgl/base/json.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::batch {

// An answer whose calls of tools were run, and behind which the model was asked again.
struct ToolRound {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::vector<TokenId> token_ids;
  Usage usage;
  Json results;  // as messages
};

// One complete answer.
struct RowAnswer {
  std::vector<ToolRound> rounds;  // before it, to the same message
  std::string text;
  TextParts parts;  // of `text`, as in Event
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // of the first answer of a row
  std::vector<float> vector;                   // of a text
  std::string finish_reason;                   // of the runtime; see FinishReasonOf
  std::vector<ToolCall> calls;                 // in `text`, if the row has them read
  std::string content;  // what of `text` is neither reasoning nor calls, if there are calls
  Usage usage;
  AnswerTimes times;
  bool cut_in_grammar = false;    // as in Event
  bool ended_in_thought = false;  // it has no text after its reasoning
};

// Reads the calls in the `text` of an answer that has ended, if the row has them read. `number`:
// that of the answer, or of its turn.
void TakeCalls(const Row& row, int32_t number, RowAnswer* answer);

// What was said between the row's message and `answer`, as messages: each answer whose calls were
// run, with its token_ids if the row returns them, and the results.
Json ToolMessagesJson(const Row& row, const RowAnswer& answer);
// The usage of the answer and of those before it whose calls were run.
Usage WholeUsage(const RowAnswer& answer);

// The finish reason that rows have: "tool_calls" if an answer with calls ended by itself.
const std::string& FinishReasonOf(const RowAnswer& answer);
inline const std::string kCallsFinish = "tool_calls";

// Divides `answer` into reasoning and text, without calls. The reasoning is left empty if the row
// hides it.
ReasoningPiece SplitAnswer(const Row& row, const RowAnswer& answer);

// The answer's text, after the prompt's if the row echoes it; without reasoning.
std::string ShownText(const Row& row, std::string answer_text);

// The log-probability of a prompt's first token, before which none stands. FloatJson gives null.
inline constexpr float kNoLogprob = std::numeric_limits<float>::quiet_NaN();

// All tokens of the row's prompt, the first with kNoLogprob, each with at most `num_ranks` others.
// Of the row's answers, `first` has the log-probabilities.
std::vector<TokenLogprobs> PromptLogprobs(const Row& row, const RowAnswer& first,
                                          int32_t num_ranks);
// The log-probabilities of the answer, after the prompt's if the row echoes them.
std::vector<TokenLogprobs> ShownLogprobs(const Row& row, const RowAnswer& first,
                                         const RowAnswer& answer);

// In double, in the order of the tokens.
double SumOfLogprobs(std::span<const TokenLogprobs> tokens);

// Parts common to both formats. LogprobsJson: {"content": [...]}, in the shape of chat completions,
// with token ids added.
Json FloatJson(float value);
Json MetricsJson(const RowAnswer& answer);
Json LogprobsJson(std::span<const TokenLogprobs> tokens, const Tokenizer& tokenizer);
Json TokenIdsJson(const RowAnswer& answer);
Json WarningsJson(const Row& row);

// The warning about answers that are no whole texts of their grammar; nullopt if there are none.
std::optional<std::string> CutInGrammarWarning(const std::vector<RowAnswer>& answers);

// The code of a row whose answers are written and no whole texts of their grammar.
inline constexpr const char* kIncompleteAnswer = "incomplete_answer";
// The message of that code; nullopt: the answers count as answers. Of several answers to one prompt
// one whole text is enough; of turns each must be one. A stop string that ends an answer was asked
// for, and is no such failure.
std::optional<std::string> IncompleteMessage(const Row& row, const std::vector<RowAnswer>& answers);
// True if one of the `warnings` in a row is CutInGrammarWarning about answers that were cut.
bool HasCutWarning(const Json& warnings, size_t num_answers);

// `answers` has row.n elements, or one for each turn, in order. `tokenizer` spells the tokens of
// log-probabilities.
std::string FormatAnswerRow(const Row& row, const std::vector<RowAnswer>& answers,
                            const Tokenizer& tokenizer);

// The value of `turns`: an object for each of `answers`, which are a row's first.
std::string FormatTurns(const Row& row, const std::vector<RowAnswer>& answers,
                        const Tokenizer& tokenizer);

// The value of `error`: the code, the message, the line, and the field if there is one.
Json ErrorJson(const Row& row, const RowError& error);
std::string FormatErrorRow(const Row& row, const RowError& error);

}  // namespace minisgl::batch
