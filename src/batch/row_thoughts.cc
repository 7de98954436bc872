#include "batch/row_thoughts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/sampling_fields.h"

namespace minisgl::batch {
namespace {

constexpr std::array<std::string_view, 7> kReasoningEfforts = {"none", "minimal", "low", "medium",
                                                               "high", "xhigh",   "max"};

bool GivenTwice(const char* field, RowDraft* draft) {
  draft->detail = fmt::format("{} is given twice, under two spellings", field);
  return false;
}

bool TakeFlag(const Json& value, bool* flag) {
  if (value.is_bool()) *flag = value.as_bool();
  return value.is_bool();
}

bool TakeMaxThought(const Json& value, RowDraft* draft) {
  const std::optional<int64_t> count = ExactInteger(value);
  if (!count || *count < 0 || *count > kMaxTokensRange.max) return false;
  Json budget(*count);
  return TakeThoughtBudget(budget, draft);
}

}  // namespace

bool TakeReasoningEffort(Json& value, RowDraft* draft) {
  const std::string& effort = value.as_string();
  if (!draft->row.reasoning_effort.empty()) return GivenTwice("reasoning_effort", draft);
  if (std::find(kReasoningEfforts.begin(), kReasoningEfforts.end(), effort) ==
      kReasoningEfforts.end()) {
    return false;
  }
  draft->row.reasoning_effort = effort;
  return true;
}

// -1 means no limit.
bool TakeThoughtBudget(Json& value, RowDraft* draft) {
  if (draft->row.thought_budget) return GivenTwice("thinking_token_budget", draft);
  draft->row.thought_budget = value.as_int();
  return true;
}

bool TakeThoughtMessage(Json& value, RowDraft* draft) {
  if (value.as_string().size() > kThoughtMessageBytesMax) return false;
  draft->row.thought_message = std::move(value.as_string());
  return true;
}

// As OpenRouter has it. `enabled` false is a budget of 0, for which no template needs a switch.
bool TakeReasoning(Json& value, RowDraft* draft) {
  const std::string field = draft->detail_field;
  bool enabled = true, has_own_budget = false, excludes = false;
  for (auto& [key, member] : value.as_object()) {
    if (member.is_null()) continue;
    bool ok = true;
    const char* expects = "true or false";
    if (key == "max_tokens") {
      expects = "an integer from 0 to 2147483647";
      ok = TakeMaxThought(member, draft);
      has_own_budget = ok;
    } else if (key == "effort") {
      expects = kExpectsEffort;
      ok = member.is_string() && TakeReasoningEffort(member, draft);
    } else if (key == "enabled") {
      ok = TakeFlag(member, &enabled);
    } else if (key == "exclude") {
      ok = TakeFlag(member, &excludes);
    } else {
      draft->unknown.push_back({field + "." + Visible(key), "reasoning"});
    }
    if (ok) continue;
    draft->detail_field = field + "." + key;
    if (draft->detail.empty()) {
      draft->detail = fmt::format("{} must be {} (found {})", draft->detail_field, expects,
                                  Visible(member.Dump(), 60));
    }
    return false;
  }
  draft->row.hide_reasoning = draft->row.hide_reasoning || excludes;
  if (enabled) return true;
  if (has_own_budget) draft->row.thought_budget.reset();
  return TakeMaxThought(Json(0), draft);
}

}  // namespace minisgl::batch
