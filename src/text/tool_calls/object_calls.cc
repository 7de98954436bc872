// Dialects whose calls are JSON objects. In llama3_json an object is a call if it has a name and
// arguments, wherever it stands; in granite an array of such objects that begins a line.
//
//   granite      <|tool_call|>[{"name": NAME, "arguments": {...}}, ...]
//   llama3_json  {"name": NAME, "parameters": {...}}; {...}
//                <|python_tag|>{"name": NAME, "parameters": {...}}
//                <|python_tag|>NAME.call(KEY="VALUE")
//                <function=NAME>{...}</function>
#include <optional>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/json_span.h"
#include "text/tool_calls/line_marks.h"
#include "text/tool_calls/python_calls.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kGraniteOpens[] = {"<|tool_call|>", "<tool_call>", "<function_call>"};
constexpr std::string_view kGraniteCloses[] = {"</tool_call>", "<|/tool_call|>",
                                               "</function_call>"};

// True if white space, a mark, a semicolon or the text's end follows what ends at `end`.
bool EndsObject(std::string_view text, size_t end) {
  return end == text.size() || text[end] == '<' || text[end] == ';' || SkipSpace(text, end) > end;
}

class Granite : public CallDialect {
 public:
  size_t FindMark(std::string_view text, size_t from, bool line_begins) const override {
    return FindMarkOrLine(text, from, kGraniteOpens, '[', line_begins);
  }
  Marks Ends() const override { return kGraniteEnds; }

  CallAttempt Read(std::string_view text, bool at_end) override {
    if (text.starts_with('[')) return ReadBare(text, at_end);
    const std::string_view open = MarkAt(text, kGraniteOpens);
    if (open.empty()) return NoMark(text, kGraniteOpens, at_end);
    const size_t begin = SkipSpace(text, open.size());
    const JsonSpan span = SpanJson(text, begin, !at_end);
    if (span.state == JsonSpan::State::kCut && !at_end) return CallAttempt::More();
    std::optional<std::vector<ToolCall>> calls;
    if (span.state == JsonSpan::State::kWhole) {
      calls = ReadCallObjects(text.substr(begin, span.end - begin));
    }
    if (!calls) {
      return BrokenCall(text, open.size(), span.end, kGraniteCloses, kGraniteOpens, at_end);
    }
    // The closing mark may be missing.
    const size_t behind = SkipSpace(text, span.end);
    const std::string_view rest = text.substr(behind);
    const std::string_view close = MarkAt(rest, kGraniteCloses);
    if (close.empty() && MayBecomeAny(rest, kGraniteCloses)) {
      if (!at_end) return CallAttempt::More();
      return CallAttempt::Calls(text.size(), std::move(*calls));
    }
    if (!close.empty()) return CallAttempt::Calls(behind + close.size(), std::move(*calls));
    if (!EndsObject(text, span.end)) {
      return BrokenCall(text, open.size(), span.end, kGraniteCloses, kGraniteOpens, at_end);
    }
    return CallAttempt::Calls(span.end, std::move(*calls));
  }

 private:
  static constexpr std::string_view kGraniteEnds[] = {"]", "</tool_call>", "<|/tool_call|>",
                                                      "</function_call>"};

  // Only an array of calls that name their arguments is told from other JSON.
  static CallAttempt ReadBare(std::string_view text, bool at_end) {
    const size_t first = SkipSpace(text, 1);
    if (first == text.size() && !at_end) return CallAttempt::More();
    if (first == text.size() || text[first] != '{') return CallAttempt::Text(1, 1);
    const JsonSpan span = SpanJson(text, 0, !at_end);
    if (span.state == JsonSpan::State::kCut && !at_end) return CallAttempt::More();
    if (span.state == JsonSpan::State::kWhole) {
      if (span.end == text.size() && !at_end) return CallAttempt::More();
      auto calls = ReadCallObjects(text.substr(0, span.end), /*needs_arguments=*/true);
      if (calls && EndsObject(text, span.end))
        return CallAttempt::Calls(span.end, std::move(*calls));
    }
    return CallAttempt::Text(span.end, span.end);
  }
};

constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kFunctionOpen = "<function=", kFunctionClose = "</function>";
constexpr std::string_view kLlamaOpens[] = {kPythonTag, kFunctionOpen};
constexpr std::string_view kLlamaMarks[] = {"{", kPythonTag, kFunctionOpen};
constexpr std::string_view kLlamaFunctionCloses[] = {kFunctionClose};
constexpr std::string_view kLlamaEnds[] = {"}", ")", kFunctionClose};
constexpr size_t kLlamaNameMax = 1024;

class Llama3Json : public CallDialect {
 public:
  size_t FindMark(std::string_view text, size_t from, bool) const override {
    return FindFirst(text, from, kLlamaMarks);
  }
  Marks Ends() const override { return kLlamaEnds; }

