// The lines that were typed at the chat prompt, kept in a file from one session to the next.
//
// Plain lines, the oldest first, in a file that only its owner reads (an old file that others may
// read is closed to them). What is no regular file is refused with a warning. Every line is
// appended as it is typed, so that nothing is lost where the program is killed and sessions at the
// same time do not undo each other. History is a comfort: what else fails is left out without a
// word.
#pragma once

#include <string>
#include <vector>

namespace minisgl::chat {

class HistoryFile {
 public:
  static constexpr size_t kLinesMax = 1000;

  // "": nothing is kept.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // The last kLinesMax lines; a file of more than twice as many is cut to those.
  std::vector<std::string> Load();
  // REQUIRES no line break in `line`.
  void Append(const std::string& line);

 private:
  std::string path_;
};

}  // namespace minisgl::chat
