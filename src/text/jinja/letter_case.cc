// Upper, lower and title case as in Python's strings: the full mappings of Unicode, in which one
// letter may become three.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "minisgl/base/utf8.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

// Letters whose upper or title case has several characters (Unicode's SpecialCasing.txt), padded
// with 0.
struct SpecialCase {
  char32_t letter;
  char32_t upper[3];
  char32_t title[3];
};
constexpr SpecialCase kSpecialCases[] = {
    {0xDF, {0x53, 0x53}, {0x53, 0x73}},
    {0x149, {0x2BC, 0x4E}, {0x2BC, 0x4E}},
    {0x1F0, {0x4A, 0x30C}, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}},
    {0x1E96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1E97, {0x54, 0x308}, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}, {0x57, 0x30A}},
    {0x1E99, {0x59, 0x30A}, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}, {0x3A5, 0x313, 0x342}},
    {0x1F80, {0x1F08, 0x399}, {0x1F88}},
    {0x1F81, {0x1F09, 0x399}, {0x1F89}},
    {0x1F82, {0x1F0A, 0x399}, {0x1F8A}},
    {0x1F83, {0x1F0B, 0x399}, {0x1F8B}},
    {0x1F84, {0x1F0C, 0x399}, {0x1F8C}},
    {0x1F85, {0x1F0D, 0x399}, {0x1F8D}},
    {0x1F86, {0x1F0E, 0x399}, {0x1F8E}},
    {0x1F87, {0x1F0F, 0x399}, {0x1F8F}},
    {0x1F88, {0x1F08, 0x399}, {0x1F88}},
    {0x1F89, {0x1F09, 0x399}, {0x1F89}},
    {0x1F8A, {0x1F0A, 0x399}, {0x1F8A}},
    {0x1F8B, {0x1F0B, 0x399}, {0x1F8B}},
    {0x1F8C, {0x1F0C, 0x399}, {0x1F8C}},
    {0x1F8D, {0x1F0D, 0x399}, {0x1F8D}},
    {0x1F8E, {0x1F0E, 0x399}, {0x1F8E}},
    {0x1F8F, {0x1F0F, 0x399}, {0x1F8F}},
    {0x1F90, {0x1F28, 0x399}, {0x1F98}},
    {0x1F91, {0x1F29, 0x399}, {0x1F99}},
    {0x1F92, {0x1F2A, 0x399}, {0x1F9A}},
    {0x1F93, {0x1F2B, 0x399}, {0x1F9B}},
    {0x1F94, {0x1F2C, 0x399}, {0x1F9C}},
    {0x1F95, {0x1F2D, 0x399}, {0x1F9D}},
    {0x1F96, {0x1F2E, 0x399}, {0x1F9E}},
    {0x1F97, {0x1F2F, 0x399}, {0x1F9F}},
    {0x1F98, {0x1F28, 0x399}, {0x1F98}},
    {0x1F99, {0x1F29, 0x399}, {0x1F99}},
    {0x1F9A, {0x1F2A, 0x399}, {0x1F9A}},
    {0x1F9B, {0x1F2B, 0x399}, {0x1F9B}},
    {0x1F9C, {0x1F2C, 0x399}, {0x1F9C}},
    {0x1F9D, {0x1F2D, 0x399}, {0x1F9D}},
    {0x1F9E, {0x1F2E, 0x399}, {0x1F9E}},
    {0x1F9F, {0x1F2F, 0x399}, {0x1F9F}},
    {0x1FA0, {0x1F68, 0x399}, {0x1FA8}},
    {0x1FA1, {0x1F69, 0x399}, {0x1FA9}},
    {0x1FA2, {0x1F6A, 0x399}, {0x1FAA}},
    {0x1FA3, {0x1F6B, 0x399}, {0x1FAB}},
    {0x1FA4, {0x1F6C, 0x399}, {0x1FAC}},
    {0x1FA5, {0x1F6D, 0x399}, {0x1FAD}},
    {0x1FA6, {0x1F6E, 0x399}, {0x1FAE}},
    {0x1FA7, {0x1F6F, 0x399}, {0x1FAF}},
    {0x1FA8, {0x1F68, 0x399}, {0x1FA8}},
    {0x1FA9, {0x1F69, 0x399}, {0x1FA9}},
    {0x1FAA, {0x1F6A, 0x399}, {0x1FAA}},
    {0x1FAB, {0x1F6B, 0x399}, {0x1FAB}},
    {0x1FAC, {0x1F6C, 0x399}, {0x1FAC}},
    {0x1FAD, {0x1F6D, 0x399}, {0x1FAD}},
    {0x1FAE, {0x1F6E, 0x399}, {0x1FAE}},
    {0x1FAF, {0x1F6F, 0x399}, {0x1FAF}},
    {0x1FB2, {0x1FBA, 0x399}, {0x1FBA, 0x345}},
    {0x1FB3, {0x391, 0x399}, {0x1FBC}},
    {0x1FB4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1FB6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
    {0x1FBC, {0x391, 0x399}, {0x1FBC}},
    {0x1FC2, {0x1FCA, 0x399}, {0x1FCA, 0x345}},
    {0x1FC3, {0x397, 0x399}, {0x1FCC}},
    {0x1FC4, {0x389, 0x399}, {0x389, 0x345}},
    {0x1FC6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
    {0x1FCC, {0x397, 0x399}, {0x1FCC}},
    {0x1FD2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}, {0x1FFA, 0x345}},
    {0x1FF3, {0x3A9, 0x399}, {0x1FFC}},
    {0x1FF4, {0x38F, 0x399}, {0x38F, 0x345}},
    {0x1FF6, {0x3A9, 0x342}, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}, {0x3A9, 0x342, 0x345}},
    {0x1FFC, {0x3A9, 0x399}, {0x1FFC}},
    {0xFB00, {0x46, 0x46}, {0x46, 0x66}},
    {0xFB01, {0x46, 0x49}, {0x46, 0x69}},
    {0xFB02, {0x46, 0x4C}, {0x46, 0x6C}},
    {0xFB03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xFB04, {0x46, 0x46, 0x4C}, {0x46, 0x66, 0x6C}},
    {0xFB05, {0x53, 0x54}, {0x53, 0x74}},
    {0xFB06, {0x53, 0x54}, {0x53, 0x74}},
    {0xFB13, {0x544, 0x546}, {0x544, 0x576}},
    {0xFB14, {0x544, 0x535}, {0x544, 0x565}},
    {0xFB15, {0x544, 0x53B}, {0x544, 0x56B}},
    {0xFB16, {0x54E, 0x546}, {0x54E, 0x576}},
    {0xFB17, {0x544, 0x53D}, {0x544, 0x56D}},
};

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t Simple(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

bool IsCased(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || Simple(utf8proc_tolower, c) != c ||
         Simple(utf8proc_toupper, c) != c;
}

// True for caseless characters that do not end a word (Unicode's Case_Ignorable).
bool IsCaseIgnorable(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == 0x2018 ||
             c == 0x2024 || c == 0x2027;
  }
}

