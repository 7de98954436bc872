// See gguf_metadata.h.
#include "weights/gguf_metadata.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"

namespace minisgl::weights {
namespace {

std::string Shown(const GgufValue& value) {
  if (const auto integer = value.AsInt()) return fmt::format("{}", *integer);
  if (const auto number = value.AsDouble()) return fmt::format("{}", *number);
  if (const auto text = value.AsString()) return fmt::format("\"{}\"", Visible(*text, 60));
  return value.type() == GgufType::kArray ? fmt::format("a list of {}", value.count())
                                          : "another type";
}

// The number with the fewest digits that is nearest to `value`.
Json Shortest(float value) {
  const Result<Json> shortest = ParseJson(fmt::format("{}", value));
  return shortest.ok() ? *shortest : Json(double{value});
}

}  // namespace

std::string GgufMetadata::KeyOf(std::string_view name) const {
  return fmt::format("{}.{}", architecture_, name);
}

const GgufValue* GgufMetadata::Find(std::string_view name) const {
  return header_.Find(KeyOf(name));
}

void GgufMetadata::FailWith(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void GgufMetadata::Fail(std::string_view name, std::string_view wanted) {
  const GgufValue* const value = Find(name);
  FailWith(BadInput("key \"{}\": {} (found {})", Visible(KeyOf(name), 100), wanted,
                    value == nullptr ? "nothing" : Shown(*value)));
}

std::optional<int64_t> GgufMetadata::OptionalInt(std::string_view name, IntRange range) {
  const GgufValue* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number = value->AsInt();
  if (value->type() == GgufType::kArray) {
    for (const GgufValue& element : value->Elements(kLayersRange.max)) {
      const std::optional<int64_t> next = element.AsInt();
      if (number && number != next) {
        Fail(name, "one number for all layers is supported for this architecture");
        return std::nullopt;
      }
      number = next;
      if (!number) break;
    }
  }
  if (!number || !range.Holds(*number)) {
    Fail(name, fmt::format("an integer from {} to {} is needed", range.min, range.max));
    return std::nullopt;
  }
  return number;
}

int64_t GgufMetadata::Int(std::string_view name, IntRange range, std::optional<int64_t> fallback) {
  const std::optional<int64_t> number = OptionalInt(name, range);
  if (number) return *number;
  if (!fallback)
    Fail(name, fmt::format("an integer from {} to {} is needed", range.min, range.max));
  return fallback.value_or(range.min);
}

std::vector<int64_t> GgufMetadata::IntOfLayers(std::string_view name, int64_t num_layers,
                                               IntRange range) {
  const GgufValue* const value = Find(name);
  std::vector<int64_t> numbers;
  if (value != nullptr && value->type() == GgufType::kArray) {
    for (const GgufValue& element : value->Elements(static_cast<uint64_t>(num_layers) + 1)) {
      // Truth values count as 0 and 1.
      const std::optional<bool> truth = element.AsBool();
      numbers.push_back(truth ? *truth : element.AsInt().value_or(range.min - 1));
    }
  } else {
    numbers.assign(static_cast<size_t>(num_layers), Int(name, range));
  }
  const bool fits = std::all_of(numbers.begin(), numbers.end(),
                                [&](int64_t number) { return range.Holds(number); });
  if (std::ssize(numbers) != num_layers || !fits) {
    Fail(name, fmt::format("an integer from {} to {} for each of {} layers is needed", range.min,
                           range.max, num_layers));
  }
  numbers.resize(static_cast<size_t>(num_layers), range.min);
  return numbers;
}

Json GgufMetadata::Number(std::string_view name) {
  const GgufValue* const value = Find(name);
  if (value == nullptr) return Json();
  if (const auto integer = value->AsInt()) return Json(*integer);
  const std::optional<double> number = value->AsDouble();
  if (!number || !std::isfinite(*number)) {
    Fail(name, "a finite number is needed");
    return Json();
  }
  return value->type() == GgufType::kFloat32 ? Shortest(static_cast<float>(*number))
                                             : Json(*number);
}

void GgufMetadata::Copy(std::string_view name, const char* key, Json* config) {
  Json number = Number(name);
  if (!number.is_null()) config->Set(key, std::move(number));
}

bool GgufMetadata::Bool(std::string_view name, bool fallback) {
  const GgufValue* const value = Find(name);
  if (value == nullptr) return fallback;
  const std::optional<bool> truth = value->AsBool();
  if (!truth) Fail(name, "a truth value is needed");
  return truth.value_or(fallback);
}

std::string GgufMetadata::Text(std::string_view name) {
  const GgufValue* const value = Find(name);
  if (value == nullptr) return "";
  const std::optional<std::string_view> text = value->AsString();
  if (!text) Fail(name, "a text is needed");
  return std::string(text.value_or(""));
}

const GgufTensor* GgufMetadata::Tensor(std::string_view name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const GgufTensor& tensor) { return tensor.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

Json GgufMetadata::Vector(std::string_view name) {
  const GgufTensor* const tensor = Tensor(name);
  if (tensor == nullptr) return {};
  constexpr std::string_view kF32 = "F32";
  if (tensor->type->name != kF32 || tensor->shape.size() != 1 ||
      tensor->shape[0] > kHeadDimRange.max) {
    FailWith(BadInput("tensor \"{}\": a vector of type F32 is needed (found type {})", name,
                      tensor->type->name));
    return {};
  }
  Json values = Json(Json::Array());
  for (size_t at = 0; at < tensor->data.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor->data.data() + at, sizeof(value));
    values.Append(Shortest(value));
  }
  return values;
}

}  // namespace minisgl::weights
