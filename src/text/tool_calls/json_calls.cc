// Dialects that write the name of a tool as text and its arguments as JSON, in sections:
//
//   deepseek_v3   <begin>function<sep>NAME
//                 ```json
//                 {...}
//                 ```<end>
//   deepseek_v31  <begin>NAME<sep>{...}<end>
//   kimi_k2       <begin>functions.NAME:INDEX<sep>{...}<end>
#include <algorithm>

#include "text/tool_calls/json_span.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kDeepseekOpens[] = {"<\uff5ctool\u2581calls\u2581begin\uff5c>"};
constexpr std::string_view kDeepseekCloses[] = {"<\uff5ctool\u2581calls\u2581end\uff5c>"};
constexpr std::string_view kDeepseekCallOpens[] = {"<\uff5ctool\u2581call\u2581begin\uff5c>"};
constexpr std::string_view kDeepseekCallCloses[] = {"<\uff5ctool\u2581call\u2581end\uff5c>"};
constexpr std::string_view kDeepseekAll[] = {kDeepseekOpens[0], kDeepseekCloses[0],
                                             kDeepseekCallOpens[0]};

constexpr std::string_view kKimiOpens[] = {"<|tool_calls_section_begin|>",
                                           "<|tool_call_section_begin|>"};
constexpr std::string_view kKimiCloses[] = {"<|tool_calls_section_end|>",
                                            "<|tool_call_section_end|>"};
constexpr std::string_view kKimiCallOpens[] = {"<|tool_call_begin|>"};
constexpr std::string_view kKimiCallCloses[] = {"<|tool_call_end|>"};
constexpr std::string_view kKimiAll[] = {kKimiOpens[0], kKimiOpens[1], kKimiCloses[0],
                                         kKimiCloses[1], kKimiCallOpens[0]};

enum class HeaderKind : uint8_t { kTypeAndFence, kName, kId };

struct JsonForm {
  SectionMarks marks;
  std::string_view separator;
  HeaderKind header = HeaderKind::kName;
};
const SectionMarks kDeepseekMarks = {kDeepseekOpens, kDeepseekCloses, kDeepseekCallOpens,
                                     kDeepseekCallCloses, kDeepseekAll};
const JsonForm kDeepseekV3Form = {kDeepseekMarks, "<\uff5ctool\u2581sep\uff5c>",
                                  HeaderKind::kTypeAndFence};
const JsonForm kDeepseekV31Form = {kDeepseekMarks, "<\uff5ctool\u2581sep\uff5c>",
                                   HeaderKind::kName};
const JsonForm kKimiForm = {{kKimiOpens, kKimiCloses, kKimiCallOpens, kKimiCallCloses, kKimiAll},
                            "<|tool_call_argument_begin|>",
                            HeaderKind::kId};

constexpr size_t kHeaderMax = 1024;
constexpr std::string_view kFence = "```";

// "functions.NAME:INDEX", of which both ends may be missing.
std::string_view NameOfId(std::string_view id) {
  constexpr std::string_view kFunctions = "functions.";
  if (id.starts_with(kFunctions)) id.remove_prefix(kFunctions.size());
  const size_t colon = id.rfind(':');
  if (colon == std::string_view::npos) return id;
  const std::string_view index = id.substr(colon + 1);
  const bool is_number = !index.empty() && std::ranges::all_of(index, [](char byte) {
    return byte >= '0' && byte <= '9';
  });
  return is_number ? id.substr(0, colon) : id;
}

class HeadedCall {
 public:
  HeadedCall(const JsonForm& form, std::string_view text, bool at_end)
      : form_(form), text_(text), at_end_(at_end) {}

  bool Read() {
    at_ = form_.marks.call_opens[0].size();
    return Header() && Arguments() && End();
  }

  size_t at() const { return at_; }
  bool more() const { return more_; }
  ToolCall Take() { return std::move(call_); }

 private:
  bool Fail(bool more) {
    more_ = more;
    return false;
  }

