#include "chat/chat_attachments.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "chat/chat_completion.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "term/messages.h"

namespace minisgl::chat {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kPunctuation = ".,;:!?)]}\"'";

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(ExpandHome(path), error);
}

// The file that `word` begins with: all of it, or all but punctuation at its end. "" if none; an
// error if the word looks like the name of one.
Result<std::string> FileOf(std::string_view word) {
  std::string_view name = word;
  while (!name.empty()) {
    if (IsFile(std::string(name))) return std::string(name);
    if (kPunctuation.find(name.back()) == std::string_view::npos) break;
    name.remove_suffix(1);
  }
  if (name.find_first_of("/.") == std::string_view::npos) return std::string();
  return BadInput("@{}: no such file; write @@{} for the word itself", Visible(word, 400),
                  Visible(word, 400));
}

}  // namespace

Result<std::string> ReadTextFile(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(std::string text, ReadFile(ExpandHome(path), kAttachedBytesMax));
  if (text.find('\0') != std::string::npos) {
    return BadInput("{} is not a text file (it contains NUL bytes)", Visible(path, 400));
  }
  text = term::Utf8OrWarn(std::move(text), Visible(path, 400));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::string> AttachFiles(const std::string& message) {
  if (message.find('\n') != std::string::npos) return message;
  std::string text;
  std::vector<std::string> files;  // in order, each once
  size_t at = 0;
  while (at < message.size()) {
    const size_t begin = std::min(message.find_first_not_of(kBlanks, at), message.size());
    const size_t end = std::min(message.find_first_of(kBlanks, begin), message.size());
    text += message.substr(at, begin - at);
    std::string word = message.substr(begin, end - begin);
    at = end;
    if (word.starts_with("@@")) {
      word.erase(0, 1);
    } else if (word.size() > 1 && word.starts_with('@')) {
      MINISGL_ASSIGN_OR_RETURN(const std::string file, FileOf(std::string_view(word).substr(1)));
      if (!file.empty()) word.erase(0, 1);
      const bool is_new = std::find(files.begin(), files.end(), file) == files.end();
      if (!file.empty() && is_new) files.push_back(file);
    }
    text += word;
  }
  std::string attached;
  for (const std::string& file : files) {
    MINISGL_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(file));
    attached += file + ":\n" + content + "\n\n";
  }
  return attached + text;
}

}  // namespace minisgl::chat
