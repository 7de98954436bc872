// Commands that fork a conversation, and commands that answer a message again.
//
// Each branch has its own session in the runtime, so that its prefix stays cached while another
// branch is used. Several answers to one message are submitted at once: they have the same prompt,
// and shared steps cost little more than those of a single answer.
#include <algorithm>
#include <utility>

#include "chat/chat.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

// Limit of /regen N: a small batch, and as many answers as a user may read.
constexpr int64_t kAnswersAtOnceMax = 16;

// Returns the integer `text` if it is at least `low`, else -1.
int64_t ParseAtLeast(std::string_view text, int64_t low) {
  const int64_t value = ParseNumber<int64_t>(text).value_or(-1);
  return value >= low ? value : -1;
}

// Removes the first word of *text and returns it.
std::string TakeWord(std::string* text) {
  const size_t end = std::min(text->find_first_of(" \t"), text->size());
  std::string word = text->substr(0, end);
  text->erase(0, std::min(text->find_first_not_of(" \t", end), text->size()));
  return word;
}

std::string Turns(int64_t count) { return fmt::format("{} turn{}", count, count == 1 ? "" : "s"); }

}  // namespace

void Chat::EnterBranch(size_t index) {
  RestoreTurns(branches_.Enter(index, CopyTurns()));
  alternatives_.Clear();
  kept_.SwitchTo(branches_.current().name, AllMessages());
}

void Chat::NewBranch(const std::string& arguments) {
  std::string rest = arguments;
  std::string name = TakeWord(&rest);
  if (name == "-d") return DeleteBranch(rest);
  std::string turn = TakeWord(&rest);
  // A number alone means a turn.
  if (turn.empty() && ParseAtLeast(name, 0) >= 0) std::swap(name, turn);
  if (name.empty()) name = branches_.UnusedName();
  if (!IsBranchName(name) || !rest.empty()) {
    Say("/branch takes a name of letters and digits, followed by the number of a turn");
    return;
  }
  if (branches_.Find(name)) {
    Say(fmt::format("Branch {} exists already; /switch goes to it.", name));
    return;
  }
  if (branches_.full()) {
    Say(fmt::format("There are already {} branches, the maximum; /branch -d NAME deletes one.",
                    branches_.size()));
    return;
  }
  ChatTurns turns = CopyTurns();
  const std::vector<SessionMessage> all = WholeConversation(turns);
  const int64_t num_turns = CountTurns(all);
  int64_t kept = num_turns;
  if (!turn.empty()) {
    kept = ParseAtLeast(turn, 0);
    if (kept < 0 || kept > num_turns) {
      Say(fmt::format("There is no turn {} to fork after; /tree shows them (0: before the first)",
                      Visible(turn)));
      return;
    }
    // Turns that were dropped to make room for later ones may fit again.
    if (kept < num_turns) turns = {FirstTurns(all, kept), {}};
  }
  // If the last message is the same, do not repeat earlier answers to it.
  const uint64_t regenerations = kept == num_turns ? branches_.current().regenerations : 0;
  const std::string from = branches_.current().name;
  EnterBranch(branches_.Add(name, std::move(turns), regenerations));
  Note(fmt::format("Now in branch {}, with {} of {}.", name, Turns(kept), from));
}

void Chat::DeleteBranch(const std::string& name) {
  const std::optional<size_t> index = branches_.Find(name);
  if (!index || branches_.IsCurrent(*index)) {
    Say(index ? "You are in that branch; /switch to another first."
              : fmt::format("There is no branch {}; /tree shows them.", Visible(name)));
    return;
  }
  branches_.Remove(*index);
  Note(fmt::format("Branch {} is deleted.", name));
}

void Chat::SwitchBranch(const std::string& arguments) {
  const std::optional<size_t> index = branches_.Find(arguments);
  if (!index) {
    std::string names;
    for (const std::string& name : branches_.Names()) names += (names.empty() ? "" : ", ") + name;
    Say(fmt::format("{}; there {} {}",
                    arguments.empty() ? std::string("/switch needs the name of a branch")
                                      : fmt::format("There is no branch {}", Visible(arguments)),
                    branches_.size() == 1 ? "is" : "are", names));
    return;
  }
  EnterBranch(*index);
  const auto all = AllMessages();
  const auto last = std::find_if(all.rbegin(), all.rend(),
                                 [](const SessionMessage& m) { return m.role == "user"; });
  Note(fmt::format("Now in branch {}, {}{}", arguments, Turns(CountTurns(all)),
                   last == all.rend() ? "." : "; the last: " + Visible(ShownContent(*last), 60)));
}

void Chat::Tree(const std::string&) { Say(branches_.Draw(CopyTurns())); }

void Chat::ForgetAnswer() {
  auto& messages = session_->messages();
  const auto is_of_answer = [](const SessionMessage& message) {
    return message.role == "assistant" || message.role == "tool";
  };
  while (!messages.empty() && is_of_answer(messages.back())) messages.pop_back();
}

void Chat::Regenerate(const std::string& arguments) {
  const int64_t count = arguments.empty() ? 1 : ParseAtLeast(arguments, 1);
  if (count < 1 || count > kAnswersAtOnceMax) {
    Say(fmt::format("/regen takes the number of answers, from 1 to {}", kAnswersAtOnceMax));
    return;
  }
  ChatTurns before = CopyTurns();
  ForgetAnswer();
  auto& messages = session_->messages();
  if (messages.empty() || messages.back().role != "user") {
    RestoreTurns(std::move(before));
    Say("There is no message to answer again.");
    return;
  }
  ChatAlternatives::Answers answers(1);
  if (messages.size() < before.messages.size()) answers[0] = before.messages.back();
  if (settings_.sampling.temperature == 0) {
    Note(fmt::format("(the temperature is 0: {}; see /set temperature)",
                     count == 1 ? "the answer will be the same" : "all answers will be the same"));
  }
  const uint64_t variant = branches_.current().regenerations + 1;
  const bool kept = ReplyWithTools(variant, static_cast<size_t>(count), &answers);
  branches_.current().regenerations += static_cast<uint64_t>(count);
  if (!kept) return RestoreTurns(std::move(before));
  alternatives_.Set(std::move(answers));
  if (count > 1) {
    Note(fmt::format("(the conversation continues with the first; /pick K takes another{})",
                     alternatives_.has_previous() ? ", /pick 0 the one before" : ""));
  }
}

void Chat::Pick(const std::string& arguments) {
  if (alternatives_.empty()) {
    Say("There is nothing to pick from; /regen N gives several answers to the last message.");
    return;
  }
  if (arguments.empty()) return Say(alternatives_.List());
  const int64_t number = ParseAtLeast(arguments, 0);
  const SessionMessage* answer =
      number < 0 ? nullptr : alternatives_.Pick(static_cast<size_t>(number));
  if (answer == nullptr) {
    Say(fmt::format("There is no answer {}; /pick alone lists them", Visible(arguments)));
    return;
  }
  session_->messages().back() = *answer;
  Note(fmt::format("The conversation continues with answer {}: {}", number,
                   Visible(answer->content, 60)));
}

}  // namespace minisgl::chat
