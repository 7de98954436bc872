// Any text as JSON: either rejected with one readable line, or written as valid UTF-8 that parses
// to the same value and that the scanner accepts too. The same bytes as a string value: always
// written as valid JSON.
#include <cstdint>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/json_scanner.h"
#include "minisgl/base/utf8.h"

namespace {

// Scans all of `text`; true if the scanner accepts it as JSON.
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

// True if `error` of ParseJson() is one that the scanner does not check.
bool IsPassedOver(const std::string& error) {
  return error.starts_with("duplicate key") || error.ends_with("is out of range");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = ParseJson(text);
  // The reader, but not the scanner, skips a byte order mark.
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
