// Writers of answers: rows of JSON Lines, in input order or in order of completion, or the text of
// one answer, streamed while it is generated.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/error_file.h"
#include "batch/row.h"
#include "batch/row_output.h"
#include "batch/score_totals.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "term/answer_view.h"
#include "term/output.h"

namespace minisgl::batch {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // Called when the prompt of `row` is built, before any of its answers.
  virtual void Begin(const Row&) {}
  // Takes more text of an unfinished answer of the row, and its parts.
  virtual Status WriteText(const Row& row, int32_t answer, std::string_view text,
                           const TextParts& parts) = 0;
  // Called when an answer has all its text.
  virtual Status EndText(const Row&, int32_t) { return Status(); }
  // Called behind an answer whose calls were run, with their results as messages, before more text
  // of the same answer to the row.
  virtual Status WriteResults(const Row&, int32_t, const Json&) { return Status(); }
  // Row::incomplete: the row counts as an error row.
  virtual Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) = 0;
  virtual Status WriteError(const Row& row, const RowError& error) = 0;
  // Called often while answers are computed.
  virtual Status Pause() { return Status(); }
  // Returns the JSON of a row's first turns, for its error row (Row::turns); nullopt: none.
  virtual std::optional<std::string> FormatTurns(const Row&, const std::vector<RowAnswer>&) {
    return std::nullopt;
  }
  // Announces the row `index`: it will be written after all rows announced before it.
  virtual void Expect(int64_t) {}
  // Rows (and their bytes) that were handed over but not yet written, because an earlier row is not
  // done.
  virtual size_t held_rows() const { return 0; }
  virtual size_t held_bytes() const { return 0; }
  // Error rows among held_rows().
  virtual size_t held_errors() const { return 0; }
  // Writes the rows that are held, in order. Rows announced and not handed over until now will not
  // come.
  virtual Status WriteHeld() { return Status(); }
};

class JsonAnswerWriter : public AnswerWriter {
 public:
  // All must outlive this. If `ordered`, a row is held until all rows announced before it are
  // written. If `streams`, a line is written for each piece of text, before its row. `errors` takes
  // the error rows; null: the output does.
  JsonAnswerWriter(term::Output* output, const Tokenizer* tokenizer, bool ordered,
                   bool streams = false, ErrorFile* errors = nullptr)
      : output_(*output),
        errors_(errors),
        tokenizer_(*tokenizer),
        ordered_(ordered),
        streams_(streams) {}

  Status WriteText(const Row& row, int32_t answer, std::string_view text,
                   const TextParts& parts) override;
  Status EndText(const Row& row, int32_t answer) override;
  Status WriteResults(const Row& row, int32_t answer, const Json& results) override;
  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;
  Status WriteError(const Row& row, const RowError& error) override;
  std::optional<std::string> FormatTurns(const Row& row,
                                         const std::vector<RowAnswer>& answers) override {
    return batch::FormatTurns(row, answers, tokenizer_);
  }
  void Expect(int64_t index) override {
    if (ordered_) expected_.push_back(index);
  }
  size_t held_rows() const override { return held_.size(); }
  size_t held_bytes() const override { return held_bytes_; }
  size_t held_errors() const override { return held_errors_; }
  Status WriteHeld() override;

 protected:
  // Writes `line` as the answers to the row.
  Status WriteFormatted(const Row& row, std::string line);

 private:
  struct WrittenRow {
    std::string text;
    bool is_error = false;
  };
  Status WriteRow(int64_t index, WrittenRow row);
  Status WritePiece(const Row& row, int32_t answer, ToolCallPiece piece);
  static Json BeginPiece(const Row& row, int32_t answer);
  CallStream* StreamOf(const Row& row, int32_t answer);
  void EndPieces(const Row& row);
  Status WriteNow(int64_t index, const WrittenRow& row);
  Status WriteFirstHeld();

  term::Output& output_;
  ErrorFile* const errors_;
  const Tokenizer& tokenizer_;
  const bool ordered_;
  const bool streams_;
  // Makers for answers that began and whose rows are not written, by row and number of the answer.
  std::map<std::pair<int64_t, int32_t>, PieceMaker> makers_;
  std::map<std::pair<int64_t, int32_t>, CallStream> call_streams_;  // of rows that read calls
  std::deque<int64_t> expected_;  // announced and not yet written, next first
  std::map<int64_t, WrittenRow> held_;
  size_t held_bytes_ = 0;
  size_t held_errors_ = 0;
};

// Writes scores, and adds them up.
class ScoreWriter : public JsonAnswerWriter {
 public:
  ScoreWriter(term::Output* output, const Tokenizer* tokenizer, bool ordered, ErrorFile* errors,
              ScoreTotals* totals)
      : JsonAnswerWriter(output, tokenizer, ordered, /*streams=*/false, errors), totals_(*totals) {}

  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;

 private:
  ScoreTotals& totals_;
};

// Writes the answer of one row as plain text, apart from its reasoning, and ends it with a line
// break.
class TextAnswerWriter : public AnswerWriter {
 public:
  // `style`: on a terminal.
  TextAnswerWriter(term::Output* output, term::AnswerView::Mode reasoning, term::TextStyle style)
      : view_(output, reasoning), style_(style) {}

  void Begin(const Row&) override { view_.Begin(style_); }
  Status WriteText(const Row&, int32_t, std::string_view text, const TextParts& parts) override {
    return view_.Show(text, parts);
  }
  Status Pause() override { return view_.Pause(); }
  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;
  Status WriteError(const Row& row, const RowError& error) override;

 private:
  term::AnswerView view_;
  const term::TextStyle style_;
};

}  // namespace minisgl::batch
