// Mistral:
//   version 3   [TOOL_CALLS] [{"name": NAME, "arguments": {...}, "id": ID}, ...]
//   version 11  [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}
//   version 13  [TOOL_CALLS]NAME[ARGS]{...}
//
// Each reader knows all of them. That of version 11 and later gives broken arguments as they are.
#include "text/tool_calls/call_object.h"
#include "text/tool_calls/json_span.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kMistralOpens[] = {"[TOOL_CALLS]"};
constexpr std::string_view kMistralEnds[] = {"}", "]"};
constexpr std::string_view kArgs = "[ARGS]", kCallId = "[CALL_ID]";
constexpr size_t kMistralNameMax = 1024;

class Mistral : public CallDialect {
 public:
  explicit Mistral(bool gives_broken) : gives_broken_(gives_broken) {}

  size_t FindMark(std::string_view text, size_t from, bool) const override {
    return FindFirst(text, from, kMistralOpens);
  }
  Marks Ends() const override { return kMistralEnds; }

  CallAttempt Read(std::string_view text, bool at_end) override {
    if (!text.starts_with(kMistralOpens[0])) return NoMark(text, kMistralOpens, at_end);
    const size_t begin = SkipSpace(text, kMistralOpens[0].size());
    if (begin == text.size() && !at_end) return CallAttempt::More();
    const std::string_view rest = text.substr(begin);
    if (rest.starts_with('{') || rest.starts_with('[')) return ReadObjects(text, begin, at_end);
    ToolCall call;
    size_t at = begin;
    bool more = false;
    if (!ReadHeader(text, &at, &call, &more)) {
      return more && !at_end ? CallAttempt::More() : Broken(text, at, at_end);
    }
    return ReadArguments(text, at, std::move(call), at_end);
  }

 private:
  static CallAttempt Broken(std::string_view text, size_t examined, bool at_end) {
    return BrokenCall(text, kMistralOpens[0].size(), examined, {}, kMistralOpens, at_end);
  }

  static CallAttempt ReadObjects(std::string_view text, size_t begin, bool at_end) {
    const JsonSpan span = SpanJson(text, begin, !at_end);
    if (span.state == JsonSpan::State::kCut && !at_end) return CallAttempt::More();
    if (span.state == JsonSpan::State::kWhole) {
      auto calls = ReadCallObjects(text.substr(begin, span.end - begin));
      if (calls) return CallAttempt::Calls(span.end, std::move(*calls));
    }
    return Broken(text, span.end, at_end);
  }

  // Takes all that stands before the arguments.
  static bool ReadHeader(std::string_view text, size_t* at, ToolCall* call, bool* more) {
    if (!TakeWord(text, at, &call->name, more)) return false;
    std::string_view rest = text.substr(*at);
    if (rest.starts_with(kCallId)) {
      *at += kCallId.size();
      if (!TakeWord(text, at, &call->id, more)) return false;
      rest = text.substr(*at);
    }
    if (rest.starts_with(kArgs)) {
      *at += kArgs.size();
      return true;
    }
    *more = MayBecomeMark(rest, kArgs) || MayBecomeMark(rest, kCallId);
    return rest.starts_with('{');
  }

  // Takes a word and the white space behind it.
  static bool TakeWord(std::string_view text, size_t* at, std::string* word, bool* more) {
    const std::string_view rest = text.substr(*at, kMistralNameMax);
    const size_t end = rest.find_first_of("[{<\n");
    *more = end == std::string_view::npos && rest.size() < kMistralNameMax;
    if (end == std::string_view::npos) return false;
    *word = std::string(WithoutSpace(rest.substr(0, end)));
    *at += end;
    return !word->empty() && word->find(' ') == std::string::npos;
  }

  CallAttempt ReadArguments(std::string_view text, size_t at, ToolCall call, bool at_end) const {
    const size_t begin = SkipSpace(text, at);
    const JsonSpan span = SpanJson(text, begin, !at_end);
    if (span.state == JsonSpan::State::kCut && !at_end) return CallAttempt::More();
    const std::string_view behind = text.substr(span.end);
    const bool is_whole = span.state == JsonSpan::State::kWhole && text[begin] == '{';
    if (is_whole && behind.empty() && !at_end) return CallAttempt::More();
    const bool is_end =
        behind.empty() || SkipSpace(behind, 0) > 0 || behind.starts_with(kMistralOpens[0]);
    if (is_whole && !is_end && !at_end && MayBecomeMark(behind, kMistralOpens[0])) {
      return CallAttempt::More();
    }
    if (is_whole && is_end) {
      call.arguments = std::string(text.substr(begin, span.end - begin));
      return CallAttempt::Calls(span.end, {std::move(call)});
    }
    CallAttempt attempt = Broken(text, span.end, at_end);
    if (attempt.kind == CallAttempt::Kind::kMore) return attempt;
    const std::string_view given = WithoutSpace(text.substr(begin, attempt.size - begin));
    const bool is_empty = given.empty() || given == "null";
    if (!gives_broken_ && !is_empty) return attempt;
    call.arguments = is_empty ? "{}" : std::string(given);
    return CallAttempt::Calls(attempt.size, {std::move(call)});
  }

  const bool gives_broken_;
};

}  // namespace

std::unique_ptr<CallDialect> MakeMistral(bool gives_broken) {
  return std::make_unique<Mistral>(gives_broken);
}

}  // namespace minisgl::text
