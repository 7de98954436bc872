// The kinds of normalizer, and their construction from tokenizer.json.
#include "text/tokenizer_json/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/text/lower_case.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/byte_level.h"
#include "text/tokenizer_json/pattern.h"
#include "text/tokenizer_json/precompiled.h"
#include "text/tokenizer_json/unicode.h"

namespace minisgl::text {
namespace normalizers {
namespace {

using Pointer = std::unique_ptr<const Normalizer>;

Status CheckLength(const std::string& text) {
  if (text.size() <= kTextBytesMax) return {};
  return BadInput("the text is too long after normalisation (more than {} MiB); shorten it",
                  kTextBytesMax >> 20);
}

bool IsAscii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

// NFC, NFD, NFKC, NFKD.
class UnicodeForm : public Normalizer {
 public:
  UnicodeForm(bool composes, bool compatible) : composes_(composes), compatible_(compatible) {}

  Status Run(std::string* text) const override {
    if (IsAscii(*text)) return {};
    std::string out;
    out.reserve(text->size());
    std::vector<utf8proc_int32_t> characters;
    size_t run_begin = 0;  // beginning of the combining characters at the end of `characters`
    const auto finish = [&] {
      SortMarks(run_begin, &characters);
      Compose(&characters);
      for (utf8proc_int32_t c : characters) AppendUtf8(static_cast<char32_t>(c), &out);
      characters.clear();
      run_begin = 0;
    };
    for (std::string_view rest = *text; !rest.empty();) {
      size_t length = 0;
      const char32_t c = FirstCharacter(rest, &length);
      rest.remove_prefix(length);
      if (characters.size() >= kCharactersAtOnce && StandsApart(c)) finish();
      if (out.size() > kTextBytesMax) return CheckLength(out);
      if (IsNewInNormalization(c)) {  // like an unassigned character, it separates its neighbours
        finish();
        AppendUtf8(c, &out);
      } else {
        Decompose(c, &characters, &run_begin);
      }
    }
    finish();
    *text = std::move(out);
    return CheckLength(*text);
  }
  // Lower bounds in bytes of UTF-8:
  //   decomposition  a third (the kelvin sign), with compatibility a quarter (bold letters)
  //   composition    a third (U+0390), with compatibility an eleventh (U+FDFA)
  size_t ShrinkMax() const override {
    return (compatible_ ? size_t{4} : 3) * (!composes_ ? 1 : compatible_ ? 11 : 3);
  }

 private:
  // True if `c` does not interact with the text before it: it is neither a mark nor the second part
  // of a composed character. Covers only the scripts of which long texts consist.
  static bool StandsApart(char32_t c) {
    return c < 0x300 || (c >= 0x370 && c < 0x483) || (c >= 0x3400 && c < 0xA000) ||
           (c >= 0xAC00 && c < 0xD7A4);
  }

  // Sorts a run of marks in n log n steps; the library swaps neighbours, n * n steps for a text
  // that consists of marks.
  static void SortMarks(size_t run_begin, std::vector<utf8proc_int32_t>* characters) {
    std::stable_sort(characters->begin() + static_cast<std::ptrdiff_t>(run_begin),
                     characters->end(), [](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return utf8proc_get_property(a)->combining_class <
                              utf8proc_get_property(b)->combining_class;
                     });
  }

  void Compose(std::vector<utf8proc_int32_t>* characters) const {
    if (!composes_) return;
    const auto count = utf8proc_normalize_utf32(
        characters->data(), static_cast<utf8proc_ssize_t>(characters->size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    MINISGL_CHECK(count >= 0, "composing {} characters failed", characters->size());
    characters->resize(static_cast<size_t>(count));
  }

  void Decompose(char32_t c, std::vector<utf8proc_int32_t>* characters, size_t* run_begin) const {
    // The longest decomposition in Unicode has 18 characters.
    std::array<utf8proc_int32_t, 32> parts;
    int boundary = 0;
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                        (compatible_ ? UTF8PROC_COMPAT : 0));
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    MINISGL_CHECK(count > 0 && count <= static_cast<int>(parts.size()), "U+{:X} has {} parts",
                  static_cast<uint32_t>(c), count);
    for (int i = 0; i < count; ++i) {
      if (utf8proc_get_property(parts[i])->combining_class == 0) {
        SortMarks(*run_begin, characters);
        characters->push_back(parts[i]);
        *run_begin = characters->size();
      } else {
        characters->push_back(parts[i]);
      }
    }
  }

  // The characters of a text need four times its bytes, so they are processed in parts.
  static constexpr size_t kCharactersAtOnce = 4096;

  bool composes_, compatible_;
};

class Lowercase : public Normalizer {
 public:
  Status Run(std::string* text) const override {
    *text = LowerCase(*text);
    return CheckLength(*text);
  }
  size_t ShrinkMax() const override { return 3; }  // the kelvin sign
};

class StripAccents : public Normalizer {
 public:
  Status Run(std::string* text) const override {
    if (IsAscii(*text)) return {};
    std::string out;
    out.reserve(text->size());
    for (std::string_view rest = *text; !rest.empty();) {
      size_t length = 0;
      if (!IsMark(FirstCharacter(rest, &length))) out += rest.substr(0, length);
      rest.remove_prefix(length);
    }
    *text = std::move(out);
    return {};
  }
};

// The characters around which BERT's words end: ideographs, but not kana or hangul.
bool IsIdeograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

struct BertOptions {
  bool cleans_text = true, parts_ideographs = true, strips_accents = true, lowercases = true;
};

class Bert : public Normalizer {
 public:
  explicit Bert(BertOptions options) : options_(options) {}

