#include "text/tool_calls/sectioned.h"

#include <algorithm>

#include "text/tool_calls/json_span.h"

namespace minisgl::text {

std::string_view MarkAt(std::string_view text, Marks marks) {
  for (const std::string_view mark : marks) {
    if (text.starts_with(mark)) return mark;
  }
  return "";
}

bool MayBecomeAny(std::string_view text, Marks marks) {
  return std::ranges::any_of(marks,
                             [text](std::string_view mark) { return MayBecomeMark(text, mark); });
}

CallAttempt SectionedDialect::Broken(std::string_view text, size_t examined, bool at_end) const {
  const size_t begin = MarkAt(text, marks_.call_opens).size();
  return BrokenCall(text, begin, examined, marks_.call_closes, marks_.all, at_end);
}

CallAttempt SectionedDialect::Read(std::string_view text, bool at_end) {
  if (const std::string_view open = MarkAt(text, marks_.opens); !open.empty()) {
    return ReadSection(text, open, at_end);
  }
  if (const std::string_view close = MarkAt(text, marks_.closes); !close.empty()) {
    if (!in_section_) return CallAttempt::Text(close.size(), close.size());
    in_section_ = false;
    return CallAttempt::Calls(close.size(), {});
  }
  if (!MarkAt(text, marks_.call_opens).empty()) return ReadCall(text, at_end);
  if (at_end && in_section_ && MayBecomeAny(text, marks_.closes)) {
    return CallAttempt::Calls(text.size(), {});
  }
  return NoMark(text, marks_.all, at_end);
}

CallAttempt SectionedDialect::ReadSection(std::string_view text, std::string_view open,
                                          bool at_end) {
  in_section_ = false;
  const size_t begin = SkipSpace(text, open.size());
  const std::string_view rest = text.substr(begin);
  if (MarkAt(rest, marks_.call_opens).empty()) {
    if (!at_end && MayBecomeAny(rest, marks_.call_opens)) return CallAttempt::More();
    return CallAttempt::Text(open.size(), begin);
  }
  CallAttempt attempt = ReadCall(rest, at_end);
  if (attempt.kind == CallAttempt::Kind::kMore) return attempt;
  attempt.size += begin;
  attempt.examined += begin;
  in_section_ = attempt.kind == CallAttempt::Kind::kCalls;
  return attempt;
}

}  // namespace minisgl::text
