// History of what was entered at the chat prompt, kept in a file across sessions.
//
// The file holds one entry a line, oldest first, readable only by its owner (permissions of an old
// file are restricted): the line as the editor shows it or, if it has labels of longer texts, the
// character U+001E and a JSON object with the line and these texts. A file that is not a regular
// file is refused with a warning. Each entry is appended when it is entered, so that nothing is
// lost if the program is killed, and concurrent sessions do not overwrite each other. All other
// errors are ignored: the history is optional.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace minisgl::chat {

struct HistoryEntry {
  std::string line;  // as the editor shows it (see labelled_texts.h)
  // The labels in the line, and what they stand for. A label is in brackets and has no others.
  std::vector<std::pair<std::string, std::string>> texts;
  bool operator==(const HistoryEntry&) const = default;
};

class HistoryFile {
 public:
  static constexpr size_t kEntriesMax = 1000;
  // An entry with longer texts is not written: it can be recalled in its own session only.
  static constexpr size_t kTextBytesMax = size_t{1} << 20;

  // With "", no history is kept.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // Returns the last kEntriesMax entries, fewer if they are long. A file that is much longer is
  // shortened to these.
  std::vector<HistoryEntry> Load();
  // REQUIRES no line break in `entry.line`.
  void Append(const HistoryEntry& entry);

 private:
  std::string path_;
};

}  // namespace minisgl::chat
