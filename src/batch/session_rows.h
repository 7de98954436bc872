// The sessions of a run: rows of one name are asked one after another, in the order of the input.
// A row that was read before the earlier ones are done waits here.
//
// After a row that failed, for whatever reason, the later rows of its session fail too. Which error
// each of them has is decided in the order of the input and does not depend on times. A session
// without rows is kept until its last row, as far as the input tells which that is. Used by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "batch/row.h"
#include "batch/said_so_far.h"

namespace minisgl::batch {

class PromptBuilder;

class SessionRows {
 public:
  // At most `open_max` sessions are begun and not done as far as is known, so that the prefixes of
  // those that go on are still cached.
  explicit SessionRows(int64_t open_max) : open_max_(open_max) {}

  struct Waiting {
    ParsedRow parsed;
    size_t bytes = 0;  // of the row as read
    std::shared_ptr<SaidSoFar> said;
    std::optional<int64_t> failed_line;  // of the first row of its session that failed
  };

  // Adds a row of a session, which may have an error.
  void Add(ParsedRow parsed, size_t bytes, const TextModel* text);
  // Takes a row whose turn it is, or nullopt. Its session has no other turn until EndRow.
  std::optional<Waiting> TakeNext();
  // The row taken last of its session is done.
  void EndRow(const Row& row, bool failed);
  // Gives the waiting row with this id an error, unless it has one. Returns false if none has it.
  bool Fail(const Json& id, const RowError& error);
  // Takes all waiting rows, whether or not it is their turn.
  std::vector<ParsedRow> TakeAll();

  // True if a later row of the session waits.
  bool HasNext(const std::string& session) const;
  // Null if there is none.
  std::shared_ptr<SaidSoFar> Find(const std::string& session) const;
  int64_t num_waiting() const { return num_waiting_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Session {
    std::shared_ptr<SaidSoFar> said;
    std::deque<Waiting> waiting;
    bool busy = false;  // a row was taken and is not done
    bool open = false;  // it counts in num_open_
    std::optional<int64_t> failed_line;
  };
  void SetOpen(Session* session, bool open);
  void Count(const Waiting& row, int64_t sign);

  std::unordered_map<std::string, Session> sessions_;
  const int64_t open_max_;
  int64_t num_open_ = 0;
  // Not busy, and a row waits: of sessions that are open, and of others.
  std::deque<std::string> ready_, closed_;
  int64_t num_waiting_ = 0;
  size_t bytes_ = 0;
};

// The error of a row after one that failed.
RowError SessionFailed(const Row& row, int64_t failed_line);

// Builds the prompts of rows that are not asked, in the order of the input, for commands that look
// at them. Their answers are unknown: a later prompt of a conversation is built as if they were
// empty, and is longer in a run.
class UnaskedRows {
 public:
  explicit UnaskedRows(const PromptBuilder* prompts) : prompts_(*prompts) {}

  // Builds the row's prompts, those of all turns; or returns its error, if it has one already.
  std::optional<RowError> Build(ParsedRow* parsed, std::vector<Prompt>* prompts);
  // True if an answer was missing in a prompt.
  bool any_missing() const { return any_missing_; }

 private:
  std::optional<RowError> BuildTurns(Row* row, SaidSoFar* said, std::vector<Prompt>* prompts);

  const PromptBuilder& prompts_;
  SessionRows sessions_{/*open_max=*/1};
  bool any_missing_ = false;
};

}  // namespace minisgl::batch
