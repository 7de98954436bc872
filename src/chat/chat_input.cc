#include "chat/chat_input.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace minisgl::chat {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr const char* kPrompt = "> ";
constexpr const char* kMorePrompt = "... ";

using Kind = ChatInputLine::Kind;

// Converts an outcome other than a line.
ChatInputLine Ended(const ReadLineResult& result) {
  switch (result.outcome) {
    case LineOutcome::kInterrupted:
      return {Kind::kInterrupted, "", result.was_empty};
    case LineOutcome::kTerminated:
      return {Kind::kTerminated, "", true};
    default:
      return {Kind::kEnd, "", true};
  }
}

std::string_view TrimRight(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\n");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

bool HasQuotesAhead(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  return begin != std::string_view::npos && text.substr(begin).starts_with(kQuotes);
}

// Appends lines to `text` until `ends` accepts one as the last (and cuts its mark). Returns false
// if the input or the message ended in another way; then *ended tells how.
template <typename Ends>
bool ReadMore(PromptReader* reader, std::string* text, ChatInputLine* ended, Ends ends) {
  while (true) {
    ReadLineResult more = reader->ReadLine(kMorePrompt);
    if (more.outcome == LineOutcome::kEnd) return true;
    if (more.outcome != LineOutcome::kLine) {
      *ended = Ended(more);
      ended->was_empty = false;
      return false;
    }
    const bool last = ends(&more.text);
    *text += '\n';
    *text += more.text;
    if (last) return true;
  }
}

// If `text` ends with the mark that closes a block, cuts it and returns true.
bool CutQuotes(std::string* text) {
  const std::string_view trimmed = TrimRight(*text);
  if (!trimmed.ends_with(kQuotes)) return false;
  text->resize(trimmed.size() - kQuotes.size());
  return true;
}

// If `text` ends with the continuation mark, cuts it and returns true.
bool CutBackslash(std::string* text) {
  if (!text->ends_with('\\')) return false;
  text->pop_back();
  return true;
}

// Returns the whole line with which a block of this message is entered in one line.
std::string AsBlock(const std::string& message) {
  return fmt::format("{}\n{}\n{}", kQuotes, message, kQuotes);
}

ChatInputLine ReadBlock(PromptReader* reader, std::string text) {
  const std::string first_line = text;
  text.erase(0, text.find(kQuotes) + kQuotes.size());
  ChatInputLine ended;
  const bool is_one_line = CutQuotes(&text);
  if (!is_one_line && !ReadMore(reader, &text, &ended, CutQuotes)) {
    reader->Remember(fmt::format("{}{}", kQuotes, text));  // goes on if it is recalled
    return ended;
  }
  // The marks may be on separate lines.
  if (text.starts_with('\n')) text.erase(0, 1);
  if (text.ends_with('\n')) text.pop_back();
  const bool needs_marks = text.find('\n') == std::string::npos || HasQuotesAhead(text);
  const std::string as_entered = is_one_line ? first_line : needs_marks ? AsBlock(text) : text;
  reader->Remember(TrimRight(text).empty() ? "" : as_entered);
  return {Kind::kMessage, std::move(text)};
}

// Reads the lines after one that ends with the continuation mark.
ChatInputLine ReadContinued(PromptReader* reader, std::string text) {
  ChatInputLine ended;
  const auto ends = [](std::string* more) { return !CutBackslash(more); };
  if (!ReadMore(reader, &text, &ended, ends)) {
    reader->Remember("");
    return ended;
  }
  const bool is_one_line = text.find('\n') == std::string::npos;  // the input ended after it
  reader->Remember(is_one_line || !HasQuotesAhead(text) ? text : AsBlock(text));
  return {Kind::kMessage, std::move(text)};
}

}  // namespace

ChatInputLine ReadChatInput(PromptReader* reader) {
  while (true) {
    ReadLineResult line = reader->ReadLine(kPrompt);
    if (line.outcome != LineOutcome::kLine) {
      reader->Remember("");
      return Ended(line);
    }
    std::string text = std::move(line.text);
    if (TrimRight(text).empty()) continue;
    if (HasQuotesAhead(text)) {
      ChatInputLine block = ReadBlock(reader, std::move(text));
      if (block.kind == Kind::kMessage && TrimRight(block.text).empty()) continue;
      return block;
    }
    const bool is_one_line = text.find('\n') == std::string::npos;
    if (is_one_line && text.ends_with('\\') && !text.starts_with('/')) {
      text.pop_back();
      return ReadContinued(reader, std::move(text));
    }
    reader->Remember(text);
    if (!is_one_line) return {Kind::kMessage, std::move(text)};
    if (text.starts_with("//")) return {Kind::kMessage, text.substr(1)};
    if (text.starts_with('/')) return {Kind::kCommand, std::string(TrimRight(text).substr(1))};
    return {Kind::kMessage, std::move(text)};
  }
}

ChatInputLine ReadChatMessage(PromptReader* reader) {
  while (true) {
    ReadLineResult line = reader->ReadLine(kPrompt);
    if (line.outcome != LineOutcome::kLine) return Ended(line);
    if (!TrimRight(line.text).empty()) return {Kind::kMessage, std::move(line.text)};
  }
}

}  // namespace minisgl::chat
