#include "batch/answer_writer.h"

#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/text/call_messages.h"
#include "term/messages.h"

namespace minisgl::batch {

Status JsonAnswerWriter::WriteText(const Row& row, int32_t answer, std::string_view text,
                                   const TextParts& parts) {
  if (!streams_) return Status();
  if (row.calls != nullptr)
    return WritePiece(row, answer, StreamOf(row, answer)->Push(text, parts));
  ReasoningPiece piece = makers_[{row.index, answer}].Push(text, parts);
  return WritePiece(row, answer, {std::move(piece.reasoning), std::move(piece.text), {}});
}

CallStream* JsonAnswerWriter::StreamOf(const Row& row, int32_t answer) {
  const auto key = std::pair(row.index, answer);
  const auto found = call_streams_.find(key);
  if (found != call_streams_.end()) return &found->second;
  const CallIds ids(row, answer + row.num_called, row.calls->dialect);
  CallStream stream(*row.calls, ids);
  return &call_streams_.emplace(key, std::move(stream)).first->second;
}

Status JsonAnswerWriter::EndText(const Row& row, int32_t answer) {
  if (!streams_ || row.calls == nullptr) return Status();
  MINISGL_RETURN_IF_ERROR(WritePiece(row, answer, StreamOf(row, answer)->Finish()));
  call_streams_.erase({row.index, answer});  // of another answer, if calls are run
  return Status();
}

Status JsonAnswerWriter::WriteResults(const Row& row, int32_t answer, const Json& results) {
  if (!streams_) return Status();
  return output_.Write(BeginPiece(row, answer).Set("tool_results", results).Dump() + "\n");
}

Json JsonAnswerWriter::BeginPiece(const Row& row, int32_t answer) {
  Json out = Json(Json::Object());
  out.Set("id", row.id).Set("index", row.index);
  if (row.all_turns) out.Set("turn", int64_t{answer});
  if (row.n > 1) out.Set("choice", int64_t{answer});
  return out;
}

Status JsonAnswerWriter::WritePiece(const Row& row, int32_t answer, ToolCallPiece piece) {
  if (row.hide_reasoning) piece.reasoning.clear();
  if (piece.reasoning.empty() && piece.content.empty() && piece.calls.empty()) return Status();
  Json out = BeginPiece(row, answer);
  if (!piece.reasoning.empty()) out.Set("reasoning_delta", std::move(piece.reasoning));
  if (!piece.content.empty()) out.Set("delta", std::move(piece.content));
  if (!piece.calls.empty()) out.Set("tool_calls_delta", CallsJson(piece.calls));
  return output_.Write(out.Dump() + "\n");
}

void JsonAnswerWriter::EndPieces(const Row& row) {
  const auto begin = makers_.lower_bound({row.index, 0});
  makers_.erase(begin, makers_.lower_bound({row.index + 1, 0}));
  call_streams_.erase(call_streams_.lower_bound({row.index, 0}),
                      call_streams_.lower_bound({row.index + 1, 0}));
}

Status JsonAnswerWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  return WriteFormatted(row, FormatAnswerRow(row, answers, tokenizer_));
}

Status JsonAnswerWriter::WriteFormatted(const Row& row, std::string line) {
  EndPieces(row);
  return WriteRow(row.index, {std::move(line), /*is_error=*/row.incomplete.has_value()});
}

Status JsonAnswerWriter::WriteError(const Row& row, const RowError& error) {
  EndPieces(row);
  return WriteRow(row.index, {FormatErrorRow(row, error), /*is_error=*/true});
}

Status JsonAnswerWriter::WriteRow(int64_t index, WrittenRow row) {
  if (!ordered_) return WriteNow(index, row);
  held_bytes_ += row.text.size();
  held_errors_ += row.is_error ? 1 : 0;
  held_.emplace(index, std::move(row));
  while (!held_.empty() && !expected_.empty() && held_.begin()->first == expected_.front()) {
    MINISGL_RETURN_IF_ERROR(WriteFirstHeld());
    expected_.pop_front();
  }
  return Status();
}

Status JsonAnswerWriter::WriteFirstHeld() {
  const auto first = held_.begin();
  MINISGL_RETURN_IF_ERROR(WriteNow(first->first, first->second));
  held_bytes_ -= first->second.text.size();
  held_errors_ -= first->second.is_error ? 1 : 0;
  held_.erase(first);
  return Status();
}

Status JsonAnswerWriter::WriteHeld() {
  while (!held_.empty()) MINISGL_RETURN_IF_ERROR(WriteFirstHeld());
  expected_.clear();
  return Status();
}

Status JsonAnswerWriter::WriteNow(int64_t index, const WrittenRow& row) {
  const bool goes_apart = row.is_error && errors_ != nullptr;
  return goes_apart ? errors_->Write(index, row.text) : output_.Write(row.text);
}

Status ScoreWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  const auto& tokens = answers.front().prompt_logprobs;
  totals_.Add(SumOfLogprobs(tokens), std::ssize(tokens));
  return JsonAnswerWriter::WriteAnswers(row, answers);
}

Status TextAnswerWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  MINISGL_RETURN_IF_ERROR(view_.End(term::AnswerView::LineBreak::kAdd));
  for (const std::string& warning : row.warnings)
    term::PrintStderr("minisgl: " + Visible(warning, 400));
  if (view_.began() && !view_.has_text()) {
    const bool cut = answers.front().finish_reason == "length";
    term::PrintStderr(
        cut ? "minisgl: the model was still reasoning when its tokens ran out; give it more "
              "(--max-tokens), bound it (--think-budget) or turn it off (--think off)"
            : "minisgl: the model reasoned but gave no answer");
  }
  return Status();
}

Status TextAnswerWriter::WriteError(const Row&, const RowError& error) {
  const bool began = view_.began();
  const Status status = began ? view_.End(term::AnswerView::LineBreak::kAdd) : Status();
  // Messages call the prompt of -p no row.
  const std::string stopped =
      began ? "stopped: the answer is not complete" : "stopped before the answer began";
  term::PrintStderr("minisgl: " +
                    (error.code == "cancelled" ? stopped : Visible(error.message, 4000)));
  return status;
}

}  // namespace minisgl::batch