  Status Run(std::string* text) const override {
    if (options_.cleans_text || options_.parts_ideographs) CleanAndPart(text);
    if (options_.strips_accents && !IsAscii(*text)) {
      const UnicodeForm decomposition(/*composes=*/false, /*compatible=*/false);
      MINISGL_RETURN_IF_ERROR(decomposition.Run(text));
      KeepOnly(text, [](char32_t c) { return !IsNonspacingMark(c); });
    }
    if (options_.lowercases) MINISGL_RETURN_IF_ERROR(Lowercase().Run(text));
    return CheckLength(*text);
  }

 private:
  void CleanAndPart(std::string* text) const {
    std::string out;
    out.reserve(text->size());
    for (std::string_view rest = *text; !rest.empty();) {
      size_t length = 0;
      const char32_t c = FirstCharacter(rest, &length);
      const std::string_view character = rest.substr(0, length);
      rest.remove_prefix(length);
      const bool is_line = c == '\t' || c == '\n' || c == '\r';
      if (options_.cleans_text && !is_line && (c == 0 || c == 0xFFFD || IsControl(c))) continue;
      if (options_.cleans_text && (is_line || IsWhiteSpace(c))) {
        out += ' ';
      } else if (options_.parts_ideographs && IsIdeograph(c)) {
        out += ' ';
        out += character;
        out += ' ';
      } else {
        out += character;
      }
    }
    *text = std::move(out);
  }

  static void KeepOnly(std::string* text, bool (*is_kept)(char32_t)) {
    std::string out;
    for (std::string_view rest = *text; !rest.empty();) {
      size_t length = 0;
      if (is_kept(FirstCharacter(rest, &length))) out += rest.substr(0, length);
      rest.remove_prefix(length);
    }
    *text = std::move(out);
  }

