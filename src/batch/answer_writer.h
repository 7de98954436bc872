// What becomes of answers: rows of JSON Lines, in input order or as they come, or one text streamed
// as it is written.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "batch/row_output.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "term/answer_view.h"
#include "term/output.h"

namespace minisgl::batch {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The answers of `row`, whose prompt is built, will come.
  virtual void Begin(const Row&) {}
  // More text of an answer that is not complete.
  virtual Status WriteText(std::string_view text) = 0;
  virtual Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) = 0;
  virtual Status WriteError(const Row& row, const RowError& error) = 0;
  // The row `index` will be given, after all that were announced before.
  virtual void Expect(int64_t) {}
  // Rows given and not yet written, because one before them is not done.
  virtual size_t held_rows() const { return 0; }
  virtual size_t held_bytes() const { return 0; }
};

class JsonAnswerWriter : public AnswerWriter {
 public:
  // Both outlive this. `ordered`: rows are held until all announced before them are written.
  JsonAnswerWriter(term::Output* output, const Tokenizer* tokenizer, bool ordered)
      : output_(*output), tokenizer_(*tokenizer), ordered_(ordered) {}

  Status WriteText(std::string_view) override { return Status(); }
  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;
  Status WriteError(const Row& row, const RowError& error) override;
  void Expect(int64_t index) override {
    if (ordered_) expected_.push_back(index);
  }
  size_t held_rows() const override { return held_.size(); }
  size_t held_bytes() const override { return held_bytes_; }

 private:
  Status WriteRow(int64_t index, std::string text);
  Status WriteNow(const std::string& text);

  term::Output& output_;
  const Tokenizer& tokenizer_;
  const bool ordered_;
  std::deque<int64_t> expected_;  // and not yet written; the next one first
  std::map<int64_t, std::string> held_;
  size_t held_bytes_ = 0;
};

// The answer of one row as it is, its reasoning apart. A line break ends it.
class TextAnswerWriter : public AnswerWriter {
 public:
  TextAnswerWriter(term::Output* output, term::AnswerView::Mode reasoning)
      : view_(output, reasoning) {}

  void Begin(const Row& row) override { view_.Begin(row.reasoning); }
  Status WriteText(std::string_view text) override { return view_.Show(text); }
  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;
  Status WriteError(const Row& row, const RowError& error) override;

 private:
  term::AnswerView view_;
};

}  // namespace minisgl::batch
