// Where the rows of a run come from: the lines of a prompt file, or the one prompt of the command
// line.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "cli/id_table.h"
#include "cli/row.h"
#include "cli/run_input.h"

namespace minisgl {

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

// One row a line. Ids are compared where `check_ids`: a pipe's duplicates are error rows. Rows that
// are not selected keep their place in the input and are not looked at.
class FileRowSource : public RowSource {
 public:
  // `selection` null: all rows. It outlives this.
  FileRowSource(LineReader* reader, bool lenient, bool check_ids,
                const RowSelection* selection = nullptr)
      : reader_(*reader), lenient_(lenient), check_ids_(check_ids), selection_(selection) {}

  Outcome Next(int timeout_ms, ParsedRow* row) override;
  size_t row_bytes() const override { return line_.size(); }
  Status status() const override { return kind_.ok() ? reader_.status() : kind_; }
  bool never_waits() const override { return reader_.regular(); }

 private:
  Outcome LookAtBeginning(int timeout_ms);

  LineReader& reader_;
  const bool lenient_;
  const bool check_ids_;
  const RowSelection* const selection_;
  IdTable ids_;  // by line
  std::string line_;
  int64_t next_index_ = 0;
  bool looked_ = false;  // at the beginning
  Status kind_;          // an error where the input is no JSON Lines
};

class SingleRowSource : public RowSource {
 public:
  explicit SingleRowSource(Row row) : row_(std::move(row)) {}

  Outcome Next(int, ParsedRow* row) override {
    if (!row_) return Outcome::kEnd;
    *row = ParsedRow{std::move(*row_), std::nullopt};
    row_.reset();
    return Outcome::kRow;
  }
  size_t row_bytes() const override { return 0; }

 private:
  std::optional<Row> row_;
};

// What one reading of a whole file found, before anything runs.
struct FileCheck {
  int64_t rows = 0;
  int64_t bad_rows = 0;
  std::string first_bad;  // "FILE:LINE: what is wrong"
};

// Reads all rows of a regular file and goes back to its beginning. kBadInput for a duplicate id,
// naming both lines. `ids` (may be null) then has the index of every row that has one.
Result<FileCheck> CheckRows(LineReader* reader, bool lenient, IdTable* ids = nullptr);

}  // namespace minisgl
