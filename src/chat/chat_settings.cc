// A single table of parameters, used to set, show and list them.
#include "chat/chat_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "load/sampling.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

template <typename Number>
std::optional<Number> Parse(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Parameter {
  std::string_view name;
  // Returns false if `value` is out of range.
  std::function<bool(std::string_view value, ChatSettings*)> set;
  std::function<std::string(const ChatSettings&)> show;
  std::string_view range;
};

Parameter Number(std::string_view name, double SamplingParams::*field, double low, double high,
                 bool open, std::string_view range) {
  return {name,
          [=](std::string_view text, ChatSettings* settings) {
            const std::optional<double> value = Parse<double>(text);
            if (!value || !std::isfinite(*value) || *value > high) return false;
            if (open ? *value <= low : *value < low) return false;
            settings->sampling.*field = *value;
            return true;
          },
          [=](const ChatSettings& settings) { return fmt::format("{}", settings.sampling.*field); },
          range};
}

Parameter Count(std::string_view name, int32_t SamplingParams::*field, std::string_view range) {
  return {name,
          [=](std::string_view text, ChatSettings* settings) {
            const std::optional<int32_t> value = Parse<int32_t>(text);
            if (!value || *value < 0) return false;
            settings->sampling.*field = *value;
            return true;
          },
          [=](const ChatSettings& settings) { return fmt::format("{}", settings.sampling.*field); },
          range};
}

bool SetSeed(std::string_view text, ChatSettings* settings) {
  const std::optional<uint64_t> value = Parse<uint64_t>(text);
  if (value) settings->seed = *value;
  return value.has_value();
}

bool SetMaxTokens(std::string_view text, ChatSettings* settings) {
  if (text == "auto") {
    settings->max_tokens = -1;
    return true;
  }
  const std::optional<int32_t> value = Parse<int32_t>(text);
  if (!value || *value < 1) return false;
  settings->max_tokens = *value;
  return true;
}

std::string ShowMaxTokens(const ChatSettings& settings) {
  return settings.max_tokens < 0 ? "auto" : fmt::format("{}", settings.max_tokens);
}

bool SetStop(std::string_view text, ChatSettings* settings) {
  settings->stop.clear();
  if (text != "none") settings->stop.emplace_back(text);
  return true;
}

std::string ShowStop(const ChatSettings& settings) {
  std::string shown;
  for (const std::string& stop : settings.stop) {
    if (!shown.empty()) shown += ", ";
    shown += '"' + Visible(stop) + '"';
  }
  return shown.empty() ? "none" : shown;
}

bool SetIgnoreEos(std::string_view text, ChatSettings* settings) {
  const bool on = text == "on" || text == "true" || text == "1";
  if (!on && text != "off" && text != "false" && text != "0") return false;
  settings->ignore_eos = on;
  return true;
}

const std::vector<Parameter>& Parameters() {
  using S = SamplingParams;
  static const std::vector<Parameter> kParameters = {
      Number("temperature", &S::temperature, 0, 100, false, "a number from 0 (greedy) to 100"),
      Count("top_k", &S::top_k, "a whole number, 0 for all"),
      Number("top_p", &S::top_p, 0, 1, true, "a number above 0, at most 1"),
      Number("min_p", &S::min_p, 0, 1, false, "a number from 0 to 1"),
      Number("repetition_penalty", &S::repetition_penalty, 0, 100, true,
             "a number above 0, 1 for none"),
      Number("presence_penalty", &S::presence_penalty, -2, 2, false, "a number from -2 to 2"),
      Number("frequency_penalty", &S::frequency_penalty, -2, 2, false, "a number from -2 to 2"),
      {"seed", SetSeed, [](const ChatSettings& s) { return fmt::format("{}", s.seed); },
       "a whole number"},
      {"max_tokens", SetMaxTokens, ShowMaxTokens, "a whole number from 1, or auto"},
      Count("min_tokens", &S::min_tokens, "a whole number"),
      {"stop", SetStop, ShowStop, "a text, or none"},
      {"ignore_eos", SetIgnoreEos,
       [](const ChatSettings& s) { return std::string(s.ignore_eos ? "on" : "off"); }, "on or off"},
  };
  return kParameters;
}

}  // namespace

ChatSettings MakeChatSettings(const load::SamplingOptions& options,
                              const GenerationConfig& generation, uint64_t drawn_seed) {
  load::SamplingDefaults defaults = load::ResolveSamplingDefaults(options, generation);
  ChatSettings settings;
  settings.sampling = std::move(defaults.params);
  settings.seed = options.seed.value_or(drawn_seed);
  settings.max_tokens = defaults.max_tokens.value_or(-1);
  settings.stop = std::move(defaults.stop);
  settings.ignore_eos = defaults.ignore_eos;
  return settings;
}

Status SetParameter(std::string_view name, std::string_view value, ChatSettings* settings) {
  std::string spelled(name);
  std::replace(spelled.begin(), spelled.end(), '-', '_');
  std::string names;
  for (const Parameter& parameter : Parameters()) {
    if (parameter.name == spelled) {
      if (!value.empty() && parameter.set(value, settings)) return Status();
      return UsageError("{} must be {} (found \"{}\")", parameter.name, parameter.range,
                        Visible(value));
    }
    if (!names.empty()) names += ", ";
    names += parameter.name;
  }
  return UsageError("there is no parameter \"{}\"; there are {}", Visible(name), names);
}

std::vector<std::string> ParameterNames() {
  std::vector<std::string> names;
  for (const Parameter& parameter : Parameters()) names.emplace_back(parameter.name);
  return names;
}

std::string ListParameters(const ChatSettings& settings) {
  std::string list;
  for (const Parameter& parameter : Parameters()) {
    list += fmt::format("  {:<20} {}\n", parameter.name, parameter.show(settings));
  }
  list.pop_back();
  return list;
}

}  // namespace minisgl::chat
