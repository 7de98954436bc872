// The part of the run loop that concerns rows of sessions, and rows whose every turn is answered.
#include <utility>

#include "batch/row_tools.h"
#include "batch/run_loop.h"

namespace minisgl::batch {

// Takes the rows whose turn has come as far as submission. Not recursive: any number of rows may
// fail one after another.
Status RunLoop::AdvanceSessions() {
  while (!Stops()) {
    std::optional<SessionRows::Waiting> next = sessions_.TakeNext();
    if (!next) return Status();
    ParsedRow& parsed = next->parsed;
    if (parsed.earlier) {
      EndInSession(parsed.row, /*failed=*/!TakeEarlier(*next));
    } else if (!parsed.error && next->failed_line) {
      MINISGL_RETURN_IF_ERROR(
          WriteFailure(parsed.row, SessionFailed(parsed.row, *next->failed_line)));
    } else {
      MINISGL_RETURN_IF_ERROR(PrepareRow(std::move(parsed), next->bytes, std::move(next->said)));
    }
  }
  return Status();
}

// Adds the row and the answer that an earlier run wrote to its conversation. Returns false if the
// session cannot go on.
bool RunLoop::TakeEarlier(const SessionRows::Waiting& waiting) {
  const EarlierAnswer& earlier = *waiting.parsed.earlier;
  if (waiting.failed_line || waiting.parsed.error || earlier.failed) return false;
  Row row = waiting.parsed.row;
  if (tools_ != nullptr && prompts_.OfferTools(&row)) return false;
  std::vector<Prompt> prompts;
  for (const EarlierAnswer::Turn& turn : earlier.turns) {
    if (row.turn > 0 && !row.has_more_turns()) return false;
    ForceCalls(&row);
    for (const EarlierAnswer::Round& round : turn.rounds) {
      if (prompts_.Build(&row, &prompts, nullptr, waiting.said.get())) return false;
      waiting.said->AddAnswer(round.ids, /*stopped=*/true);
      row.results = round.results;
      ++row.num_called;
      FreeCalls(&row);
    }
    if (prompts_.Build(&row, &prompts, nullptr, waiting.said.get())) return false;
    waiting.said->AddAnswer(turn.ids, turn.stopped);
    ++row.turn;
  }
  return !row.has_more_turns();
}

// While more turns are known to follow, or may follow, the runtime keeps the prefix.
void RunLoop::JoinRuntimeSession(const Row& row, SaidSoFar* said, Prompt* prompt) {
  const bool has_next = row.has_more_turns() || row.runs_calls || sessions_.HasNext(row.session);
  if (has_next && said->runtime_session == 0) {
    said->runtime_session = runtime_.OpenSession();
  }
  prompt->session = said->runtime_session;
}

void RunLoop::LeaveRuntimeSession(SaidSoFar* said) {
  if (said->runtime_session == 0) return;
  runtime_.CloseSession(std::exchange(said->runtime_session, 0));
}

void RunLoop::EndInSession(const Row& row, bool failed) {
  const std::shared_ptr<SaidSoFar> said = sessions_.Find(row.session);
  if (said != nullptr && (failed || !sessions_.HasNext(row.session))) {
    LeaveRuntimeSession(said.get());
  }
  sessions_.EndRow(row, failed);
}

// After a turn that was answered, submits the next one. Returns false if the row is done.
bool RunLoop::SubmitNextTurn(int64_t index, Pending* pending) {
  Row& row = pending->row;
  if (!row.all_turns || pending->error || pending->answers.back().token_ids.empty()) return false;
  ++row.turn;
  if (!row.has_more_turns()) return false;
  // The answer may have been complete before its abort came.
  if (pending->aborted || aborted_all_) {
    pending->error = pending->aborted ? Aborted() : NotSubmitted();
    return false;
  }
  const RowAnswer& answer = pending->answers.back();
  pending->said->AddAnswer(answer.text, answer.parts, answer.token_ids,
                           answer.finish_reason == "stop");
  ForceCalls(&row);
  pending->answers.emplace_back();
  if (SubmitTurn(index, pending)) return true;
  pending->answers.pop_back();
  return false;
}

// Submits the prompt of what was said so far, and what the row adds. Returns false if it fails.
bool RunLoop::SubmitTurn(int64_t index, Pending* pending) {
  std::vector<Prompt> prompts;
  pending->error = prompts_.Build(&pending->row, &prompts, nullptr, pending->said.get());
  if (pending->error) return false;
  JoinRuntimeSession(pending->row, pending->said.get(), &prompts.front());
  pending->timed_out = false;
  pending->tries = 1;
  pending->again = MayRetry(*pending) ? prompts : std::vector<Prompt>();
  pending->open_answers = 1;
  pending->requests =
      runtime_.SubmitAll(std::move(prompts), &queue_, {MakeTag(index, /*answer=*/0)});
  ++open_answers_;
  return true;
}

Status RunLoop::CancelWaiting() {
  for (ParsedRow& parsed : sessions_.TakeAll()) {
    if (parsed.earlier) continue;
    MINISGL_RETURN_IF_ERROR(
        WriteFailure(parsed.row, parsed.error ? *parsed.error : NotSubmitted()));
  }
  return Status();
}

}  // namespace minisgl::batch
