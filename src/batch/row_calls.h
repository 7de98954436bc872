// The calls of tools in answers to rows: what is read of them, and their ids.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/text/answer_parts.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl::batch {

struct Row;

// How the answers to a row are read. Equal for rows with equal tools.
struct CallRules {
  ToolDialect dialect = ToolDialect::kNone;
  Json tools;               // as the row has them
  bool only_first = false;  // further calls are left out
  bool operator==(const CallRules&) const = default;
};

// Keeps the rules of the last row, so that rows with the same tools share them. Thread-safe.
class SharedCallRules {
 public:
  std::shared_ptr<const CallRules> Share(CallRules rules);

 private:
  std::mutex mutex_;
  std::shared_ptr<const CallRules> last_;
};

// Gives ids to the calls of one answer, in their order, unless the model wrote them. They depend on
// the row's id, its index, and the numbers of the answer and the call alone. For Mistral's dialects
// they are nine letters and digits, which their templates insist on.
class CallIds {
 public:
  // `answer`: the number of the answer to the row, or of its turn.
  CallIds(const Row& row, int32_t answer, ToolDialect dialect);
  void Name(std::vector<ToolCall>* calls);

 private:
  std::string key_;
  ToolDialect dialect_;
  int64_t num_calls_ = 0;
};

// Reads a whole answer, and gives its calls ids.
ToolCallPiece ReadCalls(const CallRules& rules, CallIds ids, std::string_view text,
                        const TextParts& parts);

// Reads an answer while it comes, as ReadCalls does.
class CallStream {
 public:
  CallStream(const CallRules& rules, CallIds ids);
  ToolCallPiece Push(std::string_view text, const TextParts& parts);
  // At the end of the answer. No call may follow.
  ToolCallPiece Finish();

 private:
  ToolCallPiece Take(ToolCallPiece piece);

  ToolCallReader reader_;
  CallIds ids_;
  bool only_first_;
  bool has_call_ = false;
};

}  // namespace minisgl::batch
