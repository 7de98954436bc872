// Converts Oniguruma's pattern syntax (Ruby's flavour) to PCRE2's. These constructs are rewritten:
//   `\s`, `\w`, `\b`   their Unicode sets differ
//   `\h`, `\v`         they have another meaning
//   `{2,3}+`           repeats the interval; in PCRE2 the `+` makes it possessive
//   `[a[b]&&[c]]`      nested classes and intersections
//   `\p{Han}`          in PCRE2 it includes characters shared by several scripts
// All others are the same in both.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "text/tokenizer_json/regex.h"

namespace minisgl::text {
namespace {

constexpr int kClassDepthMax = 8;

// Unicode's White_Space and its complement; PCRE2's \s also contains U+180E.
constexpr std::string_view kSpaces =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kNoSpaces =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";
// The superscripts and fractions of Latin-1 are word characters only in Oniguruma.
constexpr std::string_view kWordCharacters =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kHexDigits = "0-9a-fA-F";

// Names between "[:" and ":]" whose sets differ from PCRE2's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPosixClasses = {{
    {"alpha", "\\p{Alphabetic}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", kSpaces},
    {"word", kWordCharacters},
}};

// Long names of general categories, in lower case and without "_".
constexpr std::array<std::pair<std::string_view, std::string_view>, 37> kCategories = {{
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// True if PCRE2 has a script of this name.
bool IsScript(std::string_view name) {
  const bool is_word = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == ' ' || c == '-';
  });
  if (!is_word) return false;
  const std::string pattern = fmt::format("\\p{{sc:{}}}", name);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF, &error, &place, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// A character class as a pattern for one character. `is_plain`: one class of PCRE2 with `members`
// is enough.
struct CharacterClass {
  bool is_plain = true;
  std::string members;
  std::string regex;
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    while (at_ < pattern_.size()) MINISGL_RETURN_IF_ERROR(Step());
    return std::move(out_);
  }

 private:
  Status Refuse(const char* what) const {
    return BadInput("the pattern \"{}\" has {} at byte {}, which is not supported",
                    Visible(pattern_), what, at_);
  }
  bool Sees(std::string_view what) const { return pattern_.substr(at_).starts_with(what); }

  Status Step() {
    const char c = pattern_[at_];
    if (c == '(') return OpenGroup();
    if (c == ')') {
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      out_ += pattern_[at_++];
      return {};
    }
    if (c == '{' && Interval() > 0) {
      Repeat(Interval());
      return {};
    }
    if (c == '*' || c == '+' || c == '?') {
      out_ += pattern_[at_++];
      return {};
    }
    atom_ = out_.size();
    if (c == '[') {
      ++at_;
      MINISGL_ASSIGN_OR_RETURN(const CharacterClass set, ReadClass(0));
      out_ += set.regex;
      return {};
    }
    if (c == '\\') {
      MINISGL_ASSIGN_OR_RETURN(const std::string escape, ReadEscape(/*in_class=*/false));
      out_ += escape;
      return {};
    }
    out_ += c;
    // A character is one atom, even if it has several bytes.
    for (++at_; at_ < pattern_.size() && (pattern_[at_] & 0xC0) == 0x80; ++at_) {
      out_ += pattern_[at_];
    }
    return {};
  }

  Status OpenGroup() {
    if (Sees("(*")) return Refuse("\"(*\"");
    if (Sees("(?C")) return Refuse("\"(?C\"");
    groups_.push_back(out_.size());
    out_ += pattern_[at_++];
    if (!Sees("?")) return {};
    out_ += pattern_[at_++];
    // Options: Ruby's "m" is PCRE2's "s".
    while (at_ < pattern_.size() && (Sees("i") || Sees("m") || Sees("x") || Sees("-"))) {
      out_ += pattern_[at_] == 'm' ? 's' : pattern_[at_];
      ++at_;
    }
    // The prefix of other kinds of group is not an atom.
    while (at_ < pattern_.size() &&
           (Sees(":") || Sees("=") || Sees("!") || Sees("<") || Sees(">"))) {
      out_ += pattern_[at_++];
    }
    return {};
  }

  // Returns the length of the interval "{2}", "{2,}", "{,3}" or "{2,3}" at the current place; 0 if
  // there is none.
  size_t Interval() const {
    size_t end = at_ + 1;
    size_t digits = 0;
    bool has_comma = false;
    for (; end < pattern_.size(); ++end) {
      if (IsDigit(pattern_[end])) {
        ++digits;
      } else if (pattern_[end] == ',' && !has_comma) {
        has_comma = true;
      } else {
        break;
      }
    }
    return end < pattern_.size() && pattern_[end] == '}' && digits > 0 ? end + 1 - at_ : 0;
  }

  void Repeat(size_t length) {
    std::string interval(pattern_.substr(at_, length));
    if (interval.starts_with("{,")) interval.insert(1, "0");
    at_ += length;
    out_ += interval;
    if (!Sees("+")) return;
    out_.insert(atom_, "(?:");
    out_ += ')';
  }

  // Converts the name of a property in braces: "{Letter}" to "{L}", "{Han}" to "{sc:Han}".
  static std::string Property(std::string_view braces) {
    std::string_view name = braces.substr(1, braces.size() - 2);
    const bool negated = name.starts_with("^");
    if (negated) name.remove_prefix(1);
    std::string folded;
    for (char c : name) {
      if (c != '_' && c != ' ' && c != '-') folded += c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    }
    std::string spelled(name);
    for (const auto& [long_name, short_name] : kCategories) {
      if (folded == long_name) spelled = short_name;
    }
    // Without "sc:", PCRE2 includes all characters used with the script, such as "、" for {Han}.
    if (name.size() > 2 && spelled == name && IsScript(name)) spelled = fmt::format("sc:{}", name);
    return fmt::format("{{{}{}}}", negated ? "^" : "", spelled);
  }

  // Reads and converts the escape at the current place.
  Result<std::string> ReadEscape(bool in_class) {
    if (at_ + 1 >= pattern_.size()) return Refuse("a trailing backslash");
    const char c = pattern_[at_ + 1];
    const auto set = [&](std::string_view members, bool negated) {
      at_ += 2;
      if (in_class) return std::string(members);
      return fmt::format("[{}{}]", negated ? "^" : "", members);
    };
    switch (c) {
      case 's':
        return set(kSpaces, false);
      case 'S':
        return in_class ? set(kNoSpaces, false) : set(kSpaces, true);
      case 'w':
        return set(kWordCharacters, false);
      case 'h':
        return set(kHexDigits, false);
      case 'W':
      case 'H':
        if (in_class) return Refuse("\\W or \\H in a class");
        return set(c == 'W' ? kWordCharacters : kHexDigits, true);
      case 'b':
      case 'B': {
        if (in_class) break;  // a backspace
        at_ += 2;
        const bool inside = c == 'B';
        return fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", kWordCharacters,
                           inside ? "=" : "!", inside ? "!" : "=");
      }
      case 'v':
        at_ += 2;
        return std::string("\\x0b");
      case 'Q':
      case 'E':
      case 'C':
      case 'K':
        return Refuse("\\Q, \\E, \\C or \\K");
      case 'u': {
        const std::string_view digits = pattern_.substr(at_ + 2, 4);
        for (char digit : digits) {
          if (!IsHexDigit(digit)) return Refuse("\\u without four hexadecimal digits");
        }
        if (digits.size() < 4) return Refuse("\\u without four hexadecimal digits");
        at_ += 6;
        return fmt::format("\\x{{{}}}", digits);
      }
      case 'p':
      case 'P':
      case 'x':
        return ReadBraces();
      default:
        break;
    }
    const size_t length = 1 + std::max<size_t>(Utf8CharLength(pattern_.substr(at_ + 1)), 1);
    std::string escape(pattern_.substr(at_, length));
    at_ += length;
    return escape;
  }

  // Reads `\p`, `\P` or `\x` with an optional argument in braces.
  Result<std::string> ReadBraces() {
    const std::string start(pattern_.substr(at_, 2));
    at_ += 2;
    if (!Sees("{")) return start;
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return Refuse("a brace without an end");
    const std::string_view braces = pattern_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    return start + (start == "\\x" ? std::string(braces) : Property(braces));
  }

  // One operand of `&&`: members for one class of PCRE2, and classes that cannot be merged into it.
  struct Operand {
    std::string members;
    std::vector<std::string> classes;

    std::string Regex() const {
      if (classes.empty()) return members.empty() ? "(?!)" : fmt::format("[{}]", members);
      std::string all;
      for (const std::string& one : classes)
        all += fmt::format("{}{}", all.empty() ? "" : "|", one);
      if (!members.empty()) all += fmt::format("|[{}]", members);
      return fmt::format("(?:{})", all);
    }
  };

  // Reads the class whose "[" precedes the current place.
  Result<CharacterClass> ReadClass(int depth) {
    if (depth >= kClassDepthMax) return Refuse("classes nested more than 8 deep");
    const bool negated = Sees("^");
    if (negated) ++at_;
    std::vector<Operand> operands(1);
    bool is_first = true;
    while (true) {
      if (at_ >= pattern_.size()) return Refuse("a class without an end");
      Operand& operand = operands.back();
      if (Sees("]") && !is_first) break;
      if (Sees("&&")) {
        at_ += 2;
        operands.emplace_back();
      } else {
        MINISGL_RETURN_IF_ERROR(ReadMember(depth, &operand));
      }
      is_first = false;
    }
    ++at_;
    return MakeClass(operands, negated);
  }

  Status ReadMember(int depth, Operand* operand) {
    if (Sees("[:")) {
      const size_t end = pattern_.find(":]", at_);
      if (end == std::string_view::npos) return Refuse("[: without an end");
      const std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
      std::string_view members = pattern_.substr(at_, end + 2 - at_);
      for (const auto& [posix, set] : kPosixClasses) {
        if (name == posix) members = set;
      }
      operand->members += members;
      at_ = end + 2;
      return {};
    }
    if (Sees("[")) {
      ++at_;
      MINISGL_ASSIGN_OR_RETURN(const CharacterClass inner, ReadClass(depth + 1));
      if (inner.is_plain) {
        operand->members += inner.members;
      } else {
        operand->classes.push_back(inner.regex);
      }
      return {};
    }
    if (Sees("\\")) {
      MINISGL_ASSIGN_OR_RETURN(const std::string escape, ReadEscape(/*in_class=*/true));
      operand->members += escape;
      return {};
    }
    if (Sees("]")) operand->members += '\\';  // a literal "]" as the first member
    operand->members += pattern_[at_++];
    return {};
  }

  static CharacterClass MakeClass(const std::vector<Operand>& operands, bool negated) {
    CharacterClass set;
    if (operands.size() == 1 && operands[0].classes.empty()) {
      set.is_plain = !negated;
      set.members = operands[0].members;
      set.regex = fmt::format("[{}{}]", negated ? "^" : "", set.members);
      return set;
    }
    set.is_plain = false;
    for (size_t i = 1; i < operands.size(); ++i) {
      set.regex += fmt::format("(?={})", operands[i].Regex());
    }
    set.regex += operands[0].Regex();
    set.regex =
        negated ? fmt::format("(?:(?!{})(?s:.))", set.regex) : fmt::format("(?:{})", set.regex);
    return set;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // beginning of the last atom in `out_`
  std::vector<size_t> groups_;  // beginnings of the open groups in `out_`
};

}  // namespace

Result<std::string> PcrePattern(std::string_view pattern) { return Rewriter(pattern).Run(); }

}  // namespace minisgl::text
