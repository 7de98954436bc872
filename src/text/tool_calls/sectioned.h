// Dialects that enclose each call in marks, and all calls in marks of a section.
//
// A section that holds a call gives way to it. The marks of one that holds none are content. Calls
// are read outside of sections too.
#pragma once

#include <span>
#include <string_view>

#include "text/tool_calls/call_dialect.h"

namespace minisgl::text {

using Marks = std::span<const std::string_view>;

struct SectionMarks {
  Marks opens, closes;            // of sections
  Marks call_opens, call_closes;  // of calls
  Marks all;                      // all but call_closes
};

class SectionedDialect : public CallDialect {
 public:
  // The marks are static.
  explicit SectionedDialect(const SectionMarks& marks) : marks_(marks) {}

  size_t FindMark(std::string_view text, size_t from, bool) const override {
    return FindFirst(text, from, marks_.all);
  }
  Marks Ends() const override { return marks_.call_closes; }
  CallAttempt Read(std::string_view text, bool at_end) override;

 protected:
  // Reads the call at the beginning of `text`, which begins with a mark of call_opens.
  virtual CallAttempt ReadCall(std::string_view text, bool at_end) const = 0;
  // What ReadCall returns for a broken call.
  CallAttempt Broken(std::string_view text, size_t examined, bool at_end) const;
  const SectionMarks& marks() const { return marks_; }

 private:
  CallAttempt ReadSection(std::string_view text, std::string_view open, bool at_end);

  const SectionMarks marks_;
  bool in_section_ = false;
};

// The first of `marks` that `text` begins with; "" if there is none.
std::string_view MarkAt(std::string_view text, Marks marks);
// True if `text` is a beginning of one of `marks`.
bool MayBecomeAny(std::string_view text, Marks marks);

}  // namespace minisgl::text
