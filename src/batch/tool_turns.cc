#include "batch/tool_turns.h"

#include <fmt/core.h>

#include <string>

#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "term/messages.h"

namespace minisgl::batch {
namespace {

constexpr const char* kToolSession = "tools";
constexpr size_t kShownResultMax = 200;  // bytes

}  // namespace

ToolTurns::ToolTurns(Row first, load::UserTools tools, load::ToolOptions options,
                     std::function<bool()> stops)
    : tools_(std::move(tools)),
      options_(std::move(options)),
      stops_(std::move(stops)),
      next_(std::move(first)) {
  next_->session = kToolSession;
  next_->tools = tools_.definitions();
}

bool ToolTurns::WillRun(const Row& row, const RowAnswer& answer) const {
  return row.calls != nullptr && FinishReasonOf(answer) == kCallsFinish &&
         num_turns_ < options_.turns_max;
}

void ToolTurns::TakeAnswer(const Row& row, const RowAnswer& answer) {
  ended_ = !WillRun(row, answer);
  if (ended_) {
    if (answer.calls.empty()) return;
    return Log(LogLevel::kWarning,
               num_turns_ < options_.turns_max
                   ? "the answer was cut: its calls of tools are not run"
                   : fmt::format("the calls of the answer are not run: those of {} answers were "
                                 "(--tool-turns)",
                                 num_turns_));
  }
  ++num_turns_;
  Row next;
  next.index = row.index + 1;
  next.line = row.line;
  next.kind = PromptKind::kMessages;
  next.session = kToolSession;
  next.tools = tools_.definitions();
  next.messages = Json(Json::Array());
  for (const ToolCall& call : answer.calls) {
    Log(LogLevel::kInfo, "[call] " + load::ShownCall(call));
    const std::string text = load::RunUserTool(tools_, options_, call, stops_);
    Log(LogLevel::kInfo,
        fmt::format("[{}] {}", Visible(call.name), Visible(text, kShownResultMax)));
    next.messages.Append(load::ToolMessage(call, text));
  }
  next_ = std::move(next);
}

RowSource::Outcome ToolRowSource::Next(int, ParsedRow* row) {
  std::optional<Row> next = turns_.TakeRow();
  if (!next) return turns_.ended() ? Outcome::kEnd : Outcome::kNotYet;
  *row = ParsedRow{std::move(*next), std::nullopt, std::nullopt};
  return Outcome::kRow;
}

void ToolAnswerWriter::Begin(const Row& row) {
  stream_.reset();
  has_shown_ = false;
  if (as_text_ && row.calls != nullptr) {
    stream_.emplace(*row.calls, CallIds(row, 0, row.calls->dialect));
  }
  writer_->Begin(row);
}

Status ToolAnswerWriter::WriteText(const Row& row, int32_t answer, std::string_view text,
                                   const TextParts& parts) {
  if (!stream_) return writer_->WriteText(row, answer, text, parts);
  return WritePiece(row, answer, stream_->Push(text, parts));
}

Status ToolAnswerWriter::EndText(const Row& row, int32_t answer) {
  if (stream_) MINISGL_RETURN_IF_ERROR(WritePiece(row, answer, stream_->Finish()));
  return writer_->EndText(row, answer);
}

Status ToolAnswerWriter::WritePiece(const Row& row, int32_t answer, const ToolCallPiece& piece) {
  TextParts parts;
  AddPart(PartKind::kThought, piece.reasoning.size(), &parts);
  AddPart(PartKind::kText, piece.content.size(), &parts);
  if (parts.empty()) return Status();
  has_shown_ = true;
  return writer_->WriteText(row, answer, piece.reasoning + piece.content, parts);
}

Status ToolAnswerWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  const RowAnswer& answer = answers.front();
  const bool is_call_alone = as_text_ && !has_shown_ && turns_.WillRun(row, answer);
  if (!is_call_alone) MINISGL_RETURN_IF_ERROR(writer_->WriteAnswers(row, answers));
  turns_.TakeAnswer(row, answer);
  return Status();
}

Status ToolAnswerWriter::WriteError(const Row& row, const RowError& error) {
  turns_.TakeError();
  return writer_->WriteError(row, error);
}

}  // namespace minisgl::batch
