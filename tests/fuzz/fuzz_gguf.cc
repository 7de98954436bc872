// Any bytes as a GGUF file: either rejected with one readable line, or every value and tensor lies
// within the file. All of them are read, so that the address sanitizer checks their bounds. A
// configuration, tensors and a tokenizer are made of it, as of a model.
#include <cstdint>

#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
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

// Makes what a run would need, and reads the first row of each matrix.
void UseAsModel(const minisgl::GgufHeader& header, std::span<const std::byte> bytes) {
  using namespace minisgl;
  const auto tokenizer = text::MakeGgufTokenizer(header);
  CheckMessage(tokenizer.status());
  if (tokenizer.ok()) static_cast<void>((*tokenizer)->EncodeText("Hello <s>\n 12"));
  const auto config = weights::ReadGgufConfig(header, bytes, "model.gguf");
  CheckMessage(config.status());
  if (!config.ok()) return;
  const auto tensors = weights::FindGgufTensors(header, bytes, *config);
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = GgufHeader::Parse(bytes);
  if (!header.ok()) {
    CheckMessage(header.status());
    return 0;
  }
  for (const auto& [key, value] : header->metadata) Visit(value);
  for (const GgufTensor& tensor : header->tensors) {
    MINISGL_CHECK(
        header->data_begin <= tensor.begin && tensor.begin < tensor.end && tensor.end <= size,
        "{} is outside", Visible(tensor.name));
    const uint64_t blocks = tensor.num_elements() / tensor.type->block_elements;
    MINISGL_CHECK(tensor.end - tensor.begin == blocks * tensor.type->block_bytes,
                  "{} has another size", Visible(tensor.name));
    const volatile std::byte* tensors = bytes.data();
    static_cast<void>(tensors[tensor.begin]);
    static_cast<void>(tensors[tensor.end - 1]);
  }
  UseAsModel(*header, bytes);
  return 0;
}
