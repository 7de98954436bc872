// A row of a prompt file: one JSON value, checked field by field before the model runs.
//
// Every field is defined in one table (row_fields.cc) with its type, its range and the text of its
// error. A field that is not in the table is an error that names the field. Rows are untrusted:
// parsing never crashes, and a bad row never affects another. Thread-safe (no state).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/row_calls.h"
#include "batch/row_images.h"
#include "load/answer_settings.h"
#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/log.h"
#include "minisgl/text/answer_start.h"
#include "minisgl/text/reasoning.h"

namespace minisgl::batch {

inline constexpr size_t kRowBytesMax = size_t{64} << 20;
// Upper bound on the memory of a row's JSON values, because a value of two bytes takes forty in
// memory: enough for 1.2 million token ids or 110,000 messages.
inline constexpr uint64_t kRowJsonMemoryMax = uint64_t{48} << 20;
inline constexpr int32_t kAnswersMax = 128;  // of `n`

enum class PromptKind : uint8_t { kNone, kText, kMessages, kTokenIds };

inline constexpr int32_t kTextsMax = 2048;  // of a row whose texts become vectors

// What the rows of an input are for: to be answered, to be scored (`minisgl score`), to become
// vectors (`minisgl embed`), to get labels (`minisgl classify`), or to be ranked for a query
// (`minisgl rerank`).
enum class RowPurpose : uint8_t { kAnswer, kScore, kEmbed, kClassify, kRerank };

// True for commands whose model gives scores of texts.
constexpr bool IsScoring(RowPurpose purpose) { return purpose >= RowPurpose::kClassify; }

// Format of a row, and thus of its answer: the program's own, a line of an OpenAI Batch file for
// one of its URLs, a row to score, texts that become vectors, in the program's own form or in a
// Batch file, texts that get labels, or documents that are ranked: a row lists them, or each row is
// one, or a line of a Batch file for /v1/rerank or /v1/score lists them.
enum class RowFormat : uint8_t {
  kOwn,
  kBatchChat,
  kBatchCompletion,
  kScore,
  kEmbed,
  kBatchEmbed,
  kClassify,
  kRanking,
  kRankedText,
  kBatchRerank,
  kBatchScore
};

// True for the lines of an OpenAI Batch file.
constexpr bool IsBatchFormat(RowFormat format) {
  return format == RowFormat::kBatchChat || format == RowFormat::kBatchCompletion ||
         format == RowFormat::kBatchEmbed || format == RowFormat::kBatchRerank ||
         format == RowFormat::kBatchScore;
}
// True for rows whose texts become vectors, or scores that are made of such.
constexpr bool IsEmbedFormat(RowFormat format) { return format >= RowFormat::kEmbed; }
// True for rows that pair a text with a query.
constexpr bool IsRankedFormat(RowFormat format) { return format >= RowFormat::kRanking; }
// The format of a row of an input for `purpose`, unless it is of a Batch file.
constexpr RowFormat FormatFor(RowPurpose purpose) {
  return purpose == RowPurpose::kScore      ? RowFormat::kScore
         : purpose == RowPurpose::kEmbed    ? RowFormat::kEmbed
         : purpose == RowPurpose::kClassify ? RowFormat::kClassify
         : purpose == RowPurpose::kRerank   ? RowFormat::kRankedText
                                            : RowFormat::kOwn;
}

// A text that becomes a vector, or its token ids.
struct EmbeddedText {
  std::string text;
  std::vector<TokenId> ids;  // empty: the text's
};

// Why a row has no answer. `code` is one of the codes in minisgl-run(1); `field` is "" if no single
// field is at fault.
struct RowError {
  std::string code;
  std::string message;
  std::string field;
};
// An invalid_row error; `field` names the member at fault, if there is one.
RowError InvalidRow(std::string message, std::string field = "");
// A bad_image error: of a picture that cannot be read or shown to the model.
RowError BadImage(std::string message, std::string field);

// A message that is logged once a run, however many rows cause it.
struct RunNote {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

// The prompt of a row whose answer shows it or its log-probabilities.
struct ShownPrompt {
  std::string text;  // if the row echoes it
  std::vector<TokenId> ids;
  int32_t num_logprobs = -1;  // of the answer's tokens, and thus of echoed ones
};

// Whether the answer to a row with tools calls them.
enum class ToolUse : uint8_t { kAuto, kNone, kRequired };

// What a row says of calls beside its tools.
struct ToolSettings {
  ToolUse use = ToolUse::kAuto;
  std::vector<std::string> allowed;  // the only functions that are called; empty: all
  bool is_named = false;             // one function is called, once
  bool parallel = true;              // several calls may stand in an answer
  bool reads_calls = true;           // calls are told from the text of the answer
};

// Its base: the settings of the answer that the row sets.
struct Row : load::AnswerOverrides {
  int64_t index = 0;  // position in the input, from 0
  int64_t line = 0;   // line of the file, from 1
  Json id;            // a string, a number, or null for none
  RowFormat format = RowFormat::kOwn;
  std::optional<std::string> model;  // echoed in the answer; may name an adapter
  std::optional<std::string> adapter;