  BertOptions options_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Status Run(std::string* text) const override {
    size_t begin = 0, end = 0;  // the kept range: `end` is one past the last non-space character
    bool seen = false;
    for (size_t at = 0; at < text->size();) {
      size_t length = 0;
      const bool is_space =
          IsWhiteSpace(FirstCharacter(std::string_view(*text).substr(at), &length));
      if (!is_space && !seen) begin = at;
      at += length;
      if (is_space) continue;
      seen = true;
      end = at;
    }
    if (!seen) {
      if (left_ || right_) text->clear();
      return {};
    }
    if (right_) text->resize(end);
    if (left_) text->erase(0, begin);
    return {};
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Status Run(std::string* text) const override {
    if (!text->empty()) text->insert(0, prefix_);
    return CheckLength(*text);
  }
  size_t ShrinkMax() const override { return 1; }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status Run(std::string* text) const override { return pattern_.ReplaceAll(content_, text); }
  size_t ShrinkMax() const override {
    if (pattern_.literal() == nullptr || content_.empty()) return 0;
    return (pattern_.literal()->size() + content_.size() - 1) / content_.size();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class ByteLevel : public Normalizer {
 public:
  Status Run(std::string* text) const override {
    std::string out;
    AppendByteSpelling(*text, &out);
    *text = std::move(out);
    return CheckLength(*text);
  }
  size_t ShrinkMax() const override { return 1; }
  bool SpellsBytes() const override { return true; }
};

// The cleanup for a corpus of translations: drops control characters, converts all kinds of space
// to a space.
class Nmt : public Normalizer {
 public:
  Status Run(std::string* text) const override {
    std::string out;
    out.reserve(text->size());
    for (std::string_view rest = *text; !rest.empty();) {
      size_t length = 0;
      const char32_t c = FirstCharacter(rest, &length);
      if (IsSpaceHere(c)) {
        out += ' ';
      } else if (!IsDropped(c)) {
        out += rest.substr(0, length);
      }
      rest.remove_prefix(length);
    }
    *text = std::move(out);
    return {};
  }

 private:
  static bool IsDropped(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  }
  static bool IsSpaceHere(char32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<Pointer> steps) : steps_(std::move(steps)) {}
  Status Run(std::string* text) const override {
    for (const Pointer& step : steps_) MINISGL_RETURN_IF_ERROR(step->Run(text));
    return {};
  }
  size_t ShrinkMax() const override {
    constexpr size_t kUsefulMax = 1 << 20;  // a larger bound is useless
    size_t product = 1;
    for (const Pointer& step : steps_) product = std::min(product * step->ShrinkMax(), kUsefulMax);
    return product;
  }
  bool SpellsBytes() const override {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Pointer& s) { return s->SpellsBytes(); });
  }

 private:
  std::vector<Pointer> steps_;
};

Result<Pointer> ReadReplace(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Read(place["pattern"]));
  MINISGL_ASSIGN_OR_RETURN(std::string content, place["content"].String());
  if (content.size() > kPieceBytesMax) {
    return place["content"].Error("has {} bytes; at most {} are supported", content.size(),
                                  kPieceBytesMax);
  }
  return Pointer(new Replace(std::move(pattern), std::move(content)));
}

Result<Pointer> ReadStrip(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(const bool left, place["strip_left"].Bool(true));
  MINISGL_ASSIGN_OR_RETURN(const bool right, place["strip_right"].Bool(true));
  return Pointer(new Strip(left, right));
}

Result<Pointer> ReadBert(const JsonPlace& place) {
  BertOptions options;
  MINISGL_ASSIGN_OR_RETURN(options.cleans_text, place["clean_text"].Bool(true));
  MINISGL_ASSIGN_OR_RETURN(options.parts_ideographs, place["handle_chinese_chars"].Bool(true));
  MINISGL_ASSIGN_OR_RETURN(options.lowercases, place["lowercase"].Bool(true));
  MINISGL_ASSIGN_OR_RETURN(options.strips_accents, place["strip_accents"].Bool(options.lowercases));
  return Pointer(new Bert(options));
}

Result<Pointer> ReadPrepend(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(std::string prefix, place["prepend"].String());
  if (prefix.size() > kPieceBytesMax) {
    return place["prepend"].Error("has {} bytes; at most {} are supported", prefix.size(),
                                  kPieceBytesMax);
  }
  return Pointer(new Prepend(std::move(prefix)));
}

Result<Pointer> ReadKind(const JsonPlace& place, int depth) {
  if (!place.json().is_object()) return place.MustBe("an object");
  MINISGL_ASSIGN_OR_RETURN(const std::string type, place["type"].String());
  if (type == "Sequence") {
    MINISGL_ASSIGN_OR_RETURN(std::vector<Pointer> steps,
                             place.ReadSteps<Pointer>("normalizers", depth, ReadKind));
    return Pointer(new Sequence(std::move(steps)));
  }
  if (type == "NFC") return Pointer(new UnicodeForm(/*composes=*/true, /*compatible=*/false));
  if (type == "NFD") return Pointer(new UnicodeForm(/*composes=*/false, /*compatible=*/false));
  if (type == "NFKC") return Pointer(new UnicodeForm(/*composes=*/true, /*compatible=*/true));
  if (type == "NFKD") return Pointer(new UnicodeForm(/*composes=*/false, /*compatible=*/true));
  if (type == "Lowercase") return Pointer(new Lowercase());
  if (type == "StripAccents") return Pointer(new StripAccents());
  if (type == "Strip") return ReadStrip(place);
  if (type == "Prepend") return ReadPrepend(place);
  if (type == "Replace") return ReadReplace(place);
  if (type == "ByteLevel") return Pointer(new ByteLevel());
  if (type == "Nmt") return Pointer(new Nmt());
  if (type == "BertNormalizer") return ReadBert(place);
  if (type == "Precompiled") return ReadPrecompiled(place);
  return place["type"].Error(
      "is \"{}\"; supported are NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, "
      "Replace, ByteLevel, Nmt, BertNormalizer, Precompiled and Sequence",
      Visible(type));
}

}  // namespace
}  // namespace normalizers

Result<std::unique_ptr<const Normalizer>> Normalizer::Read(const JsonPlace& place) {
  if (place.is_null()) return std::unique_ptr<const Normalizer>();
  return normalizers::ReadKind(place, 0);
}

}  // namespace minisgl::text

namespace minisgl {

std::string LowerCase(std::string_view text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the only letter that becomes two characters
  const std::string whole = IsValidUtf8(text) ? std::string() : ReplaceInvalidUtf8(text);
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = whole.empty() ? text : whole; !rest.empty();) {
    size_t length = 0;
    const char32_t c = text::FirstCharacter(rest, &length);
    rest.remove_prefix(length);
    if (c == kCapitalIWithDot) {
      out += "i\xCC\x87";
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    }
  }
  return out;
}

}  // namespace minisgl
