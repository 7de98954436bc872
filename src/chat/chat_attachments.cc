#include "chat/chat_attachments.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "batch/image_reader.h"
#include "batch/row_images.h"
#include "chat/chat_completion.h"
#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/vision/picture.h"
#include "term/messages.h"

namespace minisgl::chat {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kPunctuation = ".,;:!?)]}\"'";

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(ExpandHome(path), error);
}

bool IsPictureFile(const std::string& path) {
  const Result<std::string> bytes = ReadFile(ExpandHome(path), PictureLimits().bytes_max);
  return bytes.ok() && batch::IsPicture(*bytes);
}

// A path as a shell reads it.
std::string WithoutBackslashes(const std::string& typed) {
  std::string path;
  for (size_t i = 0; i < typed.size(); ++i) {
    if (typed[i] == '\\' && i + 1 < typed.size()) ++i;
    path += typed[i];
  }
  return path;
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
  DropByteOrderMark(&text);
  if (batch::IsPicture(text)) {
    return BadInput("{} is a picture; /image {} shows it to the model", Visible(path, 400),
                    Visible(path, 400));
  }
  if (text.find('\0') != std::string::npos) {
    return BadInput("{} is not a text file (it contains NUL bytes)", Visible(path, 400));
  }
  text = term::Utf8OrWarn(std::move(text), Visible(path, 400));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<AttachedMessage> AttachFiles(const std::string& message) {
  if (message.find('\n') != std::string::npos) return AttachedMessage{message, {}};
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
  AttachedMessage attached;
  for (const std::string& file : files) {
    if (IsPictureFile(file)) {
      attached.pictures.push_back(file);
      continue;
    }
    MINISGL_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(file));
    attached.text += file + ":\n" + content + "\n\n";
  }
  attached.text += text;
  return attached;
}

std::string PastedPicture(std::string_view line) {
  const size_t begin = std::min(line.find_first_not_of(kBlanks), line.size());
  line = line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
  if (line.empty() || line.find('\n') != std::string_view::npos) return "";
  const bool is_quoted = line.size() > 2 && (line.front() == '\'' || line.front() == '"') &&
                         line.back() == line.front();
  std::string path(is_quoted ? line.substr(1, line.size() - 2) : line);
  if (path.starts_with("file:")) {
    const Result<batch::RowImage> image = batch::ImageNamed(path);
    path = image.ok() ? image->path : "";
  } else if (!is_quoted && !IsFile(path)) {
    path = WithoutBackslashes(path);
  }
  return !path.empty() && IsFile(path) && IsPictureFile(path) ? path : "";
}

}  // namespace minisgl::chat
