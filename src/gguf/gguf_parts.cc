#include "minisgl/gguf/gguf_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

constexpr std::string_view kNumberKey = "split.no", kCountKey = "split.count",
                           kTensorsKey = "split.tensors.count";

// The end of a part's name: "-00001-of-00003.gguf".
std::string NameEnd(size_t number, size_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

// A number of five digits; 0 for other text.
size_t FiveDigits(std::string_view text) {
  const bool all = std::all_of(text.begin(), text.end(),
                               [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
  return all ? ParseNumber<size_t>(text).value_or(0) : 0;
}

std::string Shown(const std::string& path) { return Visible(path, 400); }

// kBadInput unless the number at `key` is `wanted`.
Status CheckNumber(const GgufPart& part, std::string_view key, size_t wanted, const char* why) {
  const GgufValue* const value = part.header.Find(key);
  const std::optional<int64_t> found = value == nullptr ? std::nullopt : value->AsInt();
  if (found && *found >= 0 && static_cast<size_t>(*found) == wanted) return Status();
  return BadInput("{}: key \"{}\": {} is needed, {} (found {})", Shown(part.path), key, wanted, why,
                  found              ? fmt::format("{}", *found)
                  : value == nullptr ? "nothing"
                                     : "no integer");
}

// Checks that metadata which a later part repeats agree with the first part.
Status CheckMetadata(const GgufPart& first, const GgufPart& part) {
  for (const auto& [key, value] : part.header.metadata) {
    if (key == kNumberKey || key == "general.alignment") continue;  // of each file
    const GgufValue* const other = first.header.Find(key);
    if (other == nullptr || other->IsSameAs(value)) continue;
    return BadInput("{}: key \"{}\" is not as in {}: a part of another model", Shown(part.path),
                    Visible(key, 100), Shown(first.path));
  }
  return Status();
}

}  // namespace

std::vector<std::string> GgufPartPaths(const std::string& path) {
  const size_t length = NameEnd(0, 0).size();
  if (!HasGgufName(path) || path.size() < length) return {path};
  const std::string_view end = std::string_view(path).substr(path.size() - length);
  const size_t number = FiveDigits(end.substr(1, 5)), count = FiveDigits(end.substr(10, 5));
  const bool has_form =
      end[0] == '-' && end.substr(6, 4) == "-of-" && number >= 1 && number <= count;
  if (!has_form) return {path};
  const std::string begin = path.substr(0, path.size() - length);
  const std::string_view extension = end.substr(end.size() - 5);  // in its case of letters
  std::vector<std::string> paths;
  for (size_t i = 1; i <= count; ++i) {
    std::string name = NameEnd(i, count);
    name.replace(name.size() - extension.size(), extension.size(), extension);
    paths.push_back(begin + name);
  }
  return paths;
}

Result<std::vector<std::string>> GgufPartsOf(const GgufPart& part) {
  const GgufValue* const value = part.header.Find(kCountKey);
  const int64_t count = value == nullptr ? 1 : value->AsInt().value_or(0);
  if (count == 1 && value == nullptr) return std::vector<std::string>{part.path};
  std::vector<std::string> paths = GgufPartPaths(part.path);
  const auto num_paths = static_cast<int64_t>(paths.size());
  if (count == num_paths) return paths;
  if (num_paths > 1 || count < 1) {
    return CheckNumber(part, kCountKey, paths.size(), "as the name of the file says");
  }
  const GgufValue* const number = part.header.Find(kNumberKey);
  const int64_t index = number == nullptr ? 0 : number->AsInt().value_or(0);
  return BadInput(
      "{}: is part {} of {} of a model, and its name does not say so; want one that ends "
      "in {}, and the others beside it",
      Shown(part.path), index + 1, count,
      NameEnd(static_cast<size_t>(index) + 1, static_cast<size_t>(count)));
}

Result<GgufHeader> JoinGgufParts(std::vector<GgufPart> parts) {
  MINISGL_CHECK(!parts.empty(), "a model has at least one file");
  if (parts.size() == 1) return std::move(parts[0].header);
  size_t num_tensors = 0;
  for (const GgufPart& part : parts) num_tensors += part.header.tensors.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const GgufPart& part = parts[i];
    MINISGL_RETURN_IF_ERROR(CheckNumber(part, kNumberKey, i, "as the name of the file says"));
    MINISGL_RETURN_IF_ERROR(
        CheckNumber(part, kCountKey, parts.size(), "as the name of the file says"));
  }
  for (const GgufPart& part : parts) {
    MINISGL_RETURN_IF_ERROR(
        CheckNumber(part, kTensorsKey, num_tensors, "the tensors that all parts have"));
    MINISGL_RETURN_IF_ERROR(CheckMetadata(parts[0], part));
  }
  GgufHeader all = std::move(parts[0].header);
  all.num_parts = parts.size();
  std::map<std::string, size_t, std::less<>> part_of;
  for (const GgufTensor& tensor : all.tensors) part_of.emplace(tensor.name, 0);
  for (size_t i = 1; i < parts.size(); ++i) {
    for (GgufTensor& tensor : parts[i].header.tensors) {
      const auto [place, is_new] = part_of.emplace(tensor.name, i);
      if (!is_new) {
        return BadInput("{}: tensor \"{}\" is in {}, too", Shown(parts[i].path),
                        Visible(tensor.name, 200), Shown(parts[place->second].path));
      }
      tensor.part = i;
      all.tensors.push_back(std::move(tensor));
    }
  }
  return all;
}

}  // namespace minisgl
