// The turns of one prompt whose model may call tools of the user: the calls in an answer are run,
// and a further row of the same session asks for the next answer with their results.
//
// The source and the writer of such a run share a ToolTurns, which outlives both. All are used by
// the thread of the run loop, which waits while a tool runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/answer_writer.h"
#include "batch/row.h"
#include "batch/row_calls.h"
#include "batch/row_source.h"
#include "load/user_tools.h"

namespace minisgl::batch {

class ToolTurns {
 public:
  // `stops` as in RunChild.
  ToolTurns(Row first, load::UserTools tools, load::ToolOptions options,
            std::function<bool()> stops);

  // For the source: the next row; nullopt while an answer is awaited, and after the last one.
  std::optional<Row> TakeRow() { return std::exchange(next_, std::nullopt); }
  bool ended() const { return ended_; }

  // For the writer: true if the calls in the answer to `row` will be run.
  bool WillRun(const Row& row, const RowAnswer& answer) const;
  // Runs the calls in the answer, after it was written, and makes the next row of their results. An
  // answer without calls to run is the last one.
  void TakeAnswer(const Row& row, const RowAnswer& answer);
  void TakeError() { ended_ = true; }

 private:
  const load::UserTools tools_;
  const load::ToolOptions options_;
  const std::function<bool()> stops_;
  std::optional<Row> next_;
  int64_t num_turns_ = 0;  // answers whose calls were run
  bool ended_ = false;
};

// The rows of a ToolTurns.
class ToolRowSource : public RowSource {
 public:
  explicit ToolRowSource(ToolTurns* turns) : turns_(*turns) {}
  Outcome Next(int timeout_ms, ParsedRow* row) override;
  size_t row_bytes() const override { return 0; }

 private:
  ToolTurns& turns_;
};

// Writes answers by another writer, and passes them to a ToolTurns.
class ToolAnswerWriter : public AnswerWriter {
 public:
  // `as_text`: `writer` shows text, which gets no calls, and nothing for an answer of calls alone.
  ToolAnswerWriter(std::unique_ptr<AnswerWriter> writer, ToolTurns* turns, bool as_text)
      : writer_(std::move(writer)), turns_(*turns), as_text_(as_text) {}

  void Begin(const Row& row) override;
  Status WriteText(const Row& row, int32_t answer, std::string_view text,
                   const TextParts& parts) override;
  Status EndText(const Row& row, int32_t answer) override;
  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;
  Status WriteError(const Row& row, const RowError& error) override;
  Status Pause() override { return writer_->Pause(); }
  void Expect(int64_t index) override { writer_->Expect(index); }
  size_t held_rows() const override { return writer_->held_rows(); }
  size_t held_bytes() const override { return writer_->held_bytes(); }
  size_t held_errors() const override { return writer_->held_errors(); }
  Status WriteHeld() override { return writer_->WriteHeld(); }

 private:
  Status WritePiece(const Row& row, int32_t answer, const ToolCallPiece& piece);

  const std::unique_ptr<AnswerWriter> writer_;
  ToolTurns& turns_;
  const bool as_text_;
  std::optional<CallStream> stream_;  // of the answer that is shown
  bool has_shown_ = false;            // some of it
};

}  // namespace minisgl::batch
