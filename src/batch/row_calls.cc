#include "batch/row_calls.h"

#include <fmt/core.h>

#include <utility>

#include "batch/row.h"
#include "minisgl/base/sha256.h"

namespace minisgl::batch {
namespace {

constexpr size_t kIdCharacters = 24;
constexpr size_t kShortIdCharacters = 9;

bool HasShortIds(ToolDialect dialect) {
  return dialect == ToolDialect::kMistral || dialect == ToolDialect::kMistralV3;
}

}  // namespace

std::shared_ptr<const CallRules> SharedCallRules::Share(CallRules rules) {
  const std::lock_guard lock(mutex_);
  if (last_ == nullptr || *last_ != rules) {
    last_ = std::make_shared<const CallRules>(std::move(rules));
  }
  return last_;
}

CallIds::CallIds(const Row& row, int32_t answer, ToolDialect dialect)
    : key_(fmt::format("{} {} {}", row.index, answer, row.id.Dump())), dialect_(dialect) {}

void CallIds::Name(std::vector<ToolCall>* calls) {
  for (ToolCall& call : *calls) {
    const int64_t number = num_calls_++;
    if (!call.id.empty()) continue;
    Sha256 hasher;
    hasher.Add(fmt::format("{} {}", number, key_));
    const std::string digest = hasher.FinishHex();
    call.id = HasShortIds(dialect_) ? digest.substr(0, kShortIdCharacters)
                                    : "call_" + digest.substr(0, kIdCharacters);
  }
}

ToolCallPiece ReadCalls(const CallRules& rules, CallIds ids, std::string_view text,
                        const TextParts& parts) {
  ToolCallPiece piece = ReadToolCalls(rules.dialect, rules.tools, text, parts);
  if (rules.only_first && piece.calls.size() > 1) piece.calls.resize(1);
  ids.Name(&piece.calls);
  return piece;
}

CallStream::CallStream(const CallRules& rules, CallIds ids)
    : reader_(rules.dialect, rules.tools), ids_(std::move(ids)), only_first_(rules.only_first) {}

ToolCallPiece CallStream::Push(std::string_view text, const TextParts& parts) {
  return Take(reader_.Push(text, parts));
}

ToolCallPiece CallStream::Finish() { return Take(reader_.Finish()); }

ToolCallPiece CallStream::Take(ToolCallPiece piece) {
  if (only_first_ && !piece.calls.empty()) piece.calls.resize(has_call_ ? 0 : 1);
  has_call_ = has_call_ || !piece.calls.empty();
  ids_.Name(&piece.calls);
  return piece;
}

}  // namespace minisgl::batch
