// Dialects that write each argument in marks like those of XML, its value as bare text:
//
//   qwen3_coder  <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
//   minimax_m2   <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter>...
//   dsml         <|DSML|function_calls><|DSML|invoke name="NAME">
//                <|DSML|parameter name="KEY" string="true">VALUE</|DSML|parameter>...
//
// White space between marks means nothing. In qwen3_coder a line break at each end of a value is
// none of it. Values may contain marks: a value ends at a closing mark that another mark follows.
#include <array>
#include <optional>

#include "text/tool_calls/argument_list.h"
#include "text/tool_calls/json_span.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kQwenOpens[] = {"<tool_call>"};
constexpr std::string_view kQwenCloses[] = {"</tool_call>"};
constexpr std::string_view kQwenCallOpens[] = {"<function="};
constexpr std::string_view kQwenCallCloses[] = {"</function>"};
constexpr std::string_view kQwenAll[] = {"<tool_call>", "</tool_call>", "<function="};

constexpr std::string_view kMinimaxOpens[] = {"<minimax:tool_call>"};
constexpr std::string_view kMinimaxCloses[] = {"</minimax:tool_call>"};
constexpr std::string_view kMinimaxCallOpens[] = {"<invoke name="};
constexpr std::string_view kMinimaxCallCloses[] = {"</invoke>"};
constexpr std::string_view kMinimaxAll[] = {"<minimax:tool_call>", "</minimax:tool_call>",
                                            "<invoke name="};

#define MINISGL_DSML "\uff5cDSML\uff5c"
constexpr std::string_view kDsmlOpens[] = {"<" MINISGL_DSML "function_calls>",
                                           "<" MINISGL_DSML "tool_calls>"};
constexpr std::string_view kDsmlCloses[] = {"</" MINISGL_DSML "function_calls>",
                                            "</" MINISGL_DSML "tool_calls>"};
constexpr std::string_view kDsmlCallOpens[] = {"<" MINISGL_DSML "invoke name="};
constexpr std::string_view kDsmlCallCloses[] = {"</" MINISGL_DSML "invoke>"};
constexpr std::string_view kDsmlAll[] = {
    "<" MINISGL_DSML "function_calls>", "<" MINISGL_DSML "tool_calls>",
    "</" MINISGL_DSML "function_calls>", "</" MINISGL_DSML "tool_calls>",
    "<" MINISGL_DSML "invoke name="};

struct XmlForm {
  SectionMarks marks;
  std::string_view parameter_open, parameter_close;
  bool quotes_names = true;
  bool trims_line_breaks = false;
  ToolTypes::Unknown unknown = ToolTypes::Unknown::kString;
};
const XmlForm kQwenForm = {{kQwenOpens, kQwenCloses, kQwenCallOpens, kQwenCallCloses, kQwenAll},
                           "<parameter=",
                           "</parameter>",
                           /*quotes_names=*/false,
                           /*trims_line_breaks=*/true};
const XmlForm kMinimaxForm = {
    {kMinimaxOpens, kMinimaxCloses, kMinimaxCallOpens, kMinimaxCallCloses, kMinimaxAll},
    "<parameter name=",
    "</parameter>"};
const XmlForm kDsmlForm = {{kDsmlOpens, kDsmlCloses, kDsmlCallOpens, kDsmlCallCloses, kDsmlAll},
                           "<" MINISGL_DSML "parameter name=",
                           "</" MINISGL_DSML "parameter>",
                           /*quotes_names=*/true,
                           /*trims_line_breaks=*/false,
                           ToolTypes::Unknown::kJson};
#undef MINISGL_DSML

constexpr size_t kXmlNameMax = 1024;

// Follows one call. After a step that fails, more_ says whether more text may mend it.
class XmlCall {
 public:
  XmlCall(const XmlForm& form, const ToolTypes& types, std::string_view text)
      : form_(form), types_(types), text_(text) {}

