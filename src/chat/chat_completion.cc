#include "chat/chat_completion.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "minisgl/base/edit_distance.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

// Listing of a directory stops after this many names.
constexpr size_t kFilesMax = 2000;

std::vector<std::string> BeginningWith(std::string_view head, std::vector<std::string> words) {
  words.erase(std::remove_if(words.begin(), words.end(),
                             [&](const std::string& word) { return !word.starts_with(head); }),
              words.end());
  std::sort(words.begin(), words.end());
  return words;
}

// True if the name can be typed and displayed: no control characters and no invalid UTF-8.
bool IsTypable(const std::string& name) { return Visible(name, name.size() + 1) == name; }

std::vector<std::string> Files(const std::string& typed) {
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : typed.substr(0, slash + 1);
  const std::string head = typed.substr(folder.size());
  std::vector<std::string> names;
  const std::filesystem::path searched = folder.empty() ? "." : ExpandHome(folder);
  for (const std::string& name : NamesIn(searched.string())) {
    if (names.size() == kFilesMax) break;
    const bool hidden = name.starts_with('.') && !head.starts_with('.');
    if (hidden || !name.starts_with(head) || !IsTypable(name)) continue;
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(searched / name, ignored);
    names.push_back(folder + name + (is_folder ? "/" : ""));
  }
  return names;
}

}  // namespace

Completion CompleteChatLine(std::string_view line, const CompletionWords& words) {
  if (!line.starts_with('/') || line.starts_with("//")) {
    const size_t word = line.find_last_of(" \t") + 1;
    const bool names_file = line.substr(word).starts_with('@');
    return names_file ? Completion{word + 1, Files(std::string(line.substr(word + 1)))}
                      : Completion();
  }
  const size_t name_end = line.find_first_of(" \t");
  if (name_end == std::string_view::npos) {
    return {1, BeginningWith(line.substr(1), words.commands)};
  }
  size_t begin = line.find_first_not_of(" \t", name_end);
  if (begin == std::string_view::npos) begin = line.size();
  // Skips an option, as in "/save -f FILE".
  for (const std::string_view option : {"-f ", "-r ", "-d "}) {
    if (line.substr(begin).starts_with(option)) begin += option.size();
  }
  const ArgumentKind kind = words.argument(line.substr(1, name_end - 1));
  // A single file name may contain spaces; with two, only the last word is completed.
  if (kind == ArgumentKind::kTwoFiles) begin = line.find_last_of(" \t") + 1;
  const std::string head(line.substr(begin));
  switch (kind) {
    case ArgumentKind::kFile:
    case ArgumentKind::kTwoFiles:
      return {begin, Files(head)};
    case ArgumentKind::kBranch:
      return {begin, BeginningWith(head, words.branches)};
    case ArgumentKind::kParameter:
      for (const std::string& parameter : words.file_parameters) {
        const std::string before = parameter + " ";
        if (!head.starts_with(before)) continue;
        return {begin + before.size(), Files(head.substr(before.size()))};
      }
      return {begin, BeginningWith(head, words.parameters)};
    case ArgumentKind::kCommand:
      return {begin, BeginningWith(head, words.commands)};
    case ArgumentKind::kNone:
    case ArgumentKind::kText:
      break;
  }
  return {};
}

std::string CommonPrefix(const std::vector<std::string>& words) {
  std::string_view common = words.front();
  for (const std::string& word : words) {
    const auto [end, other] = std::mismatch(common.begin(), common.end(), word.begin(), word.end());
    common = common.substr(0, static_cast<size_t>(end - common.begin()));
  }
  // Do not cut inside a character.
  while (!IsValidUtf8(common)) common.remove_suffix(1);
  return std::string(common);
}

std::string InColumns(const std::vector<std::string>& words, size_t columns) {
  size_t width = 0;
  for (const std::string& word : words) width = std::max(width, word.size() + 2);
  const size_t in_line = std::max<size_t>(columns / std::max<size_t>(width, 1), 1);
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool ends_line = (i + 1) % in_line == 0 || i + 1 == words.size();
    text += words[i];
    text += ends_line ? "\n" : std::string(width - words[i].size(), ' ');
  }
  return text;
}

std::string ExpandHome(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || (path != "~" && !path.starts_with("~/"))) return path;
  return home + path.substr(1);
}

std::string NearestWord(std::string_view typed, const std::vector<std::string>& words) {
  if (typed.empty()) return "";
  for (const std::string& word : words) {
    if (word.starts_with(typed)) return word;
  }
  // In a short word, two different letters are too many.
  const size_t distance_max = std::min<size_t>(2, typed.size() / 2);
  return std::string(NearestName(typed, {words.begin(), words.end()}, distance_max));
}

std::string Trimmed(const std::string& text) {
  constexpr const char* kWhiteSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kWhiteSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
}

}  // namespace minisgl::chat
