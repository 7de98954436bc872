#include "term/text_layout.h"

#include <fmt/core.h>

#include <algorithm>

#include "minisgl/base/utf8.h"
#include "minisgl/text/character_columns.h"

namespace minisgl::term {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kCode = "\x1b[36m", kFaint = "\x1b[2m",
                           kReset = "\x1b[0m";
constexpr std::string_view kBullet = "\u2022", kQuote = "\u2502 ", kRule = "\u2500";
constexpr int kTabColumns = 8;
// In narrower terminals words would stand one below the other: they are cut.
constexpr int kColumnsMin = 20;
constexpr size_t kCodeIndent = 4;
constexpr size_t kFenceMin = 3;
constexpr size_t kHeadingMax = 6;
constexpr size_t kNumberMax = 10;  // digits of a number of a list, and the sign behind them

// East Asian characters that begin no row, and those that end none.
constexpr std::string_view kClosing[] = {"\u3001", "\u3002", "\uFF0C", "\uFF0E", "\uFF01",
                                         "\uFF1F", "\uFF1A", "\uFF1B", "\uFF09", "\u300D",
                                         "\u300F", "\u3011", "\u3015", "\u3009", "\u300B"};
constexpr std::string_view kOpening[] = {"\uFF08", "\u300C", "\u300E", "\u3010",
                                         "\u3014", "\u3008", "\u300A"};

bool IsClosing(std::string_view character) {
  return std::find(std::begin(kClosing), std::end(kClosing), character) != std::end(kClosing);
}

bool EndsWithOpening(std::string_view word) {
  return std::any_of(std::begin(kOpening), std::end(kOpening),
                     [&](std::string_view opening) { return word.ends_with(opening); });
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsSpace(std::string_view character) {
  return character == " " || character == "\t" || character == "\n";
}

// Part of a word of a script that writes spaces between words.
bool IsLetter(std::string_view character) {
  if (character.empty()) return false;
  const char c = character.front();
  if (static_cast<uint8_t>(c) >= 0x80) return CharacterColumns(character) == 1;
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The first character, or byte, of `text`.
std::string_view FirstOf(std::string_view text) {
  return text.substr(0, std::max<size_t>(Utf8CharLength(text), 1));
}

// The last character of `text`, which is not empty.
std::string_view LastOf(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

// The number of bytes `mark` at the beginning of `text`.
size_t RunOf(char mark, std::string_view text) {
  return std::min(text.find_first_not_of(mark), text.size());
}

size_t IndentOf(std::string_view line) {
  return std::min(line.find_first_not_of(" \t"), line.size());
}

int ColumnsOf(std::string_view indent) {
  int columns = 0;
  for (const char c : indent) columns += c == '\t' ? kTabColumns - columns % kTabColumns : 1;
  return columns;
}

// "12." or "12)", or the beginning of one.
bool IsNumber(std::string_view word, bool whole) {
  const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  if (digits == 0 || word.size() > kNumberMax) return false;
  if (digits == word.size()) return !whole;
  return digits + 1 == word.size() && (word.back() == '.' || word.back() == ')');
}

// True if a line may begin with a mark that begins with `word`, and `word` does not show yet which
// one it is.
bool MayBeMark(std::string_view word) {
  const char first = word.front();
  const bool is_run = RunOf(first, word) == word.size();
  switch (first) {
    case '-':
    case '*':
    case '_':
    case '`':
    case '~':
      return is_run;
    case '#':
      return is_run && word.size() <= kHeadingMax;
    case '+':
    case '>':
      return word.size() == 1;
    default:
      return IsNumber(word, /*whole=*/false);
  }
}

bool IsRule(std::string_view line) {
  return line.size() >= 3 && std::string_view("-*_").find(line[0]) != std::string_view::npos &&
         RunOf(line[0], line) == line.size();
}

// The mark of a line that opens a block of code; "" if it is none.
std::string_view FenceOf(std::string_view line) {
  line.remove_prefix(IndentOf(line));
  if (line.empty() || (line[0] != '`' && line[0] != '~')) return "";
  const std::string_view mark = line.substr(0, RunOf(line[0], line));
  // `Code` within a line may have several marks, too.
  const bool closes = mark[0] == '`' && line.find('`', mark.size()) != std::string_view::npos;
  return mark.size() < kFenceMin || closes ? "" : mark;
}

// True if the line ends the block of code that `fence` opened; or, if it is not `whole`, may.
bool EndsFence(std::string_view line, std::string_view fence, bool whole) {
  line.remove_prefix(IndentOf(line));
  const size_t marks = RunOf(fence[0], line);
  if (line.find_first_not_of(" ", marks) != std::string_view::npos) return false;
  return !whole || marks >= fence.size();
}

}  // namespace

void TextLayout::Begin(TextStyle style) {
  std::function<int()> columns = std::move(columns_);
  *this = TextLayout(std::move(columns));
  style_ = style;
}

std::string TextLayout::Push(std::string_view text) {
  if (style_ == TextStyle::kPlain) return std::string(text);
  while (!text.empty()) {
    const std::string_view character = FirstOf(text);
    Take(character);
    text.remove_prefix(character.size());
  }
  return TakeOutput();
}

std::string TextLayout::Pause() {
  const bool has_mark =
      style_ == TextStyle::kMarkdown && word_.find_first_of("*`\\") != std::string::npos;
  if (line_ != Line::kText || word_.size() == shown_ || has_mark) return "";
  int width = 0;
  PutWord(word_, "", /*only_measures=*/true, &width);
  // In the last column the cursor does not tell whether it is behind the last character.
  if (shown_ == 0 && !Fits(width + 1)) return "";
  if (column_ + width >= columns_()) return "";
  if (shown_ == 0) PutSpaces();
  PutWord(word_, "", /*only_measures=*/false, &width);
  shown_ = word_.size();
  shown_width_ = width;
  return TakeOutput();
}

std::string TextLayout::Finish() {
  if (line_ == Line::kFence && TakeFalseFence()) {
    // It is text, which EndWord completes.
  } else if (!fence_.empty() || line_ == Line::kFence) {
    Put(start_, kCode);
  } else if (!start_.empty()) {
    TakeStart(/*before_space=*/false);
  }
  EndWord("");
  std::string rest = TakeOutput();
  Begin(style_);
  return rest;
}

void TextLayout::Put(std::string_view text, std::string_view style) {
  if (text.empty()) return;
  if (style != out_style_) {
    if (!out_style_.empty()) out_ += kReset;
    out_ += style;
    out_style_ = style;
  }
  out_ += text;
}

std::string TextLayout::TakeOutput() {
  if (!out_style_.empty()) out_ += kReset;
  out_style_ = "";
  return std::exchange(out_, std::string());
}

void TextLayout::Take(std::string_view character) {
  if (line_ == Line::kFence) {
    if (character == "\n") return EndFenceLine();
    start_ += character;
  } else if (!fence_.empty()) {
    TakeInCode(character);
  } else if (character == "\n") {
    EndLine();
  } else if (line_ == Line::kStart) {
    const size_t indent = IndentOf(start_);
    if (IsSpace(character) && indent < start_.size()) {
      TakeStart(/*before_space=*/true);
      return Take(character);
    }
    start_ += character;
    if (IsSpace(character)) return;
    const std::string_view word = std::string_view(start_).substr(indent);
    const bool is_markdown = style_ == TextStyle::kMarkdown;
    if (!is_markdown || !MayBeMark(word)) TakeStart(/*before_space=*/false);
  } else if (line_ == Line::kUnwrapped) {
    Put(character);
  } else {
    TakeInText(character);
  }
}

void TextLayout::TakeInText(std::string_view character) {
  if (IsSpace(character)) {
    EndWord(character);
    before_ = " ";
    if (skips_spaces_) return;
    const auto column = static_cast<size_t>(column_) + spaces_;
    spaces_ += character == "\t" ? kTabColumns - column % kTabColumns : 1;
    return;
  }
  skips_spaces_ = false;
  const int columns = CharacterColumns(character);
  const bool ends_word = (columns == 2 || (last_is_wide_ && columns > 0)) && !word_.empty() &&
                         !IsClosing(character) && !EndsWithOpening(word_);
  if (ends_word) EndWord(character);
  word_ += character;
  if (columns > 0) last_is_wide_ = columns == 2;
}

// Puts code as it comes, except the beginning of a line that may end the block: that waits for the
// rest of the line.
void TextLayout::TakeInCode(std::string_view character) {
  if (character == "\n") {
    if (line_ == Line::kStart && EndsFence(start_, fence_, /*whole=*/true)) return EndFenceLine();
    Put(start_, kCode);
    Put("\n");
    start_.clear();
    line_ = Line::kStart;
    return;
  }
  if (line_ == Line::kCode) return Put(character, kCode);
  start_ += character;
  if (EndsFence(start_, fence_, /*whole=*/false)) return;
  line_ = Line::kCode;
  Put(std::exchange(start_, std::string()), kCode);
}

// Takes the beginning of a line, which by now tells the kind of the line.
void TextLayout::TakeStart(bool before_space) {
  const size_t indent = IndentOf(start_);
  if (indent < start_.size() && !FenceOf(start_).empty() && style_ == TextStyle::kMarkdown) {
    line_ = Line::kFence;
    return;
  }
  const std::string start = std::exchange(start_, std::string());
  const std::string_view word = std::string_view(start).substr(indent);
  const std::string_view spaces = std::string_view(start).substr(0, indent);
  line_ = Line::kText;
  const bool is_markdown = style_ == TextStyle::kMarkdown;
  if (is_markdown && before_space && TakeMark(word, indent)) return;
  const bool is_code = !in_list_ && ColumnsOf(spaces) >= static_cast<int>(kCodeIndent);
  if (is_code || (is_markdown && word.starts_with('|'))) {
    line_ = Line::kUnwrapped;
    return Put(start);
  }
  if (indent == 0) in_list_ = false;
  if (in_list_) {
    Hang(spaces, "", ColumnsOf(spaces));
  } else {
    Put(spaces);
    column_ = ColumnsOf(spaces);
  }
  TakeText(word);
}

void TextLayout::TakeText(std::string_view text) {
  while (!text.empty()) {
    const std::string_view character = FirstOf(text);
    TakeInText(character);
    text.remove_prefix(character.size());
  }
}

// Takes the word as a mark of the whole line; returns false if it is none.
bool TextLayout::TakeMark(std::string_view word, size_t indent) {
  const bool is_bullet = word == "-" || word == "*" || word == "+";
  const bool is_item = is_bullet || IsNumber(word, /*whole=*/true);
  const bool is_heading = word.front() == '#' && indent < kCodeIndent;
  if (!is_item && !is_heading && word != ">") return false;
  bold_ = false;
  code_ticks_ = 0;
  in_list_ = is_item || (in_list_ && indent > 0);
  const std::string spaces(indent, ' ');
  skips_spaces_ = true;
  before_ = " ";
  if (word == ">") {
    Hang(spaces + std::string(kQuote), kFaint, static_cast<int>(indent) + 2);
  } else if (is_item) {
    Put(spaces + std::string(is_bullet ? kBullet : word) + " ");
    const size_t width = indent + (is_bullet ? 1 : word.size()) + 1;
    hanging_ = std::string(width, ' ');
    column_ = hanging_width_ = static_cast<int>(width);
  } else {
    heading_ = true;
  }
  return true;
}

// This row and the further ones of the line begin with `prefix`.
void TextLayout::Hang(std::string_view prefix, std::string_view style, int width) {
  Put(prefix, style);
  hanging_ = prefix;
  hanging_style_ = style;
  column_ = hanging_width_ = width;
}

void TextLayout::EndLine() {
  const size_t indent = IndentOf(start_);
  const bool is_blank = line_ == Line::kStart && indent == start_.size();
  if (is_blank) {
    bold_ = false;
    code_ticks_ = 0;
  } else if (line_ == Line::kStart && IsRule(std::string_view(start_).substr(indent)) &&
             style_ == TextStyle::kMarkdown) {
    for (int i = std::clamp(columns_(), 3, 40); i > 0; --i) Put(kRule, kFaint);
  } else if (line_ == Line::kStart) {
    TakeStart(/*before_space=*/false);
    if (line_ == Line::kFence) return EndFenceLine();
  }
  EndWord("\n");
  Put("\n");
  start_.clear();
  before_.clear();
  hanging_.clear();
  hanging_style_ = "";
  line_ = Line::kStart;
  spaces_ = 0;
  column_ = hanging_width_ = 0;
  has_word_ = heading_ = skips_spaces_ = false;
}

// Takes a line as text that began as one that opens a block of code and ends as another; returns
// false if it opens one.
bool TextLayout::TakeFalseFence() {
  if (!fence_.empty() || !FenceOf(start_).empty()) return false;
  const std::string text = std::exchange(start_, std::string());
  line_ = Line::kText;
  TakeText(text);
  return true;
}

// Ends a line that opens or closes a block of code.
void TextLayout::EndFenceLine() {
  if (TakeFalseFence()) return EndLine();
  Put(start_, kFaint);
  Put("\n");
  fence_ = fence_.empty() ? std::string(FenceOf(start_)) : "";
  start_.clear();
  line_ = Line::kStart;
}

void TextLayout::BreakRow() {
  Put("\n");
  Put(hanging_, hanging_style_);
  column_ = hanging_width_;
  has_word_ = false;
}

void TextLayout::PutSpaces() {
  Put(std::string(spaces_, ' '));
  column_ += static_cast<int>(spaces_);
  spaces_ = 0;
}

// True if so many columns are left in this row for the word and the spaces before it.
bool TextLayout::Fits(int width) const {
  const int columns = columns_();
  return columns < kColumnsMin || column_ + static_cast<int>(spaces_) + width <= columns;
}

void TextLayout::EndWord(std::string_view next) {
  if (word_.empty()) return;
  const std::string word = std::exchange(word_, std::string());
  last_is_wide_ = false;
  const int columns = columns_();
  int width = 0;
  PutWord(word, next, /*only_measures=*/true, &width);
  if (Fits(width) || !has_word_) {
    PutSpaces();
  } else {
    if (shown_ > 0) Put(fmt::format("\x1b[{}D\x1b[K", shown_width_));
    shown_ = 0;
    spaces_ = 0;
    BreakRow();
  }
  PutWord(word, next, /*only_measures=*/false, &width);
  shown_ = 0;
  column_ += width;
  // The terminal has cut a word that is longer than a row.
  if (columns > 0 && column_ > columns) column_ = (column_ - 1) % columns + 1;
  has_word_ = true;
  before_ = LastOf(word);
}

void TextLayout::PutWord(std::string_view word, std::string_view next, bool only_measures,
                         int* width) {
  const bool bold_before = bold_;
  const size_t ticks_before = code_ticks_;
  std::string_view before = before_;
  size_t skipped = shown_;  // that are not put again
  *width = 0;
  const auto put = [&](std::string_view text) {
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(FirstOf(rest).size())) {
      *width += CharacterColumns(FirstOf(rest));
    }
    const bool was_shown = skipped >= text.size();
    skipped -= std::min(skipped, text.size());
    if (only_measures || was_shown) return;
    Put(text, code_ticks_ > 0 ? kCode : bold_ || heading_ ? kBold : "");
  };
  const bool is_markdown = style_ == TextStyle::kMarkdown;
  while (!word.empty()) {
    std::string_view taken = FirstOf(word);
    const size_t run = RunOf(word[0], word);
    const std::string_view after = run < word.size() ? FirstOf(word.substr(run)) : next;
    if (is_markdown && taken == "`") {
      taken = word.substr(0, run);
      const bool ends = code_ticks_ == run;
      if (code_ticks_ == 0) code_ticks_ = run;
      put(taken);
      if (ends) code_ticks_ = 0;
    } else if (!is_markdown || code_ticks_ > 0) {
      put(taken);
    } else if (taken == "\\" && run == 1 && !after.empty() &&
               std::string_view("*_`#").find(after) != std::string_view::npos) {
      taken = word.substr(0, 1 + after.size());
      put(after);
    } else if (taken == "*" && (run == 2 || run == 3)) {
      taken = word.substr(0, run);
      const bool begins = !bold_ && !after.empty() && !IsSpace(after) && !IsLetter(before);
      const bool ends = bold_ && !before.empty() && !IsSpace(before);
      if (begins || ends) {
        bold_ = begins;
      } else {
        put(taken);
      }
    } else {
      put(taken);
    }
    before = LastOf(taken);
    word.remove_prefix(taken.size());
  }
  if (only_measures) {
    bold_ = bold_before;
    code_ticks_ = ticks_before;
  }
}

}  // namespace minisgl::term
