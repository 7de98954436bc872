// Where the rows of a run come from: the lines of a prompt file, or the one prompt of the command
// line.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/id_table.h"
#include "batch/row.h"
#include "batch/run_input.h"

namespace minisgl::batch {

// How long a command that does nothing else meanwhile waits for a row at a time.
inline constexpr int kRowWait_ms = 1000;

class RowSource {
 public:
  enum class Outcome { kRow, kNotYet, kEnd, kFailed };
  virtual ~RowSource() = default;

  // The next row, checked, or its error. Waits at most `timeout_ms`.
  virtual Outcome Next(int timeout_ms, ParsedRow* row) = 0;
  // Bytes of the row that Next gave last.
  virtual size_t row_bytes() const = 0;
  // Why Next gave kFailed.
  virtual Status status() const { return Status(); }
  // Whether what is left can be read without waiting for anybody.
  virtual bool never_waits() const { return true; }
};

// Which rows of an input are asked, by their index.
struct RowSelection {
  int64_t first = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  std::vector<bool> finished;  // left out where true; shorter than the input: none of the rest is

  bool Has(int64_t index) const {
    const auto place = static_cast<size_t>(index);
    return index >= first && index < end && (place >= finished.size() || !finished[place]);
  }
  // How many of `num_rows`.
  int64_t Count(int64_t num_rows) const;
};

// A row whose id an earlier row has.
struct DuplicateRow {
  int64_t index = 0, line = 0;
  int64_t first_index = 0, first_line = 0;  // of the row that had the id first
};

// What one reading of a whole file found, before anything runs.
struct FileCheck {
  int64_t rows = 0;
  int64_t bad_rows = 0;
  int64_t raw_prompts = 0;               // rows that are completed as they are
  std::string first_bad;                 // "FILE:LINE: what is wrong"
  std::vector<DuplicateRow> duplicates;  // in the order of the input
  std::vector<bool> has_id;              // by index of the row
  // Rows whose answers versions before the second rule of seeds drew otherwise (run_journal.h).
  int64_t reseeded_rows = 0;
  int64_t first_reseeded_line = 0;

  // Null where the row's id is its own, or it has none.
  const DuplicateRow* FindDuplicate(int64_t index) const;
};

// Reads all rows of a regular file and goes back to its beginning. `ids` (may be null) then has for
// each id the index of the first row that has it.
Result<FileCheck> CheckRows(LineReader* reader, bool lenient, IdTable* ids = nullptr);

// One row a line; one whose id an earlier row has is an error row. Rows that are not selected keep
// their place in the input and are not looked at.
class FileRowSource : public RowSource {
 public:
  // Of what is read once: ids are compared as they come, where `check_ids`.
  FileRowSource(LineReader* reader, bool lenient, bool check_ids)
      : reader_(*reader), lenient_(lenient), check_ids_(check_ids) {}
  // Of a file that CheckRows has read or will read into `*check` before the first row is taken. All
  // outlive this. (Of a pipe nothing is read before: as above.)
  FileRowSource(LineReader* reader, bool lenient, const RowSelection* selection,
                const FileCheck* check)
      : reader_(*reader),
        lenient_(lenient),
        check_ids_(!reader->regular()),
        selection_(selection),
        check_(check) {}

  Outcome Next(int timeout_ms, ParsedRow* row) override;
  size_t row_bytes() const override { return line_.size(); }
  Status status() const override;
  bool never_waits() const override { return reader_.regular(); }

 private:
  Outcome LookAtBeginning(int timeout_ms);
  void RefuseDuplicate(ParsedRow* row);

  LineReader& reader_;
  const bool lenient_;
  const bool check_ids_;
  const RowSelection* const selection_ = nullptr;
  const FileCheck* const check_ = nullptr;
  IdTable ids_;  // by line
  std::string line_;
  int64_t next_index_ = 0;
  bool looked_ = false;  // at the beginning
  Status kind_;          // an error where the input is no JSON Lines
};

// The rows of another source, each shown to `look` first if it could be read.
class WatchedRowSource : public RowSource {
 public:
  WatchedRowSource(std::unique_ptr<RowSource> source, std::function<void(const Row&)> look)
      : source_(std::move(source)), look_(std::move(look)) {}

  Outcome Next(int timeout_ms, ParsedRow* row) override {
    const Outcome outcome = source_->Next(timeout_ms, row);
    if (outcome == Outcome::kRow && !row->error) look_(row->row);
    return outcome;
  }
  size_t row_bytes() const override { return source_->row_bytes(); }
  Status status() const override { return source_->status(); }
  bool never_waits() const override { return source_->never_waits(); }

 private:
  const std::unique_ptr<RowSource> source_;
  const std::function<void(const Row&)> look_;
};

class SingleRowSource : public RowSource {
 public:
  explicit SingleRowSource(Row row) : bytes_(PromptBytes(row)), row_(std::move(row)) {}

  Outcome Next(int, ParsedRow* row) override {
    if (!row_) return Outcome::kEnd;
    *row = ParsedRow{std::move(*row_), std::nullopt};
    row_.reset();
    return Outcome::kRow;
  }
  size_t row_bytes() const override { return bytes_; }

 private:
  static size_t PromptBytes(const Row& row);

  const size_t bytes_;
  std::optional<Row> row_;
};

}  // namespace minisgl::batch
