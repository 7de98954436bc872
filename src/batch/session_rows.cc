#include "batch/session_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "batch/row_prompt.h"
#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {

void SessionRows::Add(ParsedRow parsed, size_t bytes, const TextModel* text) {
  Session& session = sessions_[parsed.row.session];
  if (session.said == nullptr) session.said = std::make_shared<SaidSoFar>(text);
  if (!session.busy && session.waiting.empty()) closed_.push_back(parsed.row.session);
  session.waiting.push_back({std::move(parsed), bytes, nullptr, std::nullopt});
  Count(session.waiting.back(), 1);
}

std::optional<SessionRows::Waiting> SessionRows::TakeNext() {
  const bool opens = ready_.empty() && num_open_ < open_max_;
  std::deque<std::string>& ready = opens ? closed_ : ready_;
  if (ready.empty()) return std::nullopt;
  Session& session = sessions_.at(ready.front());
  ready.pop_front();
  SetOpen(&session, true);
  MINISGL_CHECK(!session.busy && !session.waiting.empty(), "a session without a row to take");
  session.busy = true;
  Waiting row = std::move(session.waiting.front());
  session.waiting.pop_front();
  Count(row, -1);
  row.said = session.said;
  row.failed_line = session.failed_line;
  return row;
}

void SessionRows::EndRow(const Row& row, bool failed) {
  const auto found = sessions_.find(row.session);
  if (found == sessions_.end() || !found->second.busy) return;
  Session& session = found->second;
  session.busy = false;
  if (failed && !session.failed_line) session.failed_line = row.line;
  if (!session.waiting.empty()) {
    ready_.push_back(row.session);
    return;
  }
  SetOpen(&session, false);
  if (row.ends_session) sessions_.erase(found);
}

void SessionRows::SetOpen(Session* session, bool open) {
  if (session->open != open) num_open_ += open ? 1 : -1;
  session->open = open;
}

bool SessionRows::Fail(const Json& id, const RowError& error) {
  for (auto& [name, session] : sessions_) {
    for (Waiting& row : session.waiting) {
      if (row.parsed.row.id != id) continue;
      if (!row.parsed.error) row.parsed.error = error;
      return true;
    }
  }
  return false;
}

std::vector<ParsedRow> SessionRows::TakeAll() {
  std::vector<ParsedRow> rows;
  for (auto& [name, session] : sessions_) {
    for (Waiting& row : session.waiting) rows.push_back(std::move(row.parsed));
    session.waiting.clear();
  }
  ready_.clear();
  closed_.clear();
  num_waiting_ = 0;
  bytes_ = 0;
  std::sort(rows.begin(), rows.end(),
            [](const ParsedRow& a, const ParsedRow& b) { return a.row.index < b.row.index; });
  return rows;
}

bool SessionRows::HasNext(const std::string& session) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && !found->second.waiting.empty();
}

std::shared_ptr<SaidSoFar> SessionRows::Find(const std::string& session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second.said;
}

void SessionRows::Count(const Waiting& row, int64_t sign) {
  num_waiting_ += sign;
  bytes_ = sign > 0 ? bytes_ + row.bytes : bytes_ - row.bytes;
}

RowError SessionFailed(const Row& row, int64_t failed_line) {
  return {"session_failed",
          fmt::format("the row on line {} of the session {} failed, so that this one was not asked",
                      failed_line, Visible(Json(row.session).Dump(), 100)),
          "session"};
}

std::optional<RowError> UnaskedRows::Build(ParsedRow* parsed, std::vector<Prompt>* prompts) {
  Row& row = parsed->row;
  if (row.session.empty()) {
    if (!parsed->error) parsed->error = prompts_.OfferTools(&row);
    if (parsed->error) return parsed->error;
    if (!row.all_turns) return prompts_.Build(&row, prompts);
    SaidSoFar said(&prompts_.text());
    return BuildTurns(&row, &said, prompts);
  }
  Row key;  // what EndRow reads
  key.session = row.session;
  key.line = row.line;
  key.ends_session = row.ends_session;
  sessions_.Add(std::move(*parsed), 0, &prompts_.text());
  SessionRows::Waiting next = std::move(*sessions_.TakeNext());
  *parsed = std::move(next.parsed);
  std::optional<RowError> error = parsed->error;
  if (!error && next.failed_line) error = SessionFailed(parsed->row, *next.failed_line);
  if (!error) error = prompts_.OfferTools(&parsed->row);
  if (!error) error = BuildTurns(&parsed->row, next.said.get(), prompts);
  sessions_.EndRow(key, error.has_value());
  return error;
}

std::optional<RowError> UnaskedRows::BuildTurns(Row* row, SaidSoFar* said,
                                                std::vector<Prompt>* prompts) {
  prompts->clear();
  do {
    any_missing_ = any_missing_ || !said->empty();
    std::vector<Prompt> turn;
    if (auto error = prompts_.Build(row, &turn, nullptr, said)) return error;
    prompts->push_back(std::move(turn.front()));
    said->AddUnknownAnswer();
    ++row->turn;
  } while (row->has_more_turns());
  return std::nullopt;
}

}  // namespace minisgl::batch
