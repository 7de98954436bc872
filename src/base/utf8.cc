#include "minisgl/base/utf8.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace minisgl {
namespace {

struct Lead {
  int length = 0;      // of the whole character; 0: no lead byte
  uint8_t low = 0x80;  // range of the second byte
  uint8_t high = 0xBF;
};

// The Unicode standard's table 3-7 of well-formed byte sequences.
Lead Classify(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// How many bytes of `text` are a prefix of one well-formed character, and how long that character
// is.
struct Prefix {
  int matched = 0;
  int length = 0;
};

Prefix MatchPrefix(std::string_view text) {
  if (text.empty()) return {};
  const Lead lead = Classify(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {};
  int matched = 1;
  while (matched < lead.length && matched < static_cast<int>(text.size())) {
    const auto byte = static_cast<uint8_t>(text[matched]);
    const uint8_t low = matched == 1 ? lead.low : 0x80, high = matched == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) break;
    ++matched;
  }
  return {matched, lead.length};
}

// REQUIRES `text` to begin with a well-formed character of `length` bytes.
uint32_t CodePoint(std::string_view text, size_t length) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (length == 1) return lead;
  uint32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3Fu);
  return code;
}

struct CodeRange {
  uint32_t first, last;
};

// Sorted. Joiners (U+200C, U+200D) are not among them: scripts and emoji need them.
constexpr CodeRange kDisplayControls[] = {
    {0x80, 0x9F},        // C1
    {0x61C, 0x61C},      // Arabic letter mark
    {0x200E, 0x200F},    // marks of direction
    {0x2028, 0x202E},    // separators of lines and paragraphs; embeddings and overrides
    {0x2066, 0x206F},    // isolates; deprecated controls of digits and shapes
    {0xFEFF, 0xFEFF},    // byte order mark
    {0xFFF9, 0xFFFB},    // interlinear annotations
    {0xE0000, 0xE007F},  // tags
};

}  // namespace

size_t Utf8CharLength(std::string_view text) {
  const Prefix prefix = MatchPrefix(text);
  return prefix.length != 0 && prefix.matched == prefix.length ? prefix.length : 0;
}

bool IsIncompleteUtf8(std::string_view text) {
  const Prefix prefix = MatchPrefix(text);
  return prefix.length > prefix.matched && prefix.matched == static_cast<int>(text.size());
}

bool IsValidUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  while (!text.empty()) {
    // Plain ASCII, which most large texts are, eight bytes at a time.
    uint64_t eight = 0;
    while (text.size() >= sizeof(eight)) {
      std::memcpy(&eight, text.data(), sizeof(eight));
      if ((eight & kHighBits) != 0) break;
      text.remove_prefix(sizeof(eight));
    }
    if (text.empty()) break;
    const size_t length = Utf8CharLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Prefix prefix = MatchPrefix(text);
    if (prefix.length != 0 && prefix.matched == prefix.length) {
      out.append(text.substr(0, prefix.length));
      text.remove_prefix(prefix.length);
    } else {
      out += "\uFFFD";
      text.remove_prefix(prefix.matched > 0 ? prefix.matched : 1);
    }
  }
  return out;
}

bool IsDisplayControl(std::string_view character) {
  const uint32_t code = CodePoint(character, character.size());
  return std::any_of(std::begin(kDisplayControls), std::end(kDisplayControls),
                     [code](CodeRange range) { return code >= range.first && code <= range.last; });
}

std::string Visible(std::string_view text, size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= bytes_max) return out + "...";
    const auto byte = static_cast<uint8_t>(text[0]);
    const size_t length = Utf8CharLength(text);
    if (length > 1) {
      const std::string_view character = text.substr(0, length);
      if (IsDisplayControl(character)) {
        const uint32_t code = CodePoint(text, length);
        out += code < 0x100     ? fmt::format("\\x{:02x}", code)
               : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                : fmt::format("\\U{:08x}", code);
      } else {
        out += character;
      }
      text.remove_prefix(length);
      continue;
    }
    switch (byte) {
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (byte < 0x20 || byte >= 0x7F) {
          out += fmt::format("\\x{:02x}", byte);
        } else {
          out += static_cast<char>(byte);
        }
    }
    text.remove_prefix(1);
  }
  return out;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace minisgl
