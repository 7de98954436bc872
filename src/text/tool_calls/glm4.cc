// GLM 4.5 to 4.7:
//   <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>
//
// White space between marks means nothing. Values may contain marks: a value ends at a closing mark
// that another mark follows.
#include "text/tool_calls/argument_list.h"
#include "text/tool_calls/json_span.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kGlmOpens[] = {"<tool_call>"};
constexpr std::string_view kGlmCloses[] = {"</tool_call>"};
constexpr std::string_view kKeyOpen = "<arg_key>", kKeyClose = "</arg_key>";
constexpr std::string_view kValueOpen = "<arg_value>", kValueClose = "</arg_value>";
constexpr size_t kGlmNameMax = 1024;

class GlmCall {
 public:
  GlmCall(const ToolTypes& types, std::string_view text) : types_(types), text_(text) {}

  bool Read() {
    at_ = kGlmOpens[0].size();
    if (!Name()) return false;
    for (;;) {
      at_ = SkipSpace(text_, at_);
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with(kGlmCloses[0])) break;
      if (!rest.starts_with(kKeyOpen)) return Fail(MayFollow(rest));
      if (!Argument()) return false;
    }
    at_ += kGlmCloses[0].size();
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
  static bool MayFollow(std::string_view rest) {
    return MayBecomeMark(rest, kKeyOpen) || MayBecomeMark(rest, kGlmCloses[0]);
  }

  bool Name() {
    const size_t begin = SkipSpace(text_, at_);
    const std::string_view rest = text_.substr(begin, kGlmNameMax);
    const size_t end = rest.find_first_of("<\n");
    if (end == std::string_view::npos) return Fail(rest.size() < kGlmNameMax);
    call_.name = std::string(WithoutSpace(rest.substr(0, end)));
    at_ = begin + end;
    return !call_.name.empty() || Fail(false);
  }

  bool Argument() {
    at_ += kKeyOpen.size();
    const size_t key_end = text_.find(kKeyClose, at_);
    if (key_end == std::string_view::npos) {
      at_ = text_.size();
      return Fail(true);
    }
    const std::string key(WithoutSpace(text_.substr(at_, key_end - at_)));
    at_ = SkipSpace(text_, key_end + kKeyClose.size());
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(kValueOpen)) return Fail(MayBecomeMark(rest, kValueOpen));
    at_ += kValueOpen.size();
    for (const size_t begin = at_;;) {
      const size_t end = text_.find(kValueClose, at_);
      if (end == std::string_view::npos) {
        at_ = text_.size();
        return Fail(true);
      }
      at_ = end + kValueClose.size();
      const std::string_view behind = text_.substr(SkipSpace(text_, at_));
      if (behind.starts_with(kKeyOpen) || behind.starts_with(kGlmCloses[0])) {
        const std::string_view value = text_.substr(begin, end - begin);
        arguments_.Add(key, types_.ValueOf(call_.name, key, value, ToolTypes::Unknown::kJson));
        return true;
      }
      if (MayFollow(behind)) return Fail(true);
    }
  }

  const ToolTypes& types_;
  const std::string_view text_;
  size_t at_ = 0;
  bool more_ = false;
  ToolCall call_;
  ArgumentList arguments_;
};

class Glm4 : public CallDialect {
 public:
  explicit Glm4(ToolTypes types) : types_(std::move(types)) {}

  size_t FindMark(std::string_view text, size_t from, bool) const override {
    return FindFirst(text, from, kGlmOpens);
  }
  Marks Ends() const override { return kGlmCloses; }

  CallAttempt Read(std::string_view text, bool at_end) override {
    if (!text.starts_with(kGlmOpens[0])) return NoMark(text, kGlmOpens, at_end);
    GlmCall call(types_, text);
    if (call.Read()) return CallAttempt::Calls(call.at(), {call.Take()});
    if (call.more() && !at_end) return CallAttempt::More();
    return BrokenCall(text, kGlmOpens[0].size(), call.at(), kGlmCloses, kGlmOpens, at_end);
  }

 private:
  const ToolTypes types_;
};

}  // namespace

std::unique_ptr<CallDialect> MakeGlm4(ToolTypes types) {
  return std::make_unique<Glm4>(std::move(types));
}

}  // namespace minisgl::text
