#include "cli/answer_writer.h"

#include <utility>

#include "cli/messages.h"
#include "minisgl/base/utf8.h"

namespace minisgl {

Status JsonAnswerWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  return WriteRow(row.index, FormatAnswerRow(row, answers, tokenizer_));
}

Status JsonAnswerWriter::WriteError(const Row& row, const RowError& error) {
  return WriteRow(row.index, FormatErrorRow(row, error));
}

Status JsonAnswerWriter::WriteRow(int64_t index, std::string text) {
  if (!ordered_) return WriteNow(text);
  held_bytes_ += text.size();
  held_.emplace(index, std::move(text));
  while (!held_.empty() && !expected_.empty() && held_.begin()->first == expected_.front()) {
    MINISGL_RETURN_IF_ERROR(WriteNow(held_.begin()->second));
    held_bytes_ -= held_.begin()->second.size();
    held_.erase(held_.begin());
    expected_.pop_front();
  }
  return Status();
}

Status JsonAnswerWriter::WriteNow(const std::string& text) {
  return output_.Write(output_.is_terminal() ? FilterForTerminal(text) : text);
}

Status TextAnswerWriter::WriteText(std::string_view text) {
  began_ = began_ || !text.empty();
  return WritePiece(splitter_.Push(text));
}

Status TextAnswerWriter::WritePiece(const ReasoningPiece& piece) {
  MINISGL_RETURN_IF_ERROR(reasoning_.Show(piece.reasoning));
  if (piece.text.empty()) return Status();
  MINISGL_RETURN_IF_ERROR(reasoning_.End(/*before_text=*/true));
  wrote_text_ = true;
  return output_.Write(output_.is_terminal() ? filter_.Push(piece.text) : piece.text);
}

Status TextAnswerWriter::End() {
  MINISGL_RETURN_IF_ERROR(WritePiece(splitter_.Finish()));
  MINISGL_RETURN_IF_ERROR(reasoning_.End(/*before_text=*/false));
  return output_.Write((output_.is_terminal() ? filter_.Finish() : "") + "\n");
}

Status TextAnswerWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) {
  MINISGL_RETURN_IF_ERROR(End());
  for (const std::string& warning : row.warnings) PrintStderr("minisgl: " + Visible(warning, 400));
  if (began_ && !wrote_text_) {
    const bool cut = answers.front().finish_reason == "length";
    PrintStderr(cut ? "minisgl: the model was still reasoning as its tokens ended; give it more "
                      "(--max-tokens) or turn reasoning off (--think off)"
                    : "minisgl: the model reasoned and gave no answer");
  }
  return Status();
}

Status TextAnswerWriter::WriteError(const Row&, const RowError& error) {
  const Status status = began_ ? End() : Status();
  PrintStderr("minisgl: " + Visible(error.message, 4000));
  return status;
}

}  // namespace minisgl
