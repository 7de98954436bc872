// Sources of a run's rows: the lines of a prompt file, or the one prompt of the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "batch/id_table.h"
#include "batch/row.h"
#include "batch/row_template.h"
#include "batch/run_input.h"

namespace minisgl::batch {

// Timeout of each wait for a row, for commands that have nothing else to do meanwhile.
inline constexpr int kRowWait_ms = 1000;

// A line that is no row but asks for something at once.
struct RunControl {
  Json aborted_id;  // of the row that is to end; null: none
  bool resets_cache = false;
};

// The control in a line, or nullopt: {"abort": ID} or {"reset_prefix_cache": true}, and no other
// member.
std::optional<RunControl> ParseControl(std::string_view line);

class RowSource {
 public:
  // kControl: control() says what is asked.
  enum class Outcome { kRow, kNotYet, kEnd, kFailed, kControl };
  virtual ~RowSource() = default;

  // Returns the next row, checked, or its error. Waits at most `timeout_ms`.
  virtual Outcome Next(int timeout_ms, ParsedRow* row) = 0;
  virtual const RunControl& control() const {
    static const RunControl kNone;
    return kNone;
  }
  // Size of the row that Next returned last.
  virtual size_t row_bytes() const = 0;
  // The error, after Next returned kFailed.
  virtual Status status() const { return Status(); }
};

// The rows of an input that are run, by index.
struct RowSelection {
  int64_t first = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  std::vector<bool> finished;   // true: skip the row; indexes past the end are not skipped
  std::vector<bool> elsewhere;  // true: of another shard, though between `first` and `end`
  // Finished rows of sessions that go on: they are read again, but not run.
  std::unordered_map<int64_t, EarlierAnswer> earlier;

  // True if the row is run, or was in an earlier run that this one resumes.
  bool Owns(int64_t index) const {
    const auto place = static_cast<size_t>(index);
    return index >= first && index < end && (place >= elsewhere.size() || !elsewhere[place]);
  }
  bool Has(int64_t index) const {
    const auto place = static_cast<size_t>(index);
    return Owns(index) && (place >= finished.size() || !finished[place]);
  }
  // Number of selected rows among `num_rows`.
  int64_t Count(int64_t num_rows) const;
};

// A row whose id an earlier row has already.
struct DuplicateRow {
  int64_t index = 0, line = 0;
  int64_t first_index = 0, first_line = 0;  // of the first row with the id
};

// Result of reading a whole file before the run.
struct FileCheck {
  int64_t rows = 0;
  int64_t bad_rows = 0;
  int64_t no_json_rows = 0;  // of them, those that are no JSON
  int64_t raw_prompts = 0;   // rows completed without the chat template
  std::string first_bad;     // "FILE:LINE: what is wrong"
  // First lines of rows with reasoning_effort, verbosity, tools and documents; 0: none.
  int64_t effort_line = 0, verbosity_line = 0, tools_line = 0, documents_line = 0;
  bool has_images = false;               // some row has pictures
  std::vector<DuplicateRow> duplicates;  // in input order
  std::vector<bool> has_id;              // by row index
  // Rows that versions with the first seed rule answered differently (run_journal.h).
  int64_t reseeded_rows = 0;
  int64_t first_reseeded_line = 0;
  // The sessions of the rows, numbered from 1; 0: none. Rows after the last of a session may lack.
  std::vector<uint32_t> session_of_row;
  struct Ends {
    int64_t first = 0, last = 0;  // indexes of rows
  };
  std::vector<Ends> sessions;  // of session i + 1

  uint32_t SessionOf(int64_t index) const {
    const auto place = static_cast<size_t>(index);
    return place < session_of_row.size() ? session_of_row[place] : 0;
  }

