// A single table of parameters, used to set, show and list them.
#include "chat/chat_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "chat/chat_completion.h"
#include "load/grammar_options.h"
#include "load/sampling.h"
#include "minisgl/base/number_range.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"
#include "minisgl/sampling_fields.h"

namespace minisgl::chat {

using load::AnswerSettings;

namespace {

constexpr size_t kChoicesShownMax = 400;  // bytes

struct Parameter {
  std::string_view name;
  // Returns false if `value` is out of range.
  std::function<bool(std::string_view value, AnswerSettings*)> set;
  std::function<std::string(const AnswerSettings&)> show;
  std::string expects;  // "a number from 0 to 1"
};

// A parameter of the table of sampling parameters; `note` follows its range in errors.
template <typename Value, typename Range>
Parameter Sampled(const SamplingField<Value, Range>& field, std::string_view note = "") {
  using Number = std::conditional_t<std::is_integral_v<Value>, int64_t, Value>;
  return {field.name,
          [field](std::string_view text, AnswerSettings* settings) {
            const std::optional<Number> value = ParseNumber<Number>(text);
            if (!value || !field.range.Holds(*value)) return false;
            settings->sampling.*field.param = static_cast<Value>(*value);
            return true;
          },
          [field](const AnswerSettings& settings) {
            return fmt::format("{}", settings.sampling.*field.param);
          },
          Describe(field.range).append(note)};
}

bool SetSeed(std::string_view text, AnswerSettings* settings) {
  const std::optional<uint64_t> value = ParseNumber<uint64_t>(text);
  if (value) settings->sampling.seed = *value;
  return value.has_value();
}

bool SetMaxTokens(std::string_view text, AnswerSettings* settings) {
  if (text == "auto") {
    settings->max_tokens = -1;
    return true;
  }
  const std::optional<int64_t> value = ParseNumber<int64_t>(text);
  if (!value || !kMaxTokensRange.Holds(*value)) return false;
  settings->max_tokens = *value;
  return true;
}

std::string ShowMaxTokens(const AnswerSettings& settings) {
  return settings.max_tokens < 0 ? "auto" : fmt::format("{}", settings.max_tokens);
}

bool SetStop(std::string_view text, AnswerSettings* settings) {
  settings->stop.clear();
  if (text != "none") settings->stop.emplace_back(text);
  return true;
}

std::string ShowStop(const AnswerSettings& settings) {
  std::string shown;
  for (const std::string& stop : settings.stop) {
    if (!shown.empty()) shown += ", ";
    shown += '"' + Visible(stop) + '"';
  }
  return shown.empty() ? "none" : shown;
}

bool SetIgnoreEos(std::string_view text, AnswerSettings* settings) {
  const bool on = text == "on" || text == "true" || text == "1";
  if (!on && text != "off" && text != "false" && text != "0") return false;
  settings->ignore_eos = on;
  return true;
}

bool SetThoughtBudget(std::string_view text, AnswerSettings* settings) {
  const std::optional<int64_t> value =
      text == "none" ? std::optional<int64_t>(-1) : ParseNumber<int64_t>(text);
  if (!value || !FromMinusOne(kMaxTokensRange).Holds(*value)) return false;
  settings->thought_budget = *value;
  return true;
}

std::string ShowThoughtBudget(const AnswerSettings& settings) {
  return settings.thought_budget < 0 ? "none" : fmt::format("{}", settings.thought_budget);
}

bool SetThoughtMessage(std::string_view text, AnswerSettings* settings) {
  if (text.size() > kThoughtMessageBytesMax) return false;
  settings->thought_message = text == "none" ? "" : text;
  return true;
}

std::string ShowThoughtMessage(const AnswerSettings& settings) {
  const std::string& text = settings.thought_message;
  return text.empty() ? "none" : '"' + Visible(text, 400) + '"';
}

const std::vector<Parameter>& Parameters() {
  static const std::vector<Parameter> kParameters = {
      Sampled(kTemperature, ", 0 for greedy"),
      Sampled(kTopK, ", 0 for all"),
      Sampled(kTopP),
      Sampled(kMinP),
      Sampled(kRepetitionPenalty, ", 1 for none"),
      Sampled(kPresencePenalty),
      Sampled(kFrequencyPenalty),
      {"seed", SetSeed, [](const AnswerSettings& s) { return fmt::format("{}", s.sampling.seed); },
       fmt::format("an integer from 0 to {}", std::numeric_limits<uint64_t>::max())},
      {"max_tokens", SetMaxTokens, ShowMaxTokens, Describe(kMaxTokensRange) + ", or auto"},
      Sampled(kMinTokens),
      {"stop", SetStop, ShowStop, "a text, or none"},
      {"ignore_eos", SetIgnoreEos,
       [](const AnswerSettings& s) { return std::string(s.ignore_eos ? "on" : "off"); },
       "on or off"},
      {"think_budget", SetThoughtBudget, ShowThoughtBudget,
       "an integer from 0 to 2147483647, or none"},
      {"think_budget_message", SetThoughtMessage, ShowThoughtMessage, "a text, or none"},
  };
  return kParameters;
}

// What an answer must be: parameters of which at most one is set.
struct GrammarParameter {
  std::string_view name;
  GrammarKind kind;
  const char* expects;
};
constexpr GrammarParameter kGrammarParameters[] = {
    {"json_schema", GrammarKind::kJsonSchema, "a file, a schema in braces, or none"},
    {"regex", GrammarKind::kRegularExpression, "a regular expression, or none"},
    {"choice", GrammarKind::kChoice, "none; one of several texts is /set regex yes|no"},
    {"grammar", GrammarKind::kGbnf, "a file, a text with ::=, or none"},
};

// The name of a file without the quotes that a shell would take off.
std::string_view Unquoted(std::string_view name) {
  const bool quoted = name.size() > 2 && (name.front() == '"' || name.front() == '\'') &&
                      name.back() == name.front();
  return quoted ? name.substr(1, name.size() - 2) : name;
}

constexpr bool IsInFile(GrammarKind kind) {
  return kind == GrammarKind::kJsonSchema || kind == GrammarKind::kGbnf;
}

Status SetGrammar(const GrammarParameter& parameter, std::string_view value,
                  AnswerSettings* settings) {
  load::AnswerGrammar grammar;
  if (value == "none") {
    settings->grammar = grammar;
    return Status();
  }
  if (value.empty() || parameter.kind == GrammarKind::kChoice) {
    return UsageError("{} must be {} (found \"{}\")", parameter.name, parameter.expects,
                      Visible(value));
  }
  if (IsInFile(parameter.kind)) {
    MINISGL_ASSIGN_OR_RETURN(
        grammar, load::ReadGrammarFile(parameter.kind, ExpandHome(std::string(Unquoted(value)))));
  } else {
    grammar.text =
        std::make_shared<const GrammarText>(GrammarText{parameter.kind, std::string(value), {}});
  }
  MINISGL_RETURN_IF_ERROR(load::CompileAndWarn(grammar).status());
  settings->grammar = std::move(grammar);
  return Status();
}

std::string ShowGrammar(const GrammarParameter& parameter, const load::AnswerGrammar& grammar) {
  if (grammar.text == nullptr || grammar.text->kind != parameter.kind) return "none";
  if (!grammar.file.empty()) return Visible(grammar.file, 400);
  if (parameter.kind != GrammarKind::kChoice) return Visible(grammar.text->text, 400);
  std::string shown;
  for (const std::string& choice : grammar.text->choices) {
    shown += fmt::format("{}\"{}\"", shown.empty() ? "" : ", ", Visible(choice));
    if (shown.size() > kChoicesShownMax) return shown + ", ...";
  }
  return shown;
}

}  // namespace

AnswerSettings MakeChatSettings(const load::SamplingOptions& options,
                                const GenerationConfig& generation, uint64_t drawn_seed) {
  AnswerSettings settings = load::ResolveSamplingDefaults(options, generation);
  if (!options.seed) settings.sampling.seed = drawn_seed;
  return settings;
}

Status SetParameter(std::string_view name, std::string_view value, AnswerSettings* settings) {
  std::string spelled(name);
  std::replace(spelled.begin(), spelled.end(), '-', '_');
  for (const GrammarParameter& parameter : kGrammarParameters) {
    if (parameter.name == spelled) return SetGrammar(parameter, value, settings);
  }
  std::string names;
  for (const Parameter& parameter : Parameters()) {
    if (parameter.name == spelled) {
      if (!value.empty() && parameter.set(value, settings)) return Status();
      return UsageError("{} must be {} (found \"{}\")", parameter.name, parameter.expects,
                        Visible(value));
    }
    if (!names.empty()) names += ", ";
    names += parameter.name;
  }
  for (const GrammarParameter& parameter : kGrammarParameters) {
    names += ", ";
    names += parameter.name;
  }
  return UsageError("there is no parameter \"{}\"; there are {}", Visible(name), names);
}

std::vector<std::string> ParameterNames() {
  std::vector<std::string> names;
  for (const Parameter& parameter : Parameters()) names.emplace_back(parameter.name);
  for (const GrammarParameter& parameter : kGrammarParameters) names.emplace_back(parameter.name);
  return names;
}

std::vector<std::string> FileParameterNames() {
  std::vector<std::string> names;
  for (const GrammarParameter& parameter : kGrammarParameters) {
    if (IsInFile(parameter.kind)) names.emplace_back(parameter.name);
  }
  return names;
}

std::string ParameterRanges() {
  std::string list;
  for (const Parameter& parameter : Parameters()) {
    list += fmt::format("  {:<20} {}\n", parameter.name, parameter.expects);
  }
  for (const GrammarParameter& parameter : kGrammarParameters) {
    list += fmt::format("  {:<20} {}\n", parameter.name, parameter.expects);
  }
  list.pop_back();
  return list;
}

std::string ListParameters(const AnswerSettings& settings) {
  std::string list;
  for (const Parameter& parameter : Parameters()) {
    list += fmt::format("  {:<20} {}\n", parameter.name, parameter.show(settings));
  }
  for (const GrammarParameter& parameter : kGrammarParameters) {
    list += fmt::format("  {:<20} {}\n", parameter.name, ShowGrammar(parameter, settings.grammar));
  }
  list.pop_back();
  return list;
}

}  // namespace minisgl::chat
