// Gemma 4: <|tool_call>call:NAME{KEY:VALUE,...}<tool_call|>
//
// Strings stand between <|"|>, without escapes. Objects and arrays are like those of JSON, with
// bare keys. A bare value that is no number, truth value or null is a string.
#include "text/tool_calls/argument_list.h"
#include "text/tool_calls/json_span.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kGemmaOpens[] = {"<|tool_call>"};
constexpr std::string_view kGemmaCloses[] = {"<tool_call|>"};
constexpr std::string_view kGemmaQuote = "<|\"|>";
constexpr std::string_view kGemmaCall = "call:";
constexpr size_t kGemmaNameMax = 1024;

class GemmaCall {
 public:
  GemmaCall(std::string_view text, bool at_end) : text_(text), at_end_(at_end) {}

  bool Read() {
    at_ = SkipSpace(text_, kGemmaOpens[0].size());
    return Name() && Object(1, &call_.arguments) && End();
  }

  size_t at() const { return at_; }
  bool more() const { return more_; }
  ToolCall Take() { return std::move(call_); }

 private:
  bool Fail(bool more) {
    more_ = more;
    return false;
  }
  std::string_view Rest() {
    at_ = SkipSpace(text_, at_);
    return text_.substr(at_);
  }

  bool Name() {
    std::string_view rest = text_.substr(at_, kGemmaNameMax);
    if (rest.starts_with(kGemmaCall)) {
      at_ += kGemmaCall.size();
      rest.remove_prefix(kGemmaCall.size());
    }
    const size_t end = rest.find_first_of("{<\n");
    if (end == std::string_view::npos) return Fail(rest.size() + kGemmaCall.size() < kGemmaNameMax);
    call_.name = std::string(WithoutSpace(rest.substr(0, end)));
    at_ += end;
    return (rest[end] == '{' && !call_.name.empty()) || Fail(false);
  }

  bool End() {
    const std::string_view rest = Rest();
    if (rest.starts_with(kGemmaCloses[0])) {
      at_ += kGemmaCloses[0].size();
      return true;
    }
    if (rest.starts_with(kGemmaOpens[0])) return true;
    const bool may_follow =
        MayBecomeMark(rest, kGemmaCloses[0]) || MayBecomeMark(rest, kGemmaOpens[0]);
    if (!may_follow || !at_end_) return Fail(may_follow);
    at_ = text_.size();
    return true;
  }

  // Takes the string that a mark begins.
  bool Quoted(std::string* value) {
    at_ += kGemmaQuote.size();
    const size_t end = text_.find(kGemmaQuote, at_);
    if (end == std::string_view::npos) {
      at_ = text_.size();
      return Fail(true);
    }
    *value = std::string(text_.substr(at_, end - at_));
    at_ = end + kGemmaQuote.size();
    return true;
  }

  bool Key(std::string* key) {
    const std::string_view rest = Rest();
    if (rest.starts_with(kGemmaQuote)) return Quoted(key) && ExpectColon();
    if (MayBecomeMark(rest, kGemmaQuote)) return Fail(true);
    const size_t end = rest.find_first_of(":,{}[]<\n");
    if (end == std::string_view::npos) {
      at_ = text_.size();
      return Fail(true);
    }
    *key = std::string(WithoutSpace(rest.substr(0, end)));
    if (key->size() >= 2 && key->front() == '"' && key->back() == '"') {
      *key = key->substr(1, key->size() - 2);
    }
    at_ += end;
    return !key->empty() ? ExpectColon() : Fail(false);
  }

  bool ExpectColon() {
    const std::string_view rest = Rest();
    if (!rest.starts_with(':')) return Fail(rest.empty());
    ++at_;
    return true;
  }

  bool Object(int depth, std::string* json) {
    ++at_;
    ArgumentList members;
    if (!Rest().starts_with('}')) {
      do {
        std::string key, value;
        if (!Key(&key) || !Value(depth, &value)) return false;
        members.Add(key, std::move(value));
      } while (TakeComma());
    }
    *json += members.ToJson();
    return TakeClose('}');
  }

  bool Array(int depth, std::string* json) {
    ++at_;
    *json += '[';
    if (!Rest().starts_with(']')) {
      bool is_first = true;
      do {
        if (!is_first) *json += ", ";
        is_first = false;
        if (!Value(depth, json)) return false;
      } while (TakeComma());
    }
    *json += ']';
    return TakeClose(']');
  }

  bool TakeComma() {
    if (!Rest().starts_with(',')) return false;
    ++at_;
    return true;
  }

  bool TakeClose(char byte) {
    const std::string_view rest = Rest();
    if (!rest.starts_with(byte)) return Fail(rest.empty());
    ++at_;
    return true;
  }

  bool Value(int depth, std::string* json) {
    const std::string_view rest = Rest();
    if (rest.starts_with(kGemmaQuote)) {
      std::string value;
      if (!Quoted(&value)) return false;
      AppendJsonString(value, json);
      return true;
    }
    if (MayBecomeMark(rest, kGemmaQuote)) return Fail(true);
    if (rest[0] == '{' || rest[0] == '[') {
      if (depth >= kJsonDepthMax) return Fail(false);
      return rest[0] == '{' ? Object(depth + 1, json) : Array(depth + 1, json);
    }
    if (rest[0] == '"') {
      const JsonSpan span = SpanJson(text_, at_, !at_end_);
      const std::string_view value = text_.substr(at_, span.end - at_);
      at_ = span.end;
      if (span.state != JsonSpan::State::kWhole) return Fail(span.state == JsonSpan::State::kCut);
      *json += value;
      return true;
    }
    return Bare(rest, json);
  }

  bool Bare(std::string_view rest, std::string* json) {
    const size_t end = rest.find_first_of(",{}[]<");
    if (end == std::string_view::npos) {
      at_ = text_.size();
      return Fail(true);
    }
    at_ += end;
    const std::string_view value = WithoutSpace(rest.substr(0, end));
    if (value.empty()) return Fail(false);
    if (value == "None" || value == "nil") {
      *json += "null";
    } else if (value == "True" || value == "False") {
      *json += value == "True" ? "true" : "false";
    } else if (IsJson(value)) {
      *json += value;
    } else {
      AppendJsonString(value, json);
    }
    return true;
  }

  const std::string_view text_;
  const bool at_end_;
  size_t at_ = 0;
  bool more_ = false;
  ToolCall call_;
};

class Gemma4 : public CallDialect {
 public:
  size_t FindMark(std::string_view text, size_t from, bool) const override {
    return FindFirst(text, from, kGemmaOpens);
  }
  Marks Ends() const override { return kGemmaCloses; }

  CallAttempt Read(std::string_view text, bool at_end) override {
    if (!text.starts_with(kGemmaOpens[0])) return NoMark(text, kGemmaOpens, at_end);
    GemmaCall call(text, at_end);
    if (call.Read()) return CallAttempt::Calls(call.at(), {call.Take()});
    if (call.more() && !at_end) return CallAttempt::More();
    return BrokenCall(text, kGemmaOpens[0].size(), call.at(), kGemmaCloses, kGemmaOpens, at_end);
  }
};

}  // namespace

std::unique_ptr<CallDialect> MakeGemma4() { return std::make_unique<Gemma4>(); }

}  // namespace minisgl::text
