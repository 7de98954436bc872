// See labelled_texts.h.
#include "chat/labelled_texts.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace minisgl::chat {
namespace {

constexpr size_t kTypedBytesMax = 1024;  // of typed text with line breaks
constexpr std::string_view kPastedName = "[pasted text ", kTypedName = "[text ";

size_t CountLines(std::string_view text) {
  const auto breaks = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  return breaks + (text.ends_with('\n') ? 0 : 1);
}

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) < 0x20 && byte != '\n' && byte != '\t') ||
           byte == 0x7F;
  });
}

}  // namespace

std::string LabelledTexts::LabelOf(Kind kind, std::string text, size_t number) {
  const size_t num_lines = CountLines(text);
  while (true) {
    std::string label =
        fmt::format("{}{}: {} line{}, {} bytes]", kind == Kind::kPasted ? kPastedName : kTypedName,
                    number++, num_lines, num_lines == 1 ? "" : "s", text.size());
    const auto known = texts_.find(label);
    if (known == texts_.end()) texts_.emplace(label, std::move(text));
    if (known == texts_.end() || known->second == text) return label;
  }
}

std::string LabelledTexts::AddPaste(std::string text) {
  return LabelOf(Kind::kPasted, std::move(text), ++num_pastes_);
}

LabelledTexts::Part LabelledTexts::TakePart(std::string_view* line) const {
  Part part;
  size_t length = std::min(line->find_first_of("[\xE2", 1), line->size());
  if (line->starts_with(kLineBreakSign)) {
    length = kLineBreakSign.size();
    part.is_break = true;
  } else if (const size_t end = line->find(']');
             line->front() == '[' && end != std::string_view::npos) {
    const auto known = texts_.find(std::string(line->substr(0, end + 1)));
    if (known != texts_.end()) {
      length = end + 1;
      part.text = &known->second;
    }
  }
  part.shown = line->substr(0, length);
  line->remove_prefix(length);
  return part;
}

bool LabelledTexts::HasMarks(std::string_view text) const {
  while (!text.empty()) {
    const Part part = TakePart(&text);
    if (part.is_break || part.text != nullptr) return true;
  }
  return false;
}

std::string LabelledTexts::Expand(std::string_view line) {
  std::string text;
  while (!line.empty()) {
    const Part part = TakePart(&line);
    if (part.text != nullptr) used_.emplace_back(part.shown);
    text += part.is_break ? "\n" : part.text != nullptr ? *part.text : part.shown;
  }
  return text;
}

std::string LabelledTexts::Shown(std::string_view text) {
  if (text.empty()) return "";
  const bool has_breaks = text.find('\n') != std::string_view::npos;
  if ((has_breaks && text.size() > kTypedBytesMax) || HasControlCharacter(text) || HasMarks(text)) {
    return LabelOf(Kind::kTyped, std::string(text), 1);
  }
  std::string shown;
  for (const char byte : text) {
    shown += byte == '\n' ? kLineBreakSign : std::string_view(&byte, 1);
  }
  return shown;
}

HistoryEntry LabelledTexts::TakeEntry(const std::string& text) {
  HistoryEntry entry;
  size_t copied = 0;
  for (const std::string& label : used_) {
    const std::string& labelled = texts_.at(label);
    const size_t at = text.find(labelled, copied);
    if (at == std::string::npos) continue;  // the marks around a message cut it
    entry.line += Shown(std::string_view(text).substr(copied, at - copied)) + label;
    copied = at + labelled.size();
  }
  entry.line += Shown(std::string_view(text).substr(copied));
  for (std::string_view rest = entry.line; !rest.empty();) {
    const Part part = TakePart(&rest);
    if (part.text != nullptr) entry.texts.emplace_back(part.shown, *part.text);
  }
  Discard();
  return entry;
}

void LabelledTexts::Discard() {
  num_pastes_ = 0;
  used_.clear();
}

std::string LabelledTexts::Adopt(const HistoryEntry& entry) {
  std::string line;
  std::string_view rest = entry.line;
  while (!rest.empty()) {
    const size_t begin = std::min(rest.find('['), rest.size());
    const size_t end = std::min(rest.find(']', begin), rest.size() - 1) + 1;
    line += rest.substr(0, begin);
    std::string_view label = rest.substr(begin, end - begin);
    const auto found = std::find_if(entry.texts.begin(), entry.texts.end(),
                                    [label](const auto& text) { return text.first == label; });
    if (found != entry.texts.end()) {
      const Kind kind = label.starts_with(kPastedName) ? Kind::kPasted : Kind::kTyped;
      line += LabelOf(kind, found->second, 1);
    } else {  // a label may begin behind the bracket
      label = label.substr(0, 1);
      line += label;
    }
    rest.remove_prefix(begin + label.size());
  }
  return line;
}

}  // namespace minisgl::chat
