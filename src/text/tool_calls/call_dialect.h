// What a dialect's reader does: finds the beginning of calls, and reads one that begins a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/text/tool_calls.h"
#include "text/tool_calls/tool_types.h"

namespace minisgl::text {

// What was found where a call may begin.
struct CallAttempt {
  enum class Kind : uint8_t {
    kMore,   // not decided: more text is needed
    kCalls,  // marks with calls, or with none
    kText,   // no call
  };
  Kind kind = Kind::kMore;
  size_t size = 0;      // bytes taken, more than 0 unless kMore
  size_t examined = 0;  // bytes that decided it, a function of the text alone
  std::vector<ToolCall> calls;

  static CallAttempt More() { return {}; }
  static CallAttempt Text(size_t size, size_t examined) {
    return {Kind::kText, size, examined, {}};
  }
  static CallAttempt Calls(size_t size, std::vector<ToolCall> calls) {
    return {Kind::kCalls, size, size, std::move(calls)};
  }
};

// Used for one answer. A reader of a dialect may keep in mind what it has read.
class CallDialect {
 public:
  virtual ~CallDialect() = default;
  // Returns the place of the first mark at or behind `from`, or of the beginning of one at the
  // text's end; npos if there is none. `line_begins`: a line begins at 0.
  virtual size_t FindMark(std::string_view text, size_t from, bool line_begins) const = 0;
  // Reads at the beginning of `text`, which FindMark returned. What it decides of a text it decides
  // of the text with more behind it. `at_end`: there is no more; the result is not kMore.
  virtual CallAttempt Read(std::string_view text, bool at_end) = 0;
  // What stands at the end of calls: worth another Read.
  virtual std::span<const std::string_view> Ends() const = 0;
};

// The first place at or behind `from` where one of `marks` begins, or may begin at the text's end.
size_t FindFirst(std::string_view text, size_t from, std::span<const std::string_view> marks);
// True if `text` is a beginning of `mark`, or "", but not the whole.
inline bool MayBecomeMark(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

// What a reader returns for a text that begins with none of its marks: one byte of text, or kMore
// if the text may become one of them.
CallAttempt NoMark(std::string_view text, std::span<const std::string_view> marks, bool at_end);

// The end of a broken call that begins with a mark of `begin` bytes: behind the first of `closes`,
// or before the first of `opens`, or at the end of the text. kMore if it is not there yet.
CallAttempt BrokenCall(std::string_view text, size_t begin, size_t examined,
                       std::span<const std::string_view> closes,
                       std::span<const std::string_view> opens, bool at_end);

std::unique_ptr<CallDialect> MakeHermes();
std::unique_ptr<CallDialect> MakeQwen3Coder(ToolTypes types);
std::unique_ptr<CallDialect> MakeLlama3Json();
// `gives_broken`: broken arguments are given as they are.
std::unique_ptr<CallDialect> MakeMistral(bool gives_broken);
std::unique_ptr<CallDialect> MakeGemma4();
std::unique_ptr<CallDialect> MakeGlm4(ToolTypes types);
std::unique_ptr<CallDialect> MakeDeepseekV3();
std::unique_ptr<CallDialect> MakeDeepseekV31();
std::unique_ptr<CallDialect> MakeGranite();
std::unique_ptr<CallDialect> MakePythonic();
std::unique_ptr<CallDialect> MakeDsml(ToolTypes types);
std::unique_ptr<CallDialect> MakeKimiK2();
std::unique_ptr<CallDialect> MakeMinimaxM2(ToolTypes types);

}  // namespace minisgl::text
