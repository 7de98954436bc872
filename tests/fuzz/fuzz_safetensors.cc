// Any bytes as a safetensors file: either rejected with one readable line, or every tensor lies in
// the data part and has the size of its shape. The first and last byte of each is read, so that the
// address sanitizer checks its bounds.
#include <cstdint>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const auto bytes = std::as_bytes(std::span(data, size));
  uint64_t data_begin = 0;
  const auto entries = SafetensorsFile::ParseHeader(bytes, "fuzz.safetensors", &data_begin);
  if (!entries.ok()) {
    const std::string& message = entries.status().message();
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
    return 0;
  }
  MINISGL_CHECK(data_begin >= 8 && data_begin <= size, "data begins at {} of {}", data_begin, size);
  uint64_t covered = 0;
  for (const auto& [name, entry] : *entries) {
    MINISGL_CHECK(entry.begin <= entry.end && entry.end <= size - data_begin, "{} is outside",
                  Visible(name));
    covered += entry.end - entry.begin;
    if (entry.begin == entry.end) continue;
    const volatile std::byte* tensor = bytes.data() + data_begin;
    static_cast<void>(tensor[entry.begin]);
    static_cast<void>(tensor[entry.end - 1]);
  }
  MINISGL_CHECK(covered == size - data_begin, "{} bytes belong to no tensor",
                size - data_begin - covered);
  return 0;
}
