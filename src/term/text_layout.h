// Lays out an answer on a terminal while it is generated: words are not cut at the end of a row,
// and Markdown is shown formatted.
//
// - A word is held back until it ends, and stands on the next row if it does not fit. If nothing
//   comes for a while, its beginning is shown, and moved if the rest does not fit. Wide characters
//   of East Asian scripts are words of their own. A word longer than a row is cut.
// - Markdown: **bold** and headings are bold, `code` and blocks of code are coloured, bullets and
//   rules are drawn, further rows of an item or quote stand below its text. All else stays as
//   written, including marks that begin nothing: "2 * 3", "2**3".
// - Blocks of code between fences, lines indented by four spaces outside of lists, and rows of
//   tables are not wrapped.
// - The result of Push ends with no style set, because the program may end between two pieces.
//
// The text must have passed a TerminalFilter. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace minisgl::term {

// kPlain: the text as it is. kWrapped: no words are cut.
enum class TextStyle : uint8_t { kPlain, kWrapped, kMarkdown };

class TextLayout {
 public:
  // `columns` is asked for each word: the terminal may be resized.
  explicit TextLayout(std::function<int()> columns) : columns_(std::move(columns)) {}

  // Begins a text at the beginning of a row.
  void Begin(TextStyle style);
  // Returns the part that may be shown of the text held back before and of `text`, which ends
  // between two characters.
  std::string Push(std::string_view text);
  // Returns the part that may be shown of a word that is held back.
  std::string Pause();
  // Returns the rest.
  std::string Finish();

 private:
  // The kind of the current line. kStart: not known yet; kFence: it opens or ends a block of code.
  enum class Line : uint8_t { kStart, kText, kUnwrapped, kCode, kFence };

  void Take(std::string_view character);
  void TakeInText(std::string_view character);
  void TakeText(std::string_view text);
  void TakeInCode(std::string_view character);
  void TakeStart(bool before_space);
  bool TakeMark(std::string_view word, size_t indent);
  void Hang(std::string_view prefix, std::string_view style, int width);
  void EndLine();
  void EndFenceLine();
  bool TakeFalseFence();
  void EndWord(std::string_view next);
  void BreakRow();
  void PutSpaces();
  bool Fits(int width) const;
  // Puts the word without its marks, or measures it. A part that was shown is not put again.
  void PutWord(std::string_view word, std::string_view next, bool only_measures, int* width);
  void Put(std::string_view text, std::string_view style = "");
  std::string TakeOutput();

  TextStyle style_ = TextStyle::kPlain;
  std::function<int()> columns_;
  std::string out_;             // of this Push
  std::string_view out_style_;  // set at the end of out_; "": none

  Line line_ = Line::kStart;
  std::string start_;          // of the line, held back until its kind is known
  std::string word_;           // held back
  size_t shown_ = 0;           // bytes of word_ that Pause has shown
  int shown_width_ = 0;        // and their columns, behind column_
  bool last_is_wide_ = false;  // the last character of word_
  std::string before_;         // the character before word_; "": none in this line
  size_t spaces_ = 0;          // between the text put so far and word_
  bool skips_spaces_ = false;  // after a mark that has its space
  int column_ = 0;             // behind the text put so far
  bool has_word_ = false;      // in this row
  std::string hanging_;        // at the beginning of the further rows of this line
  std::string_view hanging_style_;
  int hanging_width_ = 0;
  bool in_list_ = false;

  // State of Markdown:
  bool bold_ = false, heading_ = false;
  size_t code_ticks_ = 0;  // that began the code within the text; 0: none
  std::string fence_;      // that opened the block of code; "": none
};

}  // namespace minisgl::term
