// Makes model output safe for a terminal: the filtered text cannot move the cursor, set the title
// or write the clipboard.
//
// Dropped:
// - C0 controls except line break and tab; DEL; C1 controls (as U+0080..U+009F and as stray 8-bit
//   bytes)
// - complete escape sequences and control strings (CSI, OSC, DCS, SOS, PM, APC, screen's title),
//   even if split over several calls of Push or unterminated. A control string ends at a line break
//   at the latest, so that an unterminated one hides only the rest of its line.
// - characters for which IsDisplayControl() of base/utf8.h is true (bidirectional controls, tags
//   and similar)
//
// Ill-formed UTF-8 becomes U+FFFD. The result does not depend on how the text is split into pushes.
// Use for terminals only: a pipe gets exact bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minisgl::term {

class TerminalFilter {
 public:
  // Returns what may be shown of `text` and of the bytes held back before it.
  std::string Push(std::string_view text);
  // Returns the rest at the end of a text. The next Push begins a new text: an unfinished sequence
  // is dropped.
  std::string Finish();

 private:
  // State of a terminal's parser. kOsc differs from kString in that BEL ends it.
  enum class State : uint8_t { kGround, kEscape, kEscapeIntermediate, kCsi, kOsc, kString };

  // `code` is a character below U+00A0, or a C1 control given as a single byte.
  void Control(uint32_t code, std::string* out);
  void Printable(std::string_view character, std::string* out);
  void StartEscape(uint32_t code);
  bool InString() const { return state_ == State::kOsc || state_ == State::kString; }

  State state_ = State::kGround;
  std::string pending_;  // bytes of an incomplete character
};

// Filters `text` as a whole.
std::string FilterForTerminal(std::string_view text);

}  // namespace minisgl::term
