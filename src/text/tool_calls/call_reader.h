// Divides the text of an answer into content and calls, by the reader of its dialect.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/text/tool_calls.h"
#include "text/tool_calls/call_dialect.h"

namespace minisgl::text {

// Bytes of an answer's text.
struct ContentRange {
  size_t begin = 0, end = 0;
};

class CallReader {
 public:
  virtual ~CallReader() = default;
  virtual ToolCallPiece Push(std::string_view text, const TextParts& parts) = 0;
  virtual ToolCallPiece Finish() = 0;
  virtual uint64_t num_steps() const = 0;
  // Has the places of content appended to *ranges from now on. REQUIRES answers without parts.
  virtual void NoteContent(std::vector<ContentRange>* ranges) { (void)ranges; }
};

// `dialect` is null for an answer without calls.
std::unique_ptr<CallReader> MakeMarkedReader(std::unique_ptr<CallDialect> dialect);

// Reads messages in channels (channel_scanner.h) by their parts.
std::unique_ptr<CallReader> MakeHarmonyReader();
// The parts of an answer in channels whose control tokens are spelled. Those within the JSON
// arguments of a call are text.
TextParts HarmonyParts(std::string_view text);

// Joins the pieces of content that calls divide, by the rule of white space of tool_calls.h.
class ContentJoiner {
 public:
  // Appends what is decided of the content to *content.
  void AddText(std::string_view text, std::string* content);
  void AddMarks();
  // The white space at the end of the answer.
  std::string Finish();

 private:
  std::string blanks_;   // behind the content or the marks so far
  std::string between_;  // between the content and the marks behind it
  bool any_content_ = false;
  bool after_marks_ = false;
};

}  // namespace minisgl::text
