// Any text as JSON: refused in one readable line, or written out as valid UTF-8 that reads back the
// same, and JSON to the scanner too. The same bytes as a string value: always written as valid
// JSON.
#include <cstdint>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/json_scanner.h"
#include "minisgl/base/utf8.h"

namespace {

// Goes through all of `text`: whether it is JSON to the scanner.
bool ScansAsJson(std::string_view text) {
  using namespace minisgl;
  JsonScanner scanner(text, kJsonDepthMax);
  while (scanner.Next()) {
    const std::string_view raw = scanner.raw();
    switch (scanner.token()) {
      case JsonScanner::Token::kEnd:
        return true;
      case JsonScanner::Token::kKey:
      case JsonScanner::Token::kString:
        MINISGL_CHECK(IsValidUtf8(UnquoteJson(raw)), "unquoted to ill-formed text");
        break;
      default:
        MINISGL_CHECK(!raw.empty(), "a token of no bytes");
    }
  }
  const std::string& message = scanner.status().message();
  MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
  return false;
}

// Whether `error` of ParseJson() is one of those that the scanner does not look for.
bool IsPassedOver(const std::string& error) {
  return error.starts_with("duplicate key") || error.ends_with("is out of range");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = ParseJson(text);
  // The reader, not the scanner, passes over a byte order mark.
  if (IsValidUtf8(text) && !text.starts_with("\xEF\xBB\xBF")) {
    MINISGL_CHECK(ScansAsJson(text) == json.ok() || IsPassedOver(json.status().message()),
                  "the scanner and the reader differ: {}", Visible(text));
  }
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
