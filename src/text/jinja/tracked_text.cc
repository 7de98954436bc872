// The runs of a Text, searching and stripping, and the characters of UTF-8.
#include "text/jinja/tracked_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "minisgl/base/utf8.h"
#include "text/jinja/bounds.h"

namespace minisgl::text::jinja {

void Text::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().trusted == trusted) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), trusted});
  }
}

void Text::Append(const Text& other) { AppendRange(other, 0, other.size()); }

void Text::AppendRange(const Text& other, size_t begin, size_t end) {
  const auto first = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                                      [](size_t at, const Run& run) { return at < run.end; });
  for (auto run = first; run != other.runs_.end() && begin < end; ++run) {
    const size_t stop = std::min(run->end, end);
    Append(std::string_view(other.bytes_).substr(begin, stop - begin), run->trusted);
    begin = stop;
  }
}

Text Text::Substr(size_t begin, size_t end) const {
  Text out;
  out.AppendRange(*this, begin, end);
  return out;
}

bool Text::TrustedAt(size_t index) const {
  return std::upper_bound(runs_.begin(), runs_.end(), index,
                          [](size_t at, const Run& run) { return at < run.end; })
      ->trusted;
}

bool Text::AllTrusted() const { return runs_.empty() || (runs_.size() == 1 && runs_[0].trusted); }

size_t Find(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // Search in growing windows: with many matches, each call costs its window instead of the whole
  // rest (which a sanitizer checks first).
  for (size_t window = 8 * wanted.size() + 256;; window *= 2) {
    const size_t length = std::min(window, text.size() - from);
    const void* const found = memmem(text.data() + from, length, wanted.data(), wanted.size());
    if (found != nullptr) return static_cast<size_t>(static_cast<const char*>(found) - text.data());
    if (length == text.size() - from) return std::string_view::npos;
    from += length - wanted.size() + 1;
  }
}

std::string Reversed(std::string_view text) { return std::string(text.rbegin(), text.rend()); }

Text EscapeHtml(const Text& text) {
  Text out;
  size_t at = 0;
  for (const Text::Run& run : text.runs()) {
    std::string escaped;
    // Stop if the result is too long: the caller rejects it.
    for (; at < run.end && out.size() + escaped.size() <= TextBytesMax(); ++at) {
      const char c = text.bytes()[at];
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        case '"':
          escaped += "&#34;";
          break;
        default:
          escaped += c;
      }
    }
    out.Append(escaped, run.trusted);
  }
  out.SetMarkup(true);
  return out;
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    const bool is_ascii = static_cast<uint8_t>(text[at]) < 0x80;
    at += is_ascii ? 1 : std::max<size_t>(1, Utf8CharLength(text.substr(at, 4)));
  }
  return count;
}

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    offsets.push_back(at);
    at += std::max<size_t>(1, Utf8CharLength(text.substr(at, 4)));
  }
  offsets.push_back(text.size());
  return offsets;
}

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

char32_t FirstCodePoint(std::string_view text, size_t* length) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  *length = Utf8CharLength(text.substr(0, 4));
  switch (*length) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    case 4:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
    default:
      *length = 1;
      return 0xDC00 + byte(0);
  }
}

Text Strip(const Text& text, std::string_view chars, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  std::vector<char32_t> set;
  for (size_t at = 0, length = 0; at < chars.size(); at += length)
    set.push_back(FirstCodePoint(chars.substr(at), &length));
  std::sort(set.begin(), set.end());
  const auto is_stripped = [&](std::string_view character) {
    size_t length = 0;
    const char32_t c = FirstCodePoint(character, &length);
    return chars.empty() ? IsSpace(c) : std::binary_search(set.begin(), set.end(), c);
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end) {
    size_t length = 0;
    FirstCodePoint(bytes.substr(begin), &length);
    if (!is_stripped(bytes.substr(begin, length))) break;
    begin += length;
  }
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && end - start < 4 && (static_cast<uint8_t>(bytes[start]) & 0xC0) == 0x80)
      --start;
    if (Utf8CharLength(bytes.substr(start, end - start)) != end - start) start = end - 1;
    if (!is_stripped(bytes.substr(start, end - start))) break;
    end = start;
  }
  return text.Substr(begin, end);
}

}  // namespace minisgl::text::jinja
