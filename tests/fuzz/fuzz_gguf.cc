// Any bytes as a GGUF file: either rejected with one readable line, or every value and tensor lies
// within the file. All of them are read, so that the address sanitizer checks their bounds. A
// configuration, tensors and a tokenizer are made of it, as of a model. Files with "<part>" between
// them are the parts of one.
#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/gguf/gguf_parts.h"
#include "text/gguf_tokenizer.h"
#include "weights/gguf_model.h"

namespace {

using minisgl::GgufValue;

void Visit(const GgufValue& value) {
  static_cast<void>(value.AsInt());
  static_cast<void>(value.AsDouble());
  static_cast<void>(value.AsBool());
  if (const auto text = value.AsString()) static_cast<void>(minisgl::Visible(*text));
  for (const GgufValue& element : value.Elements()) Visit(element);
}

void CheckMessage(const minisgl::Status& status) {
  const std::string& message = status.message();
  MINISGL_CHECK(minisgl::Visible(message, message.size()) == message, "not one readable line");
}

// Makes all that a run would need, and reads the first row of each matrix.
void UseAsModel(const minisgl::GgufHeader& header) {
  using namespace minisgl;
  const auto tokenizer = text::MakeGgufTokenizer(header);
  CheckMessage(tokenizer.status());
  if (tokenizer.ok()) static_cast<void>((*tokenizer)->EncodeText("Hello <s>\n 12"));
  const auto config = weights::ReadGgufConfig(header, "model.gguf");
  CheckMessage(config.status());
  if (!config.ok()) return;
  const auto tensors = weights::FindGgufTensors(header, *config);
  CheckMessage(tensors.status());
  if (!tensors.ok()) return;
  for (const weights::GgufModelTensor& tensor : *tensors) {
    if (!tensor.matrix) {
      static_cast<void>(tensor.view.At(tensor.view.num_elements() - 1));
      continue;
    }
    std::vector<float> row(static_cast<size_t>(tensor.matrix->num_in()));
    tensor.matrix->ReadRow(tensor.matrix->num_out() - 1, row.data());
    static_cast<void>(tensor.matrix->CheckNumbers());
  }
}

// `input` between its separators, each in memory of its own size.
std::vector<std::vector<std::byte>> FilesOf(std::string_view input) {
  constexpr std::string_view kSeparator = "<part>";
  std::vector<std::vector<std::byte>> files;
  for (size_t at = 0; at != std::string_view::npos;) {
    const size_t end = input.find(kSeparator, at);
    const auto bytes = std::as_bytes(std::span(input.substr(at, end - at)));
    files.emplace_back(bytes.begin(), bytes.end());
    at = end == std::string_view::npos ? end : end + kSeparator.size();
  }
  return files;
}

// The header of one file, after it was read in full.
minisgl::Result<minisgl::GgufHeader> ReadAll(std::span<const std::byte> bytes) {
  using namespace minisgl;
  const auto header = GgufHeader::Parse(bytes);
  if (!header.ok()) return header;
  for (const auto& [key, value] : header->metadata) Visit(value);
  for (const GgufTensor& tensor : header->tensors) {
    MINISGL_CHECK(header->data_begin <= tensor.begin && tensor.begin < tensor.end &&
                      tensor.end <= bytes.size(),
                  "{} is outside", Visible(tensor.name));
    const uint64_t blocks = tensor.num_elements() / tensor.type->block_elements;
    MINISGL_CHECK(tensor.end - tensor.begin == blocks * tensor.type->block_bytes,
                  "{} has another size", Visible(tensor.name));
    const volatile std::byte* its = tensor.data.data();
    MINISGL_CHECK(its == bytes.data() + tensor.begin, "{} is elsewhere", Visible(tensor.name));
    static_cast<void>(its[0]);
    static_cast<void>(its[tensor.data.size() - 1]);
  }
  return header;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const std::vector<std::vector<std::byte>> files =
      FilesOf({reinterpret_cast<const char*>(data), size});
  std::vector<GgufPart> parts;
  for (const std::vector<std::byte>& file : files) {
    auto header = ReadAll(file);
    CheckMessage(header.status());
    if (!header.ok()) return 0;
    const std::string name =
        fmt::format("model-{:05}-of-{:05}.gguf", parts.size() + 1, files.size());
    parts.push_back({name, *std::move(header)});
    CheckMessage(GgufPartsOf(parts.back()).status());
  }
  const auto header = JoinGgufParts(std::move(parts));
  CheckMessage(header.status());
  if (header.ok()) UseAsModel(*header);
  return 0;
}
