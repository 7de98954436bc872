#include "term/clipboard.h"

#include <unistd.h>

#include <cstdint>

#include "term/messages.h"

namespace minisgl::term {
namespace {

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

std::string ClipboardSequence(std::string_view text) {
  return "\x1b]52;c;" + Base64(text) + "\x07";
}

Status CopyToClipboard(std::string_view text) {
  if (!StderrIsTerminal()) return UsageError("standard error is no terminal with a clipboard");
  if (text.size() > kClipboardBytesMax) {
    return UsageError("{} bytes are too long for a terminal's clipboard (at most {})", text.size(),
                      kClipboardBytesMax);
  }
  WriteControl(ClipboardSequence(text));
  return Status();
}

}  // namespace minisgl::term