  bool Read() {
    at_ = form_.marks.call_opens[0].size();
    if (!Name(&call_.name)) return false;
    const std::string_view close = form_.marks.call_closes[0];
    for (;;) {
      at_ = SkipSpace(text_, at_);
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with(close)) break;
      if (!rest.starts_with(form_.parameter_open)) {
        return Fail(MayBecomeMark(rest, close) || MayBecomeMark(rest, form_.parameter_open));
      }
      if (!Parameter()) return false;
    }
    at_ += close.size();
    call_.arguments = arguments_.ToJson();
    return true;
  }

  size_t at() const { return at_; }
  bool more() const { return more_; }
  ToolCall Take() { return std::move(call_); }

 private:
  bool Fail(bool more) {
    more_ = more;
    return false;
  }

  // Takes a name, and with it the rest of its mark.
  bool Name(std::string* name) {
    const std::string_view rest = text_.substr(at_, kXmlNameMax);
    const bool is_quoted = form_.quotes_names && (rest.starts_with('"') || rest.starts_with('\''));
    if (form_.quotes_names && !is_quoted) return Fail(rest.empty());
    const std::string_view ends = !is_quoted ? ">\n<" : rest[0] == '"' ? "\"\n" : "'\n";
    const size_t begin = is_quoted ? 1 : 0;
    const size_t end = rest.find_first_of(ends, begin);
    if (end == std::string_view::npos) return Fail(rest.size() < kXmlNameMax);
    if (rest[end] == '\n' || rest[end] == '<' || end == begin) return Fail(false);
    *name = std::string(WithoutSpace(rest.substr(begin, end - begin)));
    if (name->empty()) return Fail(false);
    at_ += end + 1;
    return !is_quoted || EndOfMark();
  }

  // Takes attributes and the end of a mark.
  bool EndOfMark() {
    is_string_.reset();
    const std::string_view rest = text_.substr(at_, kXmlNameMax);
    const size_t end = rest.find_first_of(">\n<");
    if (end == std::string_view::npos) return Fail(rest.size() < kXmlNameMax);
    if (rest[end] != '>') return Fail(false);
    const std::string_view attributes = WithoutSpace(rest.substr(0, end));
    if (attributes == "string=\"true\"") is_string_ = true;
    if (attributes == "string=\"false\"") is_string_ = false;
    if (!attributes.empty() && !is_string_) return Fail(false);
    at_ += end + 1;
    return true;
  }

  bool Parameter() {
    at_ += form_.parameter_open.size();
    std::string name;
    if (!Name(&name)) return false;
    const size_t begin = at_;
    const std::string_view close = form_.parameter_close;
    for (;;) {
      const size_t end = text_.find(close, at_);
      if (end == std::string_view::npos) {
        at_ = text_.size();
        return Fail(true);
      }
      at_ = end + close.size();
      const std::string_view rest = text_.substr(SkipSpace(text_, at_));
      if (rest.starts_with(form_.parameter_open) || rest.starts_with(form_.marks.call_closes[0])) {
        arguments_.Add(name, Value(name, text_.substr(begin, end - begin)));
        return true;
      }
      const bool may_follow = MayBecomeMark(rest, form_.parameter_open) ||
                              MayBecomeMark(rest, form_.marks.call_closes[0]);
      if (may_follow) return Fail(true);
    }
  }

  std::string Value(const std::string& parameter, std::string_view text) const {
    if (form_.trims_line_breaks) {
      if (text.starts_with("\r\n")) text.remove_prefix(1);
      if (text.starts_with('\n')) text.remove_prefix(1);
      if (text.ends_with('\n')) text.remove_suffix(1);
    }
    if (!is_string_) return types_.ValueOf(call_.name, parameter, text, form_.unknown);
    if (!*is_string_ && IsJson(text)) return std::string(WithoutSpace(text));
    std::string json;
    AppendJsonString(text, &json);
    return json;
  }

  const XmlForm& form_;
  const ToolTypes& types_;
  const std::string_view text_;
  size_t at_ = 0;
  bool more_ = false;
  std::optional<bool> is_string_;  // as the parameter's mark says
  ToolCall call_;
  ArgumentList arguments_;
};

class XmlCalls : public SectionedDialect {
 public:
  XmlCalls(const XmlForm& form, ToolTypes types)
      : SectionedDialect(form.marks), form_(form), types_(std::move(types)) {}

 private:
  CallAttempt ReadCall(std::string_view text, bool at_end) const override {
    XmlCall call(form_, types_, text);
    if (call.Read()) return CallAttempt::Calls(call.at(), {call.Take()});
    if (call.more() && !at_end) return CallAttempt::More();
    return Broken(text, call.at(), at_end);
  }

  const XmlForm& form_;
  const ToolTypes types_;
};

}  // namespace

std::unique_ptr<CallDialect> MakeQwen3Coder(ToolTypes types) {
  return std::make_unique<XmlCalls>(kQwenForm, std::move(types));
}

std::unique_ptr<CallDialect> MakeMinimaxM2(ToolTypes types) {
  return std::make_unique<XmlCalls>(kMinimaxForm, std::move(types));
}

std::unique_ptr<CallDialect> MakeDsml(ToolTypes types) {
  return std::make_unique<XmlCalls>(kDsmlForm, std::move(types));
}

}  // namespace minisgl::text