  CallAttempt Read(std::string_view text, bool at_end) override {
    if (text.starts_with('{')) return ReadObjects(text, 0, at_end);
    if (text.starts_with(kFunctionOpen)) return ReadFunction(text, at_end);
    if (!text.starts_with(kPythonTag)) return NoMark(text, kLlamaMarks, at_end);
    const size_t begin = SkipSpace(text, kPythonTag.size());
    if (begin == text.size() && !at_end) return CallAttempt::More();
    if (text.substr(begin).starts_with('{')) return ReadObjects(text, begin, at_end);
    return ReadBuiltIn(text, begin, at_end);
  }

 private:
  // Objects that semicolons divide, the first one at `begin`.
  static CallAttempt ReadObjects(std::string_view text, size_t begin, bool at_end) {
    std::vector<ToolCall> calls;
    size_t end = 0;  // behind the last call
    for (size_t at = begin;;) {
      const JsonSpan span = SpanJson(text, at, !at_end);
      if (span.state == JsonSpan::State::kCut && !at_end) return CallAttempt::More();
      std::optional<ToolCall> call;
      if (span.state == JsonSpan::State::kWhole) {
        if (span.end == text.size() && !at_end) return CallAttempt::More();
        if (EndsObject(text, span.end)) {
          call = ReadCallObject(text.substr(at, span.end - at), /*needs_arguments=*/true);
        }
      }
      if (!call && calls.empty()) return CallAttempt::Text(span.end, span.end);
      if (!call) break;
      calls.push_back(std::move(*call));
      end = span.end;
      const size_t behind = SkipSpace(text, end);
      if (behind == text.size() && !at_end) return CallAttempt::More();
      if (behind == text.size() || text[behind] != ';') break;
      at = SkipSpace(text, behind + 1);
      if (at == text.size() && !at_end) return CallAttempt::More();
      if (at == text.size()) end = at;
      if (at == text.size() || text[at] != '{') break;
    }
    return CallAttempt::Calls(end, std::move(calls));
  }

  static CallAttempt ReadFunction(std::string_view text, bool at_end) {
    const std::string_view rest = text.substr(kFunctionOpen.size(), kLlamaNameMax);
    const size_t name_end = rest.find_first_of(">\n<");
    if (name_end == std::string_view::npos && rest.size() < kLlamaNameMax && !at_end) {
      return CallAttempt::More();
    }
    if (name_end == 0 || name_end == std::string_view::npos || rest[name_end] != '>') {
      return CallAttempt::Text(kFunctionOpen.size(), kFunctionOpen.size());
    }
    ToolCall call{std::string(rest.substr(0, name_end)), "", ""};
    const size_t begin = SkipSpace(text, kFunctionOpen.size() + name_end + 1);
    const JsonSpan span = SpanJson(text, begin, !at_end);
    if (span.state == JsonSpan::State::kCut && !at_end) return CallAttempt::More();
    if (span.state != JsonSpan::State::kWhole || text[begin] != '{') {
      return BrokenCall(text, kFunctionOpen.size(), span.end, kLlamaFunctionCloses, kLlamaOpens,
                        at_end);
    }
    call.arguments = std::string(text.substr(begin, span.end - begin));
    const size_t behind = SkipSpace(text, span.end);
    const std::string_view tail = text.substr(behind);
    if (tail.starts_with(kFunctionClose)) {
      return CallAttempt::Calls(behind + kFunctionClose.size(), {std::move(call)});
    }
    if (MayBecomeMark(tail, kFunctionClose)) {
      if (!at_end) return CallAttempt::More();
      return CallAttempt::Calls(text.size(), {std::move(call)});
    }
    return BrokenCall(text, kFunctionOpen.size(), behind, kLlamaFunctionCloses, kLlamaOpens,
                      at_end);
  }

  // A tool that the model knows by itself: its name stands before ".call".
  static CallAttempt ReadBuiltIn(std::string_view text, size_t begin, bool at_end) {
    constexpr std::string_view kCall = ".call";
    PythonReader reader(text, begin, at_end);
    ToolCall call;
    const bool is_call = reader.Call(&call);
    if (!is_call && reader.more() && !at_end) return CallAttempt::More();
    const bool is_known = call.name.size() > kCall.size() && call.name.ends_with(kCall);
    if (!is_call || !is_known) return CallAttempt::Text(kPythonTag.size(), reader.at());
    call.name.resize(call.name.size() - kCall.size());
    return CallAttempt::Calls(reader.at(), {std::move(call)});
  }
};

}  // namespace

std::unique_ptr<CallDialect> MakeGranite() { return std::make_unique<Granite>(); }

std::unique_ptr<CallDialect> MakeLlama3Json() { return std::make_unique<Llama3Json>(); }

}  // namespace minisgl::text
