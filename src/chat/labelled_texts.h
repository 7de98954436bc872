// Texts that the line editor shows as labels, such as "[pasted text 1: 3 lines, 18 bytes]".
//
// The edited line has the label and, for a line break, kLineBreakSign; Expand returns the text that
// they stand for. A label stands for the same text as long as the object lives, so that a line of
// the history can be sent again. Used by one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chat/chat_history.h"

namespace minisgl::chat {

// Shown in place of a line break, since the editor has one line.
inline constexpr std::string_view kLineBreakSign = "\u21B5";

class LabelledTexts {
 public:
  // Returns the label of a text that was pasted into the current message.
  std::string AddPaste(std::string text);
  // True if Expand would change `text`.
  bool HasMarks(std::string_view text) const;
  // Returns the text of an edited line of the current message. Labels within a text that a label
  // stands for are not expanded.
  std::string Expand(std::string_view line);
  // Returns the entry of the history for the current message or command, which has the whole text
  // `text`, and begins another message. The texts of labels in its lines get these labels again;
  // what was typed gets one if it is long and has line breaks, or has control characters.
  HistoryEntry TakeEntry(const std::string& text);
  // Begins another message; the current one was discarded.
  void Discard();
  // Takes the texts of an entry of the history over, and returns the line that shows it.
  std::string Adopt(const HistoryEntry& entry);

 private:
  enum class Kind { kPasted, kTyped };
  struct Part {
    std::string_view shown;
    const std::string* text = nullptr;  // null: `shown` is ordinary text
    bool is_break = false;
  };
  // Returns the first part of `line`, which is not empty, and removes it from there.
  Part TakePart(std::string_view* line) const;
  // Returns a label that stands for `text`, of the first number from `number` on that is free.
  std::string LabelOf(Kind kind, std::string text, size_t number);
  // Returns `text` as the editor shows it.
  std::string Shown(std::string_view text);

  std::unordered_map<std::string, std::string> texts_;  // by label
  size_t num_pastes_ = 0;                               // of the current message
  std::vector<std::string> used_;  // labels that Expand met in the current message, in order
};

}  // namespace minisgl::chat
