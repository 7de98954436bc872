// Calls in Python's notation:
//
//   Llama 3.2  [NAME(KEY=VALUE), ...]
//   Llama 4    <|python_start|>[NAME(KEY=VALUE), ...]<|python_end|>
//   LFM2       <|tool_call_start|>[NAME(KEY=VALUE), ...]<|tool_call_end|>
//   OLMo 3     <function_calls>
//              NAME(KEY=VALUE)
//              </function_calls>
//
// Without marks a list begins a line, and white space or the end of the text follows it.
#include <iterator>
#include <optional>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/json_span.h"
#include "text/tool_calls/line_marks.h"
#include "text/tool_calls/python_calls.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kPythonOpens[] = {"<|python_start|>", "<|tool_call_start|>",
                                             "<function_calls>"};
constexpr std::string_view kPythonCloses[] = {"<|python_end|>", "<|tool_call_end|>",
                                              "</function_calls>"};
constexpr std::string_view kPythonEnds[] = {"<|python_end|>", "<|tool_call_end|>",
                                            "</function_calls>", "]"};

class Pythonic : public CallDialect {
 public:
  size_t FindMark(std::string_view text, size_t from, bool line_begins) const override {
    return FindMarkOrLine(text, from, kPythonOpens, '[', line_begins);
  }
  Marks Ends() const override { return kPythonEnds; }

  CallAttempt Read(std::string_view text, bool at_end) override {
    if (text.starts_with('[')) return ReadBare(text, at_end);
    for (size_t form = 0; form < std::size(kPythonOpens); ++form) {
      if (text.starts_with(kPythonOpens[form])) return ReadMarked(text, form, at_end);
    }
    return NoMark(text, kPythonOpens, at_end);
  }

 private:
  static CallAttempt ReadBare(std::string_view text, bool at_end) {
    PythonReader reader(text, 0, at_end);
    std::vector<ToolCall> calls;
    if (!reader.List(&calls)) {
      if (reader.more() && !at_end) return CallAttempt::More();
      return CallAttempt::Text(1, reader.at());
    }
    const size_t end = reader.at();
    if (end == text.size() && !at_end) return CallAttempt::More();
    const bool ends = end == text.size() || text[end] == '<' || SkipSpace(text, end) > end;
    return ends ? CallAttempt::Calls(end, std::move(calls)) : CallAttempt::Text(1, end);
  }

  static CallAttempt ReadMarked(std::string_view text, size_t form, bool at_end) {
    const std::string_view open = kPythonOpens[form], close = kPythonCloses[form];
    size_t at = SkipSpace(text, open.size());
    std::vector<ToolCall> calls;
    bool more = false;
    bool found = IsObject(text, at) ? ReadObjects(text, at_end, &at, &calls, &more)
                                    : ReadCalls(text, at_end, &at, &calls, &more);
    if (more && !at_end) return CallAttempt::More();
    at = SkipSpace(text, at);
    const std::string_view rest = text.substr(at);
    const bool is_closed = rest.starts_with(close);
    if (found && !is_closed && MayBecomeMark(rest, close)) {
      if (!at_end) return CallAttempt::More();
      at = text.size();
    } else if (!is_closed) {
      found = false;
    }
    if (!found) {
      return BrokenCall(text, open.size(), at, Marks(&close, 1), kPythonOpens, at_end);
    }
    return CallAttempt::Calls(is_closed ? at + close.size() : at, std::move(calls));
  }

  // True if JSON stands there instead.
  static bool IsObject(std::string_view text, size_t at) {
    if (text.substr(at).starts_with('{')) return true;
    return text.substr(at).starts_with('[') &&
           text.substr(SkipSpace(text, at + 1)).starts_with('{');
  }

  static bool ReadObjects(std::string_view text, bool at_end, size_t* at,
                          std::vector<ToolCall>* calls, bool* more) {
    const JsonSpan span = SpanJson(text, *at, !at_end);
    *more = span.state == JsonSpan::State::kCut;
    const std::string_view json = text.substr(*at, span.end - *at);
    *at = span.end;
    if (span.state != JsonSpan::State::kWhole) return false;
    auto objects = ReadCallObjects(json);
    if (objects) *calls = std::move(*objects);
    return objects.has_value();
  }

  // A list, or calls that white space or commas divide.
  static bool ReadCalls(std::string_view text, bool at_end, size_t* at,
                        std::vector<ToolCall>* calls, bool* more) {
    PythonReader reader(text, *at, at_end);
    const bool is_list = text.substr(*at).starts_with('[');
    bool found = is_list && reader.List(calls);
    while (!is_list) {
      ToolCall call;
      found = reader.Call(&call);
      if (!found) break;
      calls->push_back(std::move(call));
      reader.Skip();
      if (reader.TakeIf(',')) reader.Skip();
      if (reader.at() >= text.size() || text[reader.at()] == '<') break;
    }
    *at = reader.at();
    *more = !found && reader.more();
    return found;
  }
};

}  // namespace

std::unique_ptr<CallDialect> MakePythonic() { return std::make_unique<Pythonic>(); }

}  // namespace minisgl::text
