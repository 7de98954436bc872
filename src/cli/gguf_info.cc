#include "cli/gguf_info.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

constexpr size_t kTextBytesMax = 100;  // shown of a text
constexpr uint64_t kElementsShown = 8;

std::string TextAt(const GgufHeader& header, std::string_view key) {
  const GgufValue* const value = header.Find(key);
  const auto text = value != nullptr ? value->AsString() : std::nullopt;
  return text ? Visible(*text, 400) : "";
}

// "32", or "8 or 2" if it differs from layer to layer; "" if the file does not say.
std::string NumbersAt(const GgufHeader& header, const std::string& key) {
  const GgufValue* const value = header.Find(key);
  if (value == nullptr) return "";
  if (const auto number = value->AsInt()) return fmt::format("{}", *number);
  std::vector<int64_t> numbers;
  for (const GgufValue& element : value->Elements()) {
    const auto number = element.AsInt();
    if (number && std::find(numbers.begin(), numbers.end(), *number) == numbers.end()) {
      numbers.push_back(*number);
    }
  }
  std::string text;
  for (const int64_t number : numbers) {
    text += fmt::format("{}{}", text.empty() ? "" : " or ", number);
  }
  return text;
}

void DescribeModel(const GgufHeader& header, std::string* out) {
  const std::string architecture = TextAt(header, "general.architecture");
  InfoLine("architecture", architecture.empty() ? "not named" : architecture, out);
  if (const std::string name = TextAt(header, "general.name"); !name.empty()) {
    InfoLine("name", name, out);
  }
  const auto of = [&](const char* key) { return NumbersAt(header, architecture + "." + key); };
  std::string layers;
  const auto append = [&](const char* before, const std::string& number, const char* after = "") {
    if (!number.empty()) layers += fmt::format("{}{}{}", before, number, after);
  };
  append("", of("block_count"));
  append(" of width ", of("embedding_length"));
  append(", feed-forward ", of("feed_forward_length"));
  append(", ", of("attention.head_count"), " query heads");
  append(", ", of("attention.head_count_kv"), " KV heads");
  if (!layers.empty()) InfoLine("layers", layers, out);
  if (const std::string experts = of("expert_count"); !experts.empty()) {
    const std::string used = of("expert_used_count");
    InfoLine("experts", used.empty() ? experts : fmt::format("{} of {}", used, experts), out);
  }
  if (const std::string context = of("context_length"); !context.empty()) {
    InfoLine("context", context + " tokens", out);
  }
}

void DescribeVocabulary(const GgufHeader& header, std::string* out) {
  const std::string model = TextAt(header, "tokenizer.ggml.model");
  const std::string split = TextAt(header, "tokenizer.ggml.pre");
  const GgufValue* const tokens = header.Find("tokenizer.ggml.tokens");
  InfoLine("vocabulary",
           tokens == nullptr ? "none"
                             : fmt::format("{} tokens, {}{}", tokens->count(),
                                           model.empty() ? "of no named kind" : model,
                                           split.empty() ? "" : " split as " + split),
           out);
}

// The types of elements, those with most bytes first.
void DescribeTensors(const GgufHeader& header, std::string* out) {
  struct Share {
    const char* name = nullptr;
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<uint32_t, Share> shares;
  Share all;
  for (const GgufTensor& tensor : header.tensors) {
    for (Share* share : {&shares[tensor.type->id], &all}) {
      share->name = tensor.type->name;
      ++share->tensors;
      share->elements += tensor.num_elements();
      share->bytes += tensor.end - tensor.begin;
    }
  }
  InfoLine("weights",
           fmt::format("{} parameters in {} tensors, {}, {:.2f} bits each", all.elements,
                       all.tensors, term::FormatBytes(all.bytes),
                       all.elements == 0 ? 0.0
                                         : 8 * static_cast<double>(all.bytes) /
                                               static_cast<double>(all.elements)),
           out);
  std::vector<Share> order;
  for (const auto& [id, share] : shares) order.push_back(share);
  std::stable_sort(order.begin(), order.end(),
                   [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  for (const Share& share : order) {
    InfoLine(
        fmt::format("  {}", share.name),
        fmt::format("{:.1f} % of the bytes, {} tensor{}, {}",
                    100 * static_cast<double>(share.bytes) / static_cast<double>(all.bytes),
                    share.tensors, share.tensors == 1 ? "" : "s", term::FormatBytes(share.bytes)),
        out);
  }
}

// The files of a model that is split.
void DescribeParts(const GgufFile& file, std::string* out) {
  std::vector<size_t> num_tensors(file.parts().size());
  for (const GgufTensor& tensor : file.header().tensors) ++num_tensors[tensor.part];
  for (size_t i = 0; i < num_tensors.size(); ++i) {
    const std::filesystem::path path(file.parts()[i].path());
    InfoLine("",
             fmt::format("{}, {}, {} tensor{}", Visible(path.filename().string(), 200),
                         term::FormatBytes(file.parts()[i].bytes().size()), num_tensors[i],
                         num_tensors[i] == 1 ? "" : "s"),
             out);
  }
}

std::string ValueText(const GgufValue& value) {
  if (const auto text = value.AsString()) {
    return text->size() <= kTextBytesMax
               ? fmt::format("\"{}\"", Visible(*text, 4 * kTextBytesMax))
               : fmt::format("\"{}\" ({} bytes)", Visible(*text, kTextBytesMax), text->size());
  }
  if (const auto truth = value.AsBool()) return *truth ? "true" : "false";
  if (const auto integer = value.AsInt()) return fmt::format("{}", *integer);
  if (const auto number = value.AsDouble()) return fmt::format("{}", *number);
  std::string text = "[";
  for (const GgufValue& element : value.Elements(kElementsShown)) {
    text += fmt::format("{}{}", text.size() == 1 ? "" : ", ", ValueText(element));
  }
  if (value.count() > kElementsShown) text += fmt::format(", ... {} in all", value.count());
  return text + "]";
}

}  // namespace

void InfoLine(const std::string& name, const std::string& value, std::string* out) {
  *out += fmt::format("{:<14}{}\n", name, value);
}

void DescribeGguf(const GgufFile& file, std::string* out) {
  const GgufHeader& header = file.header();
  const size_t num_parts = file.parts().size();
  InfoLine("file",
           fmt::format("{}, GGUF version {}, {}{}", Visible(file.parts()[0].path(), 400),
                       header.version, term::FormatBytes(file.num_bytes()),
                       num_parts > 1 ? fmt::format(" in {} parts", num_parts) : ""),
           out);
  if (num_parts > 1) DescribeParts(file, out);
  DescribeModel(header, out);
  DescribeVocabulary(header, out);
  DescribeTensors(header, out);
}

void DescribeGgufMetadata(const GgufFile& file, std::string* out) {
  *out += "metadata\n";
  for (const auto& [key, value] : file.header().metadata) {
    *out += fmt::format("  {} = {}\n", Visible(key, 200), ValueText(value));
  }
}

}  // namespace minisgl::cli