  // Takes the text before `mark`, and the mark.
  bool UpTo(std::string_view mark, std::string_view* before) {
    const std::string_view rest = text_.substr(at_, kHeaderMax);
    const size_t end = rest.find(mark);
    if (end == std::string_view::npos) return Fail(rest.size() < kHeaderMax);
    *before = WithoutSpace(rest.substr(0, end));
    at_ += end + mark.size();
    return before->find('<') == std::string_view::npos || Fail(false);
  }

  bool Header() {
    std::string_view header;
    if (!UpTo(form_.separator, &header)) return false;
    if (form_.header == HeaderKind::kTypeAndFence) {
      if (!UpTo("\n", &header)) return false;
      at_ = SkipSpace(text_, at_);
      const std::string_view rest = text_.substr(at_);
      has_fence_ = rest.starts_with(kFence);
      if (!has_fence_ && MayBecomeMark(rest, kFence) && !at_end_) return Fail(true);
      std::string_view language;
      if (has_fence_ && !UpTo("\n", &language)) return false;
    }
    if (form_.header == HeaderKind::kId) {
      call_.id = std::string(header);
      header = NameOfId(header);
    }
    call_.name = std::string(header);
    return !header.empty() || Fail(false);
  }

  // Nothing and null are an object without members.
  bool Arguments() {
    at_ = SkipSpace(text_, at_);
    call_.arguments = "{}";
    const std::string_view rest = text_.substr(at_);
    if (MarkOfEnd(rest) || (has_fence_ && rest.starts_with(kFence))) return true;
    const JsonSpan span = SpanJson(text_, at_, !at_end_);
    const std::string_view value = text_.substr(at_, span.end - at_);
    at_ = span.end;
    if (span.state != JsonSpan::State::kWhole) {
      return Fail(span.state == JsonSpan::State::kCut || MayBecomeEnd(rest));
    }
    if (value != "null") call_.arguments = std::string(value);
    return value.starts_with('{') || value == "null" || Fail(false);
  }

  bool End() {
    at_ = SkipSpace(text_, at_);
    if (has_fence_) {
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with(kFence)) {
        at_ = SkipSpace(text_, at_ + kFence.size());
      } else if (MayBecomeMark(rest, kFence)) {
        if (!at_end_) return Fail(true);
        at_ = text_.size();
      }
    }
    const std::string_view rest = text_.substr(at_);
    const std::string_view close = form_.marks.call_closes[0];
    if (rest.starts_with(close)) {
      at_ += close.size();
      return true;
    }
    if (MarkOfEnd(rest)) return true;
    if (!MayBecomeEnd(rest)) return Fail(false);
    if (!at_end_) return Fail(true);
    at_ = text_.size();
    return true;
  }

  bool MarkOfEnd(std::string_view rest) const {
    return rest.starts_with(form_.marks.call_closes[0]) || !MarkAt(rest, form_.marks.all).empty();
  }
  bool MayBecomeEnd(std::string_view rest) const {
    return MayBecomeMark(rest, form_.marks.call_closes[0]) || MayBecomeAny(rest, form_.marks.all);
  }

  const JsonForm& form_;
  const std::string_view text_;
  const bool at_end_;
  size_t at_ = 0;
  bool more_ = false;
  bool has_fence_ = false;
  ToolCall call_;
};

class HeadedCalls : public SectionedDialect {
 public:
  explicit HeadedCalls(const JsonForm& form) : SectionedDialect(form.marks), form_(form) {}

 private:
  CallAttempt ReadCall(std::string_view text, bool at_end) const override {
    HeadedCall call(form_, text, at_end);
    if (call.Read()) return CallAttempt::Calls(call.at(), {call.Take()});
    if (call.more() && !at_end) return CallAttempt::More();
    return Broken(text, call.at(), at_end);
  }

  const JsonForm& form_;
};

}  // namespace

std::unique_ptr<CallDialect> MakeDeepseekV3() {
  return std::make_unique<HeadedCalls>(kDeepseekV3Form);
}

std::unique_ptr<CallDialect> MakeDeepseekV31() {
  return std::make_unique<HeadedCalls>(kDeepseekV31Form);
}

std::unique_ptr<CallDialect> MakeKimiK2() { return std::make_unique<HeadedCalls>(kKimiForm); }

}  // namespace minisgl::text
