// A row of a prompt file: one JSON value, checked field by field before anything is asked of the
// model.
//
// Every field stands in one table (row_fields.cc) with its type, its range and the words of its
// error; what is not in the table is an error of the row that names it. Rows are hostile: parsing
// never crashes and never affects another row. Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/sampling_params.h"
#include "minisgl/text/reasoning.h"

namespace minisgl::batch {

inline constexpr size_t kRowBytesMax = size_t{64} << 20;
// Upper bound on the memory of a row's JSON values, as a value of two bytes becomes one of forty:
// 1.6 million token ids, or 150,000 messages.
inline constexpr uint64_t kRowJsonMemoryMax = uint64_t{64} << 20;
inline constexpr int32_t kAnswersMax = 128;  // of `n`
inline constexpr int32_t kTopLogprobsMax = 20;

enum class PromptKind : uint8_t { kNone, kText, kMessages, kTokenIds };

// How a row came, and so how it is answered: as our own rows are, or as a line of an OpenAI Batch
// file for one of its URLs.
enum class RowFormat : uint8_t { kOwn, kBatchChat, kBatchCompletion };

// Why a row has no answer. `code` is one of cli.md's; `field` is "" where no single field is at
// fault.
struct RowError {
  std::string code;
  std::string message;
  std::string field;
};
// What a row says that cannot be done; `field`: where, if one member is to blame.
RowError InvalidRow(std::string message, std::string field = "");

struct Row {
  int64_t index = 0;  // place in the input, from 0
  int64_t line = 0;   // of the file, from 1
  Json id;            // a string, a number, or null for none
  RowFormat format = RowFormat::kOwn;
  std::optional<std::string> model;  // echoed in the answer

  PromptKind kind = PromptKind::kNone;
  std::string prompt;                     // kText
  Json messages;                          // kMessages: contents are strings or null
  std::vector<TokenId> prompt_token_ids;  // kTokenIds: not negative

  std::optional<double> temperature, top_p, min_p;
  std::optional<int32_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<uint64_t> seed;
  bool any_seed = false;              // -1 was given, which is as none
  std::optional<int64_t> max_tokens;  // -1: no limit
  std::optional<int32_t> min_tokens;
  std::optional<std::vector<std::string>> stop;
  std::vector<TokenId> stop_token_ids;
  std::optional<bool> ignore_eos;
  std::optional<int32_t> num_logprobs;  // as SamplingParams::num_logprobs
  int32_t n = 1;
  int32_t priority = 0;
  std::optional<double> timeout_s;
  bool add_special_tokens = true;
  bool return_token_ids = false;
  Json tools, documents, template_kwargs;  // null where not given
  std::string reasoning_effort;            // "" where not given
  // Of the answers, once there is a prompt: what of their text is reasoning, and whether it is
  // left out.
  ReasoningTags reasoning;
  bool hide_reasoning = false;
  bool with_metrics = false;            // its answers say how long they took
  std::optional<std::string> metadata;  // its JSON as it stands in the row, on one line
  std::vector<std::string> warnings;
};

struct ParsedRow {
  // Where there is an error: index, line, format, and the id; of a row that is no valid JSON, the
  // id that was read before its fault.
  Row row;
  std::optional<RowError> error;
};

// A row with `body`, or with `custom_id` and `url` or `method`, is one of an OpenAI Batch file.
// Both may be left out, as some services' files do: then the body's prompt says which URL is meant.
// `lenient`: what is unknown or unsupported becomes a warning of the row.
ParsedRow ParseRow(std::string_view text, int64_t index, int64_t line, bool lenient = false);

}  // namespace minisgl::batch
