// The table of all fields of a row: type, range, error text, and the function that stores the
// value. It has two parts: the fields that a row is made of (row_fields.cc), and the rest of other
// programs' requests (foreign_fields.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "minisgl/base/json.h"
#include "minisgl/base/number_range.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::batch {

enum class FieldType : uint8_t { kBool, kInteger, kNumber, kString, kArray, kObject, kAny };

// An unknown member of a field that is an object or an array.
struct UnknownMember {
  std::string name;  // with its place: "messages[0].colour"
  const char* of;    // "a message"
};

// A row under construction.
struct RowDraft {
  Row row;
  std::optional<Json> logprobs;  // a bool or an integer
  std::optional<int32_t> top_logprobs;
  std::optional<bool> add_special_tokens;
  std::optional<int32_t> best_of;
  // Set by a field's `take` if it can say more than `expects`.
  std::string detail;
  std::string detail_field;
  std::vector<UnknownMember> unknown;
  std::optional<bool> add_generation_prompt;
  // What the answer must be, if a field says so. A schema that is a JSON value of the row is copied
  // from the text at `schema_path` (members with dots between them, from the row or its body on).
  std::optional<GrammarText> grammar;
  std::string schema_path;
  bool compact_json = false;  // of a schema: at most one space between the parts of its texts
  bool any_text = false;      // response_format is text
};

// Places where a field is allowed, and the error code of a disallowed value.
enum FieldFlags : uint8_t {
  kAtTop = 1,             // the row itself
  kInSamplingParams = 2,  // its `sampling_params`
  kInChat = 4,            // the body of a Batch row for /v1/chat/completions
  kInCompletion = 8,      // the body of a Batch row for /v1/completions
  kInScored = 32,         // a row to score
  kInEmbedded = 64,       // a row whose texts become vectors, or the body of a Batch row
  kInRanked = 128,        // a row to classify or to rank, or the body of a Batch row
  kUnsupported = 16,      // a disallowed value has code unsupported_field, not invalid_row

  kAnywhere = kAtTop | kInChat | kInCompletion,
};
// Places of fields of messages, of prompts, and of what says how tokens are sampled.
inline constexpr uint8_t kChat = kAtTop | kInChat;
inline constexpr uint8_t kCompletion = kAtTop | kInCompletion;
inline constexpr uint8_t kSampling = kAnywhere | kInSamplingParams;

inline constexpr NumberRange kNoRange;
inline constexpr NumberRange kAnswers = {1, kAnswersMax};  // of `n`

// What becomes of a field. kTaken: it is stored, or checked. kNoEffect: no value of it changes an
// answer. kNoted: a value that asks for what the program does not do is ignored, and said once a
// run. kRefused: such a value is an error of its row.
enum class FieldUse : uint8_t { kTaken, kNoEffect, kNoted, kRefused };

struct RowField {
  const char* name;
  FieldType type;
  // "a string"; null: what the range says, see Expects. Of a field that changes nothing or is
  // ignored: why.
  const char* expects;
  // Stores a value that has the right type and range, and may move out of it. Returns false if the
  // value is invalid after all; then `detail` is set, or `value` is unchanged.
  bool (*take)(Json& value, RowDraft* draft);
  NumberRange range = {};  // of a numeric field
  uint8_t flags = kAnywhere;
  const char* alias_of = nullptr;  // the field that this is another spelling of
  FieldUse use = FieldUse::kTaken;

  std::string_view canonical_name() const { return alias_of == nullptr ? name : alias_of; }
};

// The two parts of the table.
std::span<const RowField> RowFields();
std::span<const RowField> ForeignFields();
// Returns the field `name` of `place` (a flag other than kUnsupported), or null if there is none.
const RowField* FindRowField(std::string_view name, FieldFlags place);
// Returns the field of `place` of which `name` looks like a misspelling; "" if there is none.
std::string_view NearestField(std::string_view name, FieldFlags place);

// Returns what a value of `field` must be, for errors: "a number from 0 to 100".
std::string Expects(const RowField& field);

// True if `value` has the field's type and is in its range.
bool InRange(const RowField& field, const Json& value);

// Returns `value` as an integer if it is one, or if it is a double with an exact integer value
// (2.0, as written by programs whose columns have gaps). Else nullopt.
std::optional<int64_t> ExactInteger(const Json& value);

}  // namespace minisgl::batch
