// Files named in a message: "Summarise @notes.txt", "What is on @photo.jpg?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::chat {

// Upper bound on the bytes of a file of text that is put before a message.
inline constexpr uint64_t kAttachedBytesMax = uint64_t{16} << 20;

// The text of the file at `path` ("~" is the home directory), without line breaks at its end. Bytes
// that are no UTF-8 are replaced, with a warning.
Result<std::string> ReadTextFile(const std::string& path);

// A message with what it names.
struct AttachedMessage {
  std::string text;
  std::vector<std::string> pictures;  // paths of files, each once
};

// Puts the text of each file that a word "@FILE" of `message` names before the message, under the
// file's name, and leaves the name in its place; a file that is a picture is one of `pictures`.
// Punctuation after the name is no part of it, if no file is called so. "@@" at the beginning of a
// word stands for "@". A word that names no file is an error if it has a "/" or "." like names of
// files, else it stays as it is. Messages of several lines, which may be code, stay as they are.
Result<AttachedMessage> AttachFiles(const std::string& message);

// The path of the picture that is all of `line`, as a file manager pastes it: with quotes around
// it, with backslashes before blanks, or as a file: URL. "" if the line is anything else.
std::string PastedPicture(std::string_view line);

}  // namespace minisgl::chat
