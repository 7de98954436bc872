// The table of every field that a row may hold: type, range, the words of its error, and where its
// value goes.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "minisgl/base/json.h"

namespace minisgl::batch {

enum class FieldType : uint8_t { kBool, kInteger, kNumber, kString, kArray, kObject, kAny };

// A row while its fields are read.
struct RowDraft {
  Row row;
  std::optional<Json> logprobs;  // a bool or an integer
  std::optional<int32_t> top_logprobs;
  std::optional<bool> add_special_tokens;
  std::optional<int32_t> best_of;
  bool uses_tools = true;  // tool_choice
  // Set by a field's `take` that can say more than its `expects`.
  std::string detail;
  std::string detail_field;
  std::vector<std::string> unknown;  // unknown fields of messages
};

// Of the numbers that a field takes; without bounds for the rest.
struct FieldRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // `low` itself is out of range
};

// Where a field may stand, and what another value of it is called.
enum FieldFlags : uint8_t {
  kAtTop = 1,             // in the row itself
  kInSamplingParams = 2,  // in its `sampling_params`
  kInChat = 4,            // in the body of a Batch row for /v1/chat/completions
  kInCompletion = 8,      // in one for /v1/completions
  kUnsupported = 16,      // other values are code unsupported_field, not invalid_row

  kAnywhere = kAtTop | kInChat | kInCompletion,
};

struct RowField {
  const char* name;
  FieldType type;
  const char* expects;  // "a number from 0 to 100"
  // Stores a value that has the type and is in range, and may move out of it. False if it is not
  // what is expected after all; then `detail` is set, or the value is as it was.
  bool (*take)(Json& value, RowDraft* draft);
  FieldRange range = {};
  uint8_t flags = kAnywhere;
  const char* alias_of = nullptr;  // the name that it is another spelling of

  std::string_view canonical_name() const { return alias_of == nullptr ? name : alias_of; }
};

std::span<const RowField> RowFields();
// The field that `name` spells in `place`, one of the first four flags; null where there is none.
const RowField* FindRowField(std::string_view name, FieldFlags place);
// The field of `place` that `name` is a misspelling of; "" where it looks like none.
std::string_view NearestField(std::string_view name, FieldFlags place);

// Whether `value` has the field's type and is in its range.
bool InRange(const RowField& field, const Json& value);

// `value` as an integer: one itself, or a double that is one and exact, as programs whose columns
// hold gaps write 2.0. Else nothing.
std::optional<int64_t> ExactInteger(const Json& value);

}  // namespace minisgl::batch
