// History of lines typed at the chat prompt, kept in a file across sessions.
//
// The file holds plain lines, oldest first, readable only by its owner (permissions of an old file
// are restricted). A file that is not a regular file is refused with a warning. Each line is
// appended when it is entered, so that nothing is lost if the program is killed, and concurrent
// sessions do not overwrite each other. All other errors are ignored: the history is optional.
#pragma once

#include <string>
#include <vector>

namespace minisgl::chat {

class HistoryFile {
 public:
  static constexpr size_t kLinesMax = 1000;

  // With "", no history is kept.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // Returns the last kLinesMax lines; a file with more than twice as many is shortened to these.
  std::vector<std::string> Load();
  // REQUIRES no line break in `line`.
  void Append(const std::string& line);

 private:
  std::string path_;
};

}  // namespace minisgl::chat
