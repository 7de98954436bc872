// Hermes: <tool_call>{"name": NAME, "arguments": {...}}</tool_call>.
#include <array>
#include <optional>

#include "text/tool_calls/call_dialect.h"
#include "text/tool_calls/call_object.h"
#include "text/tool_calls/json_span.h"

namespace minisgl::text {
namespace {

constexpr std::array<std::string_view, 1> kHermesOpen = {"<tool_call>"};
constexpr std::array<std::string_view, 1> kHermesClose = {"</tool_call>"};

class Hermes : public CallDialect {
 public:
  size_t FindMark(std::string_view text, size_t from, bool) const override {
    return FindFirst(text, from, kHermesOpen);
  }

  std::span<const std::string_view> Ends() const override { return kHermesClose; }

  CallAttempt Read(std::string_view text, bool at_end) override {
    const std::string_view open = kHermesOpen[0], close = kHermesClose[0];
    if (!text.starts_with(open)) return NoMark(text, kHermesOpen, at_end);
    const size_t begin = SkipSpace(text, open.size());
    const JsonSpan span = SpanJson(text, begin, !at_end);
    if (span.state == JsonSpan::State::kCut && !at_end) return CallAttempt::More();
    if (span.state != JsonSpan::State::kWhole) return Broken(text, span.end, at_end);
    const size_t behind = SkipSpace(text, span.end);
    const std::string_view rest = text.substr(behind);
    const bool is_closed = rest.starts_with(close);
    if (!is_closed && !at_end && (MayBecomeMark(rest, close) || MayBecomeMark(rest, open))) {
      return CallAttempt::More();
    }
    if (!is_closed && !rest.starts_with(open) && !(at_end && MayBecomeMark(rest, close))) {
      return Broken(text, behind, at_end);
    }
    auto calls = ReadCallObjects(text.substr(begin, span.end - begin));
    if (!calls) return Broken(text, span.end, at_end);
    const size_t size = is_closed                ? behind + close.size()
                        : rest.starts_with(open) ? behind
                                                 : text.size();
    return CallAttempt::Calls(size, std::move(*calls));
  }

 private:
  static CallAttempt Broken(std::string_view text, size_t examined, bool at_end) {
    return BrokenCall(text, kHermesOpen[0].size(), examined, kHermesClose, kHermesOpen, at_end);
  }
};

}  // namespace

std::unique_ptr<CallDialect> MakeHermes() { return std::make_unique<Hermes>(); }

}  // namespace minisgl::text
