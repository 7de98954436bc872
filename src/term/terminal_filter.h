// Makes text from a model harmless to a terminal: what is left moves no cursor, sets no title,
// writes no clipboard.
//
// Dropped: C0 controls but line break and tab, DEL, C1 controls (as U+0080..U+009F and as stray
// 8-bit bytes), and whole escape sequences and control strings (CSI, OSC, DCS, SOS, PM, APC,
// screen's title), also where they are cut by the end of a push or never end: a control string
// ends at a line break at the latest, so that one without an end hides no more than its line. What
// IsDisplayControl() of base/utf8.h names (controls that reorder text, tags and the like) is
// dropped too. Ill-formed UTF-8 becomes U+FFFD. The output is the same however the text is cut into
// pushes. For terminals only: a pipe gets exact bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minisgl::term {

class TerminalFilter {
 public:
  // What of `text`, and of what was held back before it, may be shown.
  std::string Push(std::string_view text);
  // What is left at the end of a text. The next Push begins a new one: an unfinished sequence ends
  // here.
  std::string Finish();

 private:
  // Where a terminal's parser would be. kOsc differs from kString in that BEL ends it.
  enum class State : uint8_t { kGround, kEscape, kEscapeIntermediate, kCsi, kOsc, kString };

  // `code` is a character below U+00A0, or a C1 control that came as a byte.
  void Control(uint32_t code, std::string* out);
  void Printable(std::string_view character, std::string* out);
  void StartEscape(uint32_t code);
  bool InString() const { return state_ == State::kOsc || state_ == State::kString; }

  State state_ = State::kGround;
  std::string pending_;  // bytes of a character that is not whole yet
};

// `text` as one whole through a filter.
std::string FilterForTerminal(std::string_view text);

}  // namespace minisgl::term
