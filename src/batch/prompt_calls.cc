// How the calls of tools in the answers to a row are read, and what such answers must be.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "batch/call_notation.h"
#include "batch/row_conversation.h"
#include "batch/row_prompt.h"
#include "batch/row_tools.h"
#include "load/user_tools.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

RowError Unforced(const Row& row, const std::string& why) {
  const bool by_choice = row.tool_settings.use == ToolUse::kRequired;
  return {"unsupported_field",
          fmt::format("{}, but {}",
                      by_choice ? "tool_choice asks for a call" : "a function is strict", why),
          by_choice ? "tool_choice" : "tools"};
}

bool IsStrict(const Json& function) {
  const Json* const strict = function.Find("strict");
  return strict != nullptr && *strict == Json(true);
}

// The schema of a function's arguments as one of an object; "" if it allows any.
std::optional<std::string> SchemaOf(const Json& function) {
  const Json* const parameters = function.Find("parameters");
  if (parameters == nullptr || parameters->is_null() || *parameters == Json(true)) return "";
  if (!parameters->is_object()) return std::nullopt;
  if (parameters->as_object().empty()) return "";
  Json schema = *parameters;
  const Json* const type = schema.Find("type");
  const Json object("object");
  const bool is_list = type != nullptr && type->is_array();
  const bool has_object = type == nullptr || *type == object ||
                          (is_list && std::find(type->as_array().begin(), type->as_array().end(),
                                                object) != type->as_array().end());
  if (!has_object) return std::nullopt;
  schema.Set("type", object);
  return schema.Dump();
}

// True if what the answer to the row may be follows from its tools.
bool IsConstrained(const Row& row) {
  const ToolSettings& settings = row.tool_settings;
  if (settings.use == ToolUse::kRequired || !settings.allowed.empty()) return true;
  return std::any_of(row.tools.as_array().begin(), row.tools.as_array().end(),
                     [](const Json& tool) {
                       const Json* const function = FunctionOf(tool);
                       return function != nullptr && IsStrict(*function);
                     });
}

// The functions that may be called. With `all_strict` each by its schema.
std::optional<RowError> FunctionsOf(const Row& row, bool all_strict,
                                    std::vector<CallFunction>* functions) {
  const std::set<std::string> allowed(row.tool_settings.allowed.begin(),
                                      row.tool_settings.allowed.end());
  std::set<std::string> seen;
  for (const Json& tool : row.tools.as_array()) {
    const Json* const function = FunctionOf(tool);
    if (function == nullptr) continue;
    const std::string& name = function->Find("name")->as_string();
    const bool is_allowed = allowed.empty() || allowed.contains(name);
    if (!is_allowed || !seen.insert(name).second) continue;
    std::optional<std::string> schema = "";
    if (all_strict || IsStrict(*function)) schema = SchemaOf(*function);
    if (!schema) {
      return RowError{"invalid_grammar",
                      fmt::format("the function {}: parameters must be a schema of an object",
                                  Visible(name, 100)),
                      "tools"};
    }
    functions->push_back({name, std::move(*schema)});
  }
  return std::nullopt;
}

}  // namespace

std::optional<RowError> PromptBuilder::SetCalls(Row* row) const {
  // The turns of a row are read alike.
  const bool is_new = !std::exchange(row->has_call_settings, true);
  if (!is_new || !IsForTemplate(*row) || !HasTools(*row)) return std::nullopt;
  const ToolSettings& settings = row->tool_settings;
  if (tool_dialect_ == ToolDialect::kNone) {
    const std::string advice = fmt::format(
        "the chat template tells of no dialect in which tools are called ({} names "
        "one)",
        SettingName(Setting::kToolDialect));
    if (IsConstrained(*row)) return Unforced(*row, advice);
    if (!text_->tool_dialect && MissingSwitch(*text_, "tools").empty()) {
      row->notes.push_back({LogLevel::kInfo, "calls of tools stay text: " + advice});
    }
    return std::nullopt;
  }
  if (settings.reads_calls) {
    row->calls = call_rules_.Share(
        {tool_dialect_, row->tools, /*only_first=*/settings.is_named || !settings.parallel});
  }
  return IsConstrained(*row) ? ConstrainCalls(row) : std::nullopt;
}

bool PromptBuilder::IsForTemplate(const Row& row) const {
  return row.kind == PromptKind::kMessages || (options_.chat && IsRawPrompt(row));
}

std::optional<RowError> PromptBuilder::OfferTools(Row* row) const {
  const load::UserTools* const user = options_.tools;
  const ToolSettings& settings = row->tool_settings;
  const bool may_call = user != nullptr && IsForTemplate(*row) && settings.use != ToolUse::kNone &&
                        settings.reads_calls &&
                        (row->format == RowFormat::kOwn || row->format == RowFormat::kBatchChat);
  if (!may_call) return std::nullopt;
  if (row->tools.is_null()) row->tools = user->definitions();
  const std::vector<std::string> names = ToolNames(*row);
  const bool runs = std::any_of(names.begin(), names.end(), [user](const std::string& name) {
    return user->Find(name) != nullptr;
  });
  if (!runs) return std::nullopt;
  if (row->n > 1) {
    return RowError{
        "unsupported_field",
        fmt::format("n must be 1 where calls of tools are run: the conversation goes on with one "
                    "answer (found {})",
                    row->n),
        "n"};
  }
  if (row->num_prompt_logprobs >= 0 || row->start == AnswerStart::kNothing) {
    const bool has_logprobs = row->num_prompt_logprobs >= 0;
    return RowError{"unsupported_field",
                    fmt::format("{} where calls of tools are run",
                                has_logprobs ? "prompt_logprobs is not written"
                                             : "add_generation_prompt must be true"),
                    has_logprobs ? "prompt_logprobs" : "add_generation_prompt"};
  }
  row->runs_calls = true;
  return std::nullopt;
}

std::optional<RowError> PromptBuilder::ConstrainCalls(Row* row) const {
  const ToolSettings& settings = row->tool_settings;
  const bool is_required = settings.use == ToolUse::kRequired;
  std::optional<CallNotation> notation = NotationOf(tool_dialect_, *text_->tokenizer);
  if (!notation) {
    return Unforced(*row,
                    fmt::format("calls in the dialect {} are not forced", NameOf(tool_dialect_)));
  }
  const bool has_form = row->grammar && row->grammar->text != nullptr;
  if (is_required && has_form) {
    return InvalidRow(fmt::format("tool_choice and {} both say what the answer must be; give one "
                                  "of them",
                                  row->grammar_field),
                      "tool_choice");
  }
  CallGrammar grammar;
  grammar.notation = std::move(*notation);
  if (auto error = FunctionsOf(*row, is_required, &grammar.functions)) return error;
  grammar.only_one = settings.is_named || !settings.parallel;
  grammar.may_be_text = !is_required;
  if (!is_required) {
    grammar.text = row->grammar ? row->grammar->text : options_.defaults.grammar.text;
  }
  auto text = std::make_shared<GrammarText>();
  text->kind = GrammarKind::kCalls;
  text->calls = std::make_shared<const CallGrammar>(std::move(grammar));
  row->grammar = load::AnswerGrammar{std::move(text), ""};
  row->grammar_field = is_required ? "tool_choice" : "tools";
  return std::nullopt;
}

}  // namespace minisgl::batch
