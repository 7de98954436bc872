#include "load/sampling.h"

#include <fmt/core.h>

#include <random>
#include <string>
#include <vector>

#include "minisgl/base/log.h"
#include "minisgl/sampling_fields.h"
#include "minisgl/text/reasoning.h"

namespace minisgl::load {
namespace {

std::optional<double> ModelTemperature(const GenerationConfig& generation) {
  if (generation.do_sample.has_value() && !*generation.do_sample) return 0.0;
  if (generation.temperature) return generation.temperature;
  return generation.do_sample ? std::optional<double>(1.0) : std::nullopt;
}

AnswerOverrides OverridesOf(const GenerationConfig& generation) {
  AnswerOverrides overrides{generation};
  overrides.temperature = ModelTemperature(generation);
  overrides.max_tokens = generation.max_new_tokens;
  return overrides;
}

AnswerOverrides OverridesOf(const SamplingOptions& options) {
  AnswerOverrides overrides{options};
  overrides.max_tokens = options.max_tokens;
  if (!options.stop.empty()) overrides.stop = options.stop;
  if (options.ignore_eos) overrides.ignore_eos = true;
  overrides.thought_budget = options.thought_budget;
  overrides.thought_message = options.thought_message;
  if (options.grammar.text != nullptr) overrides.grammar = options.grammar;
  return overrides;
}

// Returns the note about the model's settings that `own` leaves open and that differ from the
// neutral ones; "" if there are none.
std::string DescribeOverrides(const AnswerOverrides& model, const AnswerOverrides& own) {
  const SamplingParams neutral;
  std::string text;
  const auto add = [&text](const char* name, const auto& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  const auto add_field = [&](const auto& field) {
    const auto& value = model.*field.override_value;
    if (own.*field.override_value || !value || *value == neutral.*field.param) return;
    add(field.name, *value);
  };
  add_field(kTemperature);
  add_field(kTopK);
  add_field(kTopP);
  add_field(kMinP);
  add_field(kRepetitionPenalty);
  if (model.max_tokens && !own.max_tokens) add("max_tokens", *model.max_tokens);
  if (text.empty()) return text;
  return fmt::format(
      "defaults of generation_config.json: {} (--sampling-defaults neutral leaves them out)", text);
}

// Options hold what the shell gives: it leaves the escapes of other languages as they are.
void WarnOfEscapes(const std::vector<std::string>& stop) {
  for (const std::string& text : stop) {
    for (const char letter : {'n', 't', 'r'}) {
      if (text.find(std::string{'\\', letter}) == std::string::npos) continue;
      Log(LogLevel::kWarning,
          fmt::format("--stop '{0}' holds a backslash and the letter {1}; most shells make $'{0}' "
                      "of it the character",
                      text, letter));
      break;
    }
  }
}

}  // namespace

SamplingDefaults ResolveSamplingDefaults(const SamplingOptions& options,
                                         const GenerationConfig& generation) {
  AnswerOverrides model;
  if (options.sampling_defaults == SamplingSource::kModel) model = OverridesOf(generation);
  const AnswerOverrides given = OverridesOf(options);
  SamplingDefaults defaults{Apply(Apply(AnswerSettings(), model), given), "", "", "", model};
  if (given.min_tokens) defaults.min_tokens_origin = "--min-tokens";
  if (model.max_tokens) defaults.max_tokens_origin = kGenerationConfig;
  if (given.max_tokens) defaults.max_tokens_origin = "--max-tokens";
  defaults.note = DescribeOverrides(model, given);
  for (const auto* field : {&kTemperature, &kTopP, &kMinP, &kRepetitionPenalty}) {
    if (given.*field->override_value) (defaults.from_model.*field->override_value).reset();
  }
  if (given.top_k) defaults.from_model.top_k.reset();
  defaults.from_model.max_tokens.reset();
  return defaults;
}

std::string NoteForAnswer(const SamplingDefaults& defaults, const AnswerOverrides& own) {
  return DescribeOverrides(defaults.from_model, own);
}

std::string NoteOfTemperature(double temperature) {
  if (temperature <= kUsualTemperatureMax) return "";
  return fmt::format("at a temperature of {} answers are nearly random; 0.2 to 1 is usual",
                     temperature);
}

Status CheckSamplingOptions(const SamplingOptions& options) {
  MINISGL_RETURN_IF_ERROR(CheckGrammarOptions(options.grammar_options));
  WarnOfEscapes(options.stop);
  if (const std::string note = NoteOfTemperature(options.temperature.value_or(0)); !note.empty()) {
    Log(LogLevel::kInfo, note + " (-t is the temperature; --threads N sets the threads)");
  }
  if (options.thought_message && options.thought_budget.value_or(-1) <= 0) {
    Log(LogLevel::kInfo,
        "--think-budget-message is used only with a budget of reasoning above 0 (--think-budget)");
  }
  if (options.thought_message && options.thought_message->size() > kThoughtMessageBytesMax) {
    return UsageError("--think-budget-message may have {} bytes (found {})",
                      kThoughtMessageBytesMax, options.thought_message->size());
  }
  const int64_t max_tokens = options.max_tokens.value_or(-1);
  if (max_tokens < 0 || options.min_tokens.value_or(0) <= max_tokens) return Status();
  return UsageError("--min-tokens is more than --max-tokens (found {} and {})", *options.min_tokens,
                    max_tokens);
}

void WarnOfThoughtBudget(const SamplingOptions& options, const TextModel& text) {
  if (options.thought_budget.value_or(-1) < 0) return;
  std::vector<TokenId> kept;
  if (text.chat_template != nullptr &&
      !FindReasoningTags(*text.chat_template, *text.tokenizer, &kept).none()) {
    return;
  }
  Log(LogLevel::kWarning,
      "--think-budget has no effect: the model's chat template marks no reasoning");
}

Status TakeGrammar(SamplingOptions* options) {
  MINISGL_ASSIGN_OR_RETURN(options->grammar, ReadGrammar(options->grammar_options));
  if (options->grammar.text == nullptr) return Status();
  return CompileAndWarn(options->grammar).status();
}

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 1;
}

}  // namespace minisgl::load
