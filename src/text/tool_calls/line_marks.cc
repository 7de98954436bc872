#include "text/tool_calls/line_marks.h"

#include "text/tool_calls/sectioned.h"

namespace minisgl::text {

size_t FindMarkOrLine(std::string_view text, size_t from, std::span<const std::string_view> marks,
                      char byte, bool line_begins) {
  for (size_t at = from; at < text.size(); ++at) {
    const char found = text[at];
    if (found == byte && line_begins) return at;
    if (found == '<') {
      const std::string_view rest = text.substr(at);
      if (!MarkAt(rest, marks).empty() || MayBecomeAny(rest, marks)) return at;
    }
    line_begins = found == '\n' || (line_begins && (found == ' ' || found == '\t'));
  }
  return std::string_view::npos;
}

}  // namespace minisgl::text
