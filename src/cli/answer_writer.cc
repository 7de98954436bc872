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
  wrote_text_ = wrote_text_ || !text.empty();
  return output_.is_terminal() ? output_.Write(filter_.Push(text)) : output_.Write(text);
}

Status TextAnswerWriter::WriteAnswers(const Row& row, const std::vector<RowAnswer>&) {
  for (const std::string& warning : row.warnings) PrintStderr("minisgl: " + Visible(warning, 400));
  return output_.Write((output_.is_terminal() ? filter_.Finish() : "") + "\n");
}

Status TextAnswerWriter::WriteError(const Row&, const RowError& error) {
  const Status status = wrote_text_
                            ? output_.Write((output_.is_terminal() ? filter_.Finish() : "") + "\n")
                            : Status();
  PrintStderr("minisgl: " + Visible(error.message, 4000));
  return status;
}

}  // namespace minisgl
