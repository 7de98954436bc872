// Tab completion at the chat prompt: commands, their arguments, and file names.
//
// Reads directories for file names, and nothing else.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::chat {

// Kind of a command's argument.
enum class ArgumentKind { kNone, kText, kFile, kTwoFiles, kBranch, kParameter, kCommand };

struct Completion {
  size_t begin = 0;                // start of the completed word in the line
  std::vector<std::string> words;  // possible completions, sorted
};

struct CompletionWords {
  std::vector<std::string> commands;  // without "/"
  std::function<ArgumentKind(std::string_view command)> argument;
  std::vector<std::string> branches;
  std::vector<std::string> parameters;
  std::vector<std::string> file_parameters;  // those of them whose value is a file
};

// Completes `line`, the text before the cursor: a command, or a file in a message's word "@FILE".
Completion CompleteChatLine(std::string_view line, const CompletionWords& words);

// Returns the longest common prefix of `words`. REQUIRES at least one.
std::string CommonPrefix(const std::vector<std::string>& words);

// Formats `words` in columns for a terminal of `columns`.
std::string InColumns(const std::vector<std::string>& words, size_t columns);

// Replaces "~" at the beginning of `path` by the home directory.
std::string ExpandHome(const std::string& path);

// `text` without white space at its ends.
std::string Trimmed(const std::string& text);

// Returns the word of `words` that `typed` probably means: one that begins with it, or differs by
// at most two letters; "" if there is none.
std::string NearestWord(std::string_view typed, const std::vector<std::string>& words);

}  // namespace minisgl::chat
