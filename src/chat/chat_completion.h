// What Tab offers at the chat prompt: commands, their arguments, and the names of files.
//
// Reads directories for names of files, and nothing else.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::chat {

// What a command's argument names.
enum class ArgumentKind { kNone, kText, kFile, kTwoFiles, kBranch, kParameter, kCommand };

struct Completion {
  size_t begin = 0;                // where the word that is completed begins in the line
  std::vector<std::string> words;  // what it may become, sorted
};

struct CompletionWords {
  std::vector<std::string> commands;  // without their "/"
  std::function<ArgumentKind(std::string_view command)> argument;
  std::vector<std::string> branches;
  std::vector<std::string> parameters;
};

// `line` is what stands before the cursor. No words for a line that is no command.
Completion CompleteChatLine(std::string_view line, const CompletionWords& words);

// What all of `words` begin with. REQUIRES at least one.
std::string CommonPrefix(const std::vector<std::string>& words);

// `words` in columns of a terminal of `columns`.
std::string InColumns(const std::vector<std::string>& words, size_t columns);

// `path` with the home directory in place of a "~" that begins it.
std::string ExpandHome(const std::string& path);

// The word of `words` that `typed` is most likely meant for: one that begins with it, or that
// differs by two letters at most; "" where none is.
std::string NearestWord(std::string_view typed, const std::vector<std::string>& words);

}  // namespace minisgl::chat