// True if the sigma at [begin, end) ends its word, where its lower case is another letter.
bool IsFinalSigma(std::string_view bytes, size_t begin, size_t end) {
  size_t length = 0;
  bool follows_letter = false;
  for (size_t at = begin; at > 0;) {
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && (static_cast<uint8_t>(bytes[start]) & 0xC0) == 0x80)
      --start;
    const char32_t c = FirstCodePoint(bytes.substr(start), &length);
    at = start;
    if (IsCaseIgnorable(c)) continue;
    follows_letter = IsCased(c);
    break;
  }
  if (!follows_letter) return false;
  for (size_t at = end; at < bytes.size(); at += length) {
    const char32_t c = FirstCodePoint(bytes.substr(at), &length);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

enum class Form { kUpper, kLower, kTitle };

void AppendForm(std::string_view bytes, size_t begin, size_t end, char32_t c, Form form,
                std::string* out) {
  if (form == Form::kLower) {
    if (c == 0x130) {
      *out += "i\xCC\x87";  // keeps the dot as a combining mark
    } else if (c == 0x3A3) {
      AppendUtf8(IsFinalSigma(bytes, begin, end) ? 0x3C2 : 0x3C3, out);
    } else {
      AppendUtf8(Simple(utf8proc_tolower, c), out);
    }
    return;
  }
  const auto special = std::lower_bound(
      std::begin(kSpecialCases), std::end(kSpecialCases), c,
      [](const SpecialCase& entry, char32_t letter) { return entry.letter < letter; });
  if (special == std::end(kSpecialCases) || special->letter != c) {
    AppendUtf8(Simple(form == Form::kUpper ? utf8proc_toupper : utf8proc_totitle, c), out);
    return;
  }
  for (char32_t letter : form == Form::kUpper ? special->upper : special->title) {
    if (letter != 0) AppendUtf8(letter, out);
  }
}

// Appends the full case folding, in which one letter may become three.
void AppendFolded(char32_t c, std::string* out) {
  utf8proc_int32_t letters[8];
  int boundary_class = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), letters, std::size(letters),
                              UTF8PROC_CASEFOLD, &boundary_class);
  if (count < 1 || count > static_cast<utf8proc_ssize_t>(std::size(letters))) {
    AppendUtf8(c, out);
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(letters[i]), out);
}