  PromptKind kind = PromptKind::kNone;
  std::string prompt;                     // for kText; of a row to score: "" if it has none
  std::string scored_text;                // of a row to score
  std::vector<EmbeddedText> texts;        // of a row whose texts become vectors
  bool is_one_text = false;               // which is no list of texts
  std::optional<int64_t> dimensions;      // of its vectors
  bool in_base64 = false;                 // and how they are written
  std::vector<std::string> queries;       // of ranked texts: for all or for each; none: the run's
  std::vector<std::string> second_texts;  // of texts to classify: one for each, or none
  // If queries become vectors, their prompts come first, so many; set with the prompts.
  size_t num_query_prompts = 0;
  std::string instruction;         // to the model that ranks them; "": the run's
  std::optional<int64_t> top_n;    // so many results are written
  bool returns_documents = false;  // results have their texts, which are here
  std::vector<std::string> shown_documents;
  Json messages;                          // for kMessages: contents are strings, parts or null
  std::vector<RowImage> images;           // of the parts that are pictures, in their order
  std::vector<TokenId> prompt_token_ids;  // for kTokenIds: none is negative

  bool any_seed = false;  // seed -1 was given, which means none
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> bad_words;            // none is empty
  std::vector<TokenId> allowed_token_ids;        // none is negative; empty: all
  bool include_stop = false;                     // what ends the answer is part of its text
  bool keep_special = false;                     // and so are special tokens
  AnswerStart start = AnswerStart::kNewMessage;  // of messages
  int32_t n = 1;
  int32_t priority = 0;
  std::optional<double> timeout_s;
  bool add_special_tokens = true;
  bool return_token_ids = false;
  bool echo = false;                       // the answer begins with the prompt
  int32_t num_prompt_logprobs = -1;        // -1: not wanted
  Json tools, documents, template_kwargs;  // null if not given
  ToolSettings tool_settings;
  std::optional<ToolSettings> forced;  // what it said before its calls were answered (FreeCalls)
  std::string reasoning_effort;        // "" if not given
  std::string verbosity;               // the same
  // Set when the prompt is built: which part of the answer is reasoning, and whether that part is
  // omitted.
  ReasoningTags reasoning;
  // How calls are told from the text of its answers; null: they are not.
  std::shared_ptr<const CallRules> calls;
  bool has_call_settings = false;  // `calls` and its grammar follow tool_settings
  ShownPrompt shown;
  bool hide_reasoning = false;
  size_t shared_bytes = 0;    // of `grammar`, which an earlier row in work has, too
  std::string grammar_field;  // that set `grammar`; "" if none did
  bool with_metrics = false;  // answers include their timing
  // The conversation that the row goes on with, by its name; "": none.
  std::string session;
  bool append = false;        // its prompt goes on with the text of the session
  bool all_turns = false;     // each message of the user is answered
  bool ends_session = false;  // no later row of the input is in the session
  // The first message that has not been asked, and the number of turns answered.
  size_t next_message = 0;
  int32_t turn = 0;
  // Calls of tools in its answers are run, and it is asked again with their results.
  bool runs_calls = false;
  int32_t num_called = 0;  // answers to it whose calls were run
  Json results;            // of the last of them, as messages, which its next prompt adds; or null
  // The number of its next answer among all.
  int32_t answer_number() const { return turn + num_called; }
  // Its prompt is needed behind its first answer, too.
  bool may_go_on() const { return all_turns || runs_calls; }
  bool has_more_turns() const {
    return all_turns && messages.is_array() && next_message < messages.as_array().size();
  }
  std::optional<std::string> turns;  // JSON of the turns answered before the row failed
  // JSON of the answers whose calls were run, and their results, before the row failed.
  std::optional<std::string> tool_messages;
  std::optional<std::string> metadata;  // the JSON text in the row, on one line
  std::vector<std::string> warnings;
  // Why its answers, which are written, count as a failure: they are no whole texts of what they
  // must be. Set when they have ended.
  std::optional<std::string> incomplete;
  std::vector<RunNote> notes;
};

// What an earlier run wrote for a row of a session.
struct EarlierAnswer {
  // An answer whose calls were run, and their results as messages.
  struct Round {
    std::vector<TokenId> ids;
    Json results;
  };
  struct Turn {
    std::vector<Round> rounds;  // before the answer
    std::vector<TokenId> ids;
    bool stopped = false;  // by a token or a string
  };
  std::vector<Turn> turns;  // of an answered row: one, or each turn's
  bool failed = false;
};

struct ParsedRow {
  // If there is an error: index, line, format, id and session only. For a row that is not valid
  // JSON, the last two if they were read before the syntax error.
  Row row;
  std::optional<RowError> error;
  // The row was answered in an earlier run, and its session goes on.
  std::optional<EarlierAnswer> earlier;
};

// A row with `body`, or with `custom_id` and `url` or `method`, is a row of an OpenAI Batch file.
// `url` and `method` may both be missing, as in the files of some services: then the kind of prompt
// in the body determines the URL. If `lenient`, an unknown or unsupported field becomes a warning
// of the row.
ParsedRow ParseRow(std::string_view text, int64_t index, int64_t line, bool lenient = false,
                   RowPurpose purpose = RowPurpose::kAnswer);

}  // namespace minisgl::batch