  // Returns null if the row's id is unique or it has none.
  const DuplicateRow* FindDuplicate(int64_t index) const;
};

// Selects the rows [first, end), a shard: sessions that begin there are whole, and those that begin
// before are not in it.
RowSelection SelectShard(int64_t first, int64_t end, const FileCheck& check);

// Reads all rows of a regular file and returns to its beginning. Afterwards `ids` (may be null)
// maps each id to the index of the first row that has it. `compiles_grammars`: rows whose own
// grammars cannot be compiled are bad, too. `row_template` (may be null) makes the rows.
Result<FileCheck> CheckRows(LineReader* reader, bool lenient, IdTable* ids = nullptr,
                            RowPurpose purpose = RowPurpose::kAnswer,
                            bool compiles_grammars = false,
                            const RowTemplate* row_template = nullptr);

// kBadInput if no row of a template is good: then its mistake is in the template, most likely the
// name of a column.
Status CheckSomeRowIsGood(const LineReader& reader, const FileCheck& check);

// Reads one row from each line; a row whose id an earlier row has becomes an error row. Rows that
// are not selected count in the indexes but are not parsed.
class FileRowSource : public RowSource {
 public:
  // For an input that is read once: compares ids as they arrive, if `check_ids`.
  FileRowSource(LineReader* reader, bool lenient, bool check_ids,
                RowPurpose purpose = RowPurpose::kAnswer)
      : reader_(*reader), lenient_(lenient), purpose_(purpose), check_ids_(check_ids) {}
  // For a file that CheckRows has read, or will have read into `*check` before the first call of
  // Next. All arguments must outlive this. (For a pipe, which cannot be read in advance, use the
  // constructor above.)
  FileRowSource(LineReader* reader, bool lenient, const RowSelection* selection,
                const FileCheck* check, RowPurpose purpose = RowPurpose::kAnswer)
      : reader_(*reader),
        lenient_(lenient),
        purpose_(purpose),
        check_ids_(!reader->regular()),
        selection_(selection),
        check_(check) {}

  Outcome Next(int timeout_ms, ParsedRow* row) override;
  size_t row_bytes() const override { return line_.size(); }
  Status status() const override;
  // From now on takes control lines, which are no rows and do not count in indexes: of an input
  // that is read once.
  void TakeControls() { takes_controls_ = !reader_.regular() && !reader_.is_table(); }
  // From now on `row_template`, which outlives this, makes the rows; null: the input has rows.
  void UseTemplate(const RowTemplate* row_template) { template_ = row_template; }
  const RunControl& control() const override { return control_; }

 private:
  Outcome CheckBeginning(int timeout_ms);
  void RefuseDuplicate(ParsedRow* row);
  // True if the row at next_index_ is to be read.
  bool Wants() const;
  void SetSession(ParsedRow* row) const;
  ParsedRow MakeRow();

  LineReader& reader_;
  const bool lenient_;
  const RowPurpose purpose_;
  const bool check_ids_;
  const RowSelection* const selection_ = nullptr;
  const FileCheck* const check_ = nullptr;
  IdTable ids_;  // maps to lines
  std::string line_;
  int64_t next_index_ = 0;
  bool checked_beginning_ = false;
  bool takes_controls_ = false;
  const RowTemplate* template_ = nullptr;
  std::vector<std::string> columns_;  // of a table, after its first record
  RunControl control_;
  Status kind_;  // an error if the input is not JSON Lines
};

// Forwards the rows of another source; calls `look` for each row that was parsed without error.
class WatchedRowSource : public RowSource {
 public:
  WatchedRowSource(std::unique_ptr<RowSource> source, std::function<void(const Row&)> look)
      : source_(std::move(source)), look_(std::move(look)) {}

  Outcome Next(int timeout_ms, ParsedRow* row) override {
    const Outcome outcome = source_->Next(timeout_ms, row);
    if (outcome == Outcome::kRow && !row->error) look_(row->row);
    return outcome;
  }
  const RunControl& control() const override { return source_->control(); }
  size_t row_bytes() const override { return source_->row_bytes(); }
  Status status() const override { return source_->status(); }

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
