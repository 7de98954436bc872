// Any text as JSON: refused in one readable line, or written out as valid UTF-8 that reads back the
// same. The same bytes as a string value: always written as valid JSON.
#include <cstdint>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = ParseJson(text);
  if (json.ok()) {
    for (int indent : {0, 1}) {
      const std::string written = json->Dump(indent);
      MINISGL_CHECK(IsValidUtf8(written), "wrote ill-formed text");
      const auto again = ParseJson(written);
      MINISGL_CHECK(again.ok() && *again == *json, "does not read back: {}", Visible(written));
    }
  } else {
    const std::string& message = json.status().message();
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
  }
  const auto as_string = ParseJson(Json(text).Dump());
  MINISGL_CHECK(as_string.ok() && as_string->as_string() == ReplaceInvalidUtf8(text),
                "a string does not read back");
  return 0;
}
