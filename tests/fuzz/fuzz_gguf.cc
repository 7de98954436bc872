// Any bytes as a GGUF file: either rejected with one readable line, or every value and tensor lies
// within the file. All of them are read, so that the address sanitizer checks their bounds.
#include <cstdint>

#include "minisgl/base/utf8.h"
#include "minisgl/weights/gguf_file.h"

namespace {

using minisgl::GgufValue;

void Visit(const GgufValue& value) {
  static_cast<void>(value.AsInt());
  static_cast<void>(value.AsDouble());
  static_cast<void>(value.AsBool());
  if (const auto text = value.AsString()) static_cast<void>(minisgl::Visible(*text));
  for (const GgufValue& element : value.Elements()) Visit(element);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = GgufHeader::Parse(bytes);
  if (!header.ok()) {
    const std::string& message = header.status().message();
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
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
  return 0;
}
