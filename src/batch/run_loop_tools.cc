// The part of the run loop that runs the calls of tools in answers, and asks the rows again with
// the results. Meanwhile such a row is in work, without a request.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "batch/row_tools.h"
#include "batch/run_loop.h"
#include "load/user_tools.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

constexpr size_t kLoggedResultMax = 200;  // bytes

// Returns true if the answer calls a tool that the row lists and the user did not name: the program
// cannot run it. A call of a tool that nobody lists is answered with an error, from which models
// recover.
bool HasCallsForOthers(const Row& row, const RowAnswer& answer, const RowTools& tools) {
  const std::vector<std::string> listed = ToolNames(row);
  return std::any_of(answer.calls.begin(), answer.calls.end(), [&](const ToolCall& call) {
    return !tools.knows(call.name) &&
           std::find(listed.begin(), listed.end(), call.name) != listed.end();
  });
}

}  // namespace

void RunLoop::StartTools() {
  if (!options_.tools.run) return;
  tools_ = std::make_unique<ToolRunner>(options_.tools.run, options_.tools.at_once,
                                        [this] { queue_.Interrupt(); });
}

// If the last answer to the row has calls to run, has them run and returns true.
bool RunLoop::RunCalls(int64_t index) {
  Pending& pending = pending_.at(index);
  const RowAnswer& answer = pending.answers.back();
  const bool may_run = tools_ != nullptr && pending.row.runs_calls && !pending.error &&
                       FinishReasonOf(answer) == kCallsFinish &&
                       !HasCallsForOthers(pending.row, answer, options_.tools);
  if (!may_run) return false;
  if (std::ssize(answer.rounds) >= options_.tools.turns_max) {
    pending.row.warnings.push_back(
        fmt::format("the calls of the answer are not run: those of {} answers were (--tool-turns)",
                    answer.rounds.size()));
    return false;
  }
  if (pending.aborted || aborted_all_) {
    pending.error = pending.aborted ? Aborted() : Cancelled();
    return false;
  }
  for (const ToolCall& call : answer.calls) {
    Log(LogLevel::kVerbose,
        fmt::format("line {}: [call] {}", pending.row.line, load::ShownCall(call)));
  }
  tools_->Add(index, answer.calls);
  return true;
}

Status RunLoop::TakeToolResults() {
  if (tools_ == nullptr) return Status();
  if (aborted_all_ || fault_) return CancelTools();
  while (std::optional<ToolRunner::Finished> finished = tools_->Take()) {
    MINISGL_RETURN_IF_ERROR(AskWithResults(finished->row, finished->texts));
  }
  return AdvanceSessions();
}

// Asks the row again behind the results of its calls. If it cannot be asked, it is done.
Status RunLoop::AskWithResults(int64_t index, const std::vector<std::string>& texts) {
  Pending& pending = pending_.at(index);
  Row& row = pending.row;
  RowAnswer called = std::exchange(pending.answers.back(), RowAnswer());
  RowAnswer& next = pending.answers.back();
  next.rounds = std::move(called.rounds);
  ReasoningPiece piece = SplitAnswer(row, called);
  ToolRound& round = next.rounds.emplace_back();
  round.reasoning = std::move(piece.reasoning);
  round.content = std::move(piece.text);
  round.token_ids = called.token_ids;
  round.usage = called.usage;
  round.results = Json(Json::Array());
  size_t bytes = called.text.size();
  for (size_t i = 0; i < texts.size(); ++i) {
    const ToolCall& call = called.calls[i];
    Log(LogLevel::kVerbose, fmt::format("line {}: [{}] {}", row.line, Visible(call.name, 100),
                                        Visible(texts[i], kLoggedResultMax)));
    round.results.Append(load::ToolMessage(call, texts[i]));
    bytes += texts[i].size();
  }
  pending.bytes += bytes;
  open_bytes_ += bytes;
  round.calls = std::move(called.calls);
  pending.said->AddAnswer(std::move(called.text), called.parts, std::move(called.token_ids),
                          /*stopped=*/true);
  const auto answer = static_cast<int32_t>(pending.answers.size()) - 1;
  MINISGL_RETURN_IF_ERROR(writer_.WriteResults(row, answer, round.results));
  row.results = round.results;
  ++row.num_called;
  FreeCalls(&row);
  if (SubmitTurn(index, &pending)) return Status();
  return FinishRow(index);
}

// Ends the rows whose calls are run.
Status RunLoop::CancelTools() {
  std::vector<int64_t> rows;
  for (const auto& [index, pending] : pending_) {
    if (pending.open_answers == 0) rows.push_back(index);
  }
  for (const int64_t index : rows) MINISGL_RETURN_IF_ERROR(CancelTools(index, Cancelled()));
  return Status();
}

Status RunLoop::CancelTools(int64_t index, const RowError& error) {
  tools_->Cancel(index);
  Pending& pending = pending_.at(index);
  if (!pending.error) pending.error = error;
  return FinishRow(index);
}

}  // namespace minisgl::batch