// True if `text` has a letter of the case `wanted` and no letter of another case.
bool HasOneCase(std::string_view text, utf8proc_category_t wanted, utf8proc_category_t other) {
  bool found = false;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const utf8proc_category_t category = CategoryOf(FirstCodePoint(text.substr(at), &length));
    if (category == other || category == UTF8PROC_CATEGORY_LT) return false;
    found = found || category == wanted;
  }
  return found;
}

}  // namespace

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsNumeral(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsAllUpper(std::string_view text) {
  return HasOneCase(text, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL);
}

bool IsAllLower(std::string_view text) {
  return HasOneCase(text, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU);
}

Text ChangeCase(Interpreter* run, const Text& text, LetterCase letter_case) {
  run->ChargeWork(uint64_t{16} * text.size());  // table lookups for each character
  Text out;
  const std::string_view bytes = text.bytes();
  size_t at = 0;
  bool begins_word = true;
  for (const Text::Run& origin : text.runs()) {
    std::string changed;
    while (at < origin.end) {
      size_t length = 0;
      const char32_t c = FirstCodePoint(bytes.substr(at, origin.end - at), &length);
      if (Utf8CharLength(bytes.substr(at, length)) != length) {
        changed += bytes.substr(at, length);  // an ill-formed byte
      } else {
        Form form = Form::kLower;
        if (letter_case == LetterCase::kSwap) {
          form = Simple(utf8proc_tolower, c) != c ? Form::kLower : Form::kUpper;
        } else if (letter_case == LetterCase::kFold) {
          AppendFolded(c, &changed);
          at += length;
          continue;
        } else if (letter_case == LetterCase::kUpper) {
          form = Form::kUpper;
        } else if (letter_case != LetterCase::kLower && begins_word) {
          form = letter_case == LetterCase::kTitleWords ? Form::kUpper : Form::kTitle;
        }
        AppendForm(bytes, at, at + length, c, form, &changed);
      }
      at += length;
      begins_word = (letter_case == LetterCase::kTitle && !IsCased(c)) ||
                    (letter_case == LetterCase::kTitleWords &&
                     (IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'));
    }
    out.Append(changed, origin.trusted);
  }
  return out;
}

}  // namespace minisgl::text::jinja
