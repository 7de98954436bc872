#include "text/text_symbols.h"

#include <algorithm>
#include <iterator>

#include "minisgl/base/utf8.h"
#include "text/tokenizer_json/unicode.h"

namespace minisgl::text {
namespace {

// Elements that only format text. Those whose names agents and search models use as marks (output,
// search, data, summary ...) are not among them.
constexpr std::string_view kElements[] = {
    "a",   "b",  "blockquote", "br",    "caption", "code",       "col", "colgroup", "dd",    "del",
    "div", "dl", "dt",         "em",    "figure",  "figcaption", "h1",  "h2",       "h3",    "h4",
    "h5",  "h6", "hr",         "i",     "img",     "ins",        "kbd", "li",       "ol",    "p",
    "pre", "s",  "sub",        "span",  "strong",  "strike",     "sup", "table",    "tbody", "td",
    "th",  "tr", "tfoot",      "thead", "tt",      "u",          "ul",  "small",
};

bool IsHtmlTag(std::string_view text) {
  if (text.size() < 3 || text.front() != '<' || text.back() != '>') return false;
  text = text.substr(1, text.size() - 2);
  if (text.starts_with('/')) {
    text.remove_prefix(1);
  } else if (text.ends_with('/')) {
    text.remove_suffix(1);
    if (text.ends_with(' ')) text.remove_suffix(1);
  }
  return std::find(std::begin(kElements), std::end(kElements), text) != std::end(kElements);
}

// Letters and digits, with spaces, hyphens, apostrophes, `_` and `.` between them or before them.
bool IsOfWords(std::string_view text) {
  if (!IsValidUtf8(text)) return false;
  bool has_letter = false;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    const char32_t c = FirstCharacter(text.substr(at), &length);
    constexpr char32_t kSpaceMark = 0x2581;  // how sentencepiece spells a space
    const bool is_joint =
        c == ' ' || c == kSpaceMark || c == '-' || c == '\'' || c == '.' || c == '_';
    if (!is_joint && !IsWordCharacter(c)) return false;
    has_letter = has_letter || !is_joint;
    at += length;
  }
  return has_letter;
}

}  // namespace

bool IsTextSymbol(std::string_view text) { return IsHtmlTag(text) || IsOfWords(text); }

}  // namespace minisgl::text
