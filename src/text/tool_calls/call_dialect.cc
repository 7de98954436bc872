#include "text/tool_calls/call_dialect.h"

#include <algorithm>

namespace minisgl::text {
namespace {

// The bytes that marks begin with.
std::string FirstBytes(std::span<const std::string_view> marks) {
  std::string bytes;
  for (const std::string_view mark : marks) {
    if (bytes.find(mark[0]) == std::string::npos) bytes += mark[0];
  }
  return bytes;
}

}  // namespace

size_t FindFirst(std::string_view text, size_t from, std::span<const std::string_view> marks) {
  const std::string first = FirstBytes(marks);
  for (size_t at = from; at < text.size(); ++at) {
    at = text.find_first_of(first, at);
    if (at == std::string_view::npos) break;
    const std::string_view rest = text.substr(at);
    const bool found = std::ranges::any_of(marks, [rest](std::string_view mark) {
      return rest.starts_with(mark) || MayBecomeMark(rest, mark);
    });
    if (found) return at;
  }
  return std::string_view::npos;
}

CallAttempt NoMark(std::string_view text, std::span<const std::string_view> marks, bool at_end) {
  const bool may_become = std::ranges::any_of(
      marks, [text](std::string_view mark) { return MayBecomeMark(text, mark); });
  return may_become && !at_end ? CallAttempt::More() : CallAttempt::Text(1, 1);
}

CallAttempt BrokenCall(std::string_view text, size_t begin, size_t examined,
                       std::span<const std::string_view> closes,
                       std::span<const std::string_view> opens, bool at_end) {
  std::vector<std::string_view> marks(closes.begin(), closes.end());
  marks.insert(marks.end(), opens.begin(), opens.end());
  const size_t at = FindFirst(text, begin, marks);
  const auto whole = CallAttempt::Text(text.size(), text.size());
  if (at == std::string_view::npos) return at_end ? whole : CallAttempt::More();
  const std::string_view rest = text.substr(at);
  for (const std::string_view close : closes) {
    if (!rest.starts_with(close)) continue;
    return CallAttempt::Text(at + close.size(), std::max(examined, at + close.size()));
  }
  for (const std::string_view open : opens) {
    if (rest.starts_with(open)) return CallAttempt::Text(at, std::max(examined, at));
  }
  return at_end ? whole : CallAttempt::More();
}

}  // namespace minisgl::text
