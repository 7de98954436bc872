// What was said so far in a session of rows, or in a row whose every turn is answered: messages, or
// text that goes on without the chat template.
//
// Order of calls: for each prompt AddMessages, AddPrompt or nothing else, then Keep, then
// AddAnswer. After an error the session cannot go on. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batch/row.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/runtime/session.h"
#include "minisgl/text/conversation.h"
#include "minisgl/text/text_model.h"

namespace minisgl::batch {

class SaidSoFar {
 public:
  explicit SaidSoFar(const TextModel* text);

  bool empty() const { return kind_ == Kind::kEmpty; }

  // The conversation of the runtime in which its turns are submitted; 0: none. For the caller.
  SessionId runtime_session = 0;

  // Returns why `row` cannot go on with it, or nullopt.
  std::optional<RowError> CheckNext(const Row& row) const;

  // Adds the row's messages; with `all_turns` those up to the next one of the user; or, if it has
  // results of calls, these alone, which are moved out of it. Returns the
  // conversation that asks for an answer to them. REQUIRES a chat template.
  // `images`: those of these messages, in their order. `prefill`: the beginning of the answer, if
  // the row does not give one; null: none.
  Conversation AddMessages(Row* row, std::vector<ConversationImage> images,
                           const std::string* prefill = nullptr);
  // The index of the first message of `row` that AddMessages does not add.
  static size_t EndOfTurn(const Row& row);
  // Returns the text so far with the row's prompt behind it. REQUIRES !empty().
  Conversation AddPrompt(Row* row);

  // Keeps the prompt as it is asked.
  void Keep(const Row& row, const Prompt& prompt);
  // Adds the prompt's answer. Its calls are read in the dialect and by the tools of the row. `text`
  // and `parts` are what the events of the answer carried in total.
  void AddAnswer(std::string text, const TextParts& parts, std::vector<TokenId> ids, bool stopped);
  // The same for an answer of which only the ids are known.
  void AddAnswer(std::vector<TokenId> ids, bool stopped);
  // Adds an answer of which nothing is known. It stands for the calls that the messages behind it
  // are results of, if they are: templates insist on a call before its result.
  void AddUnknownAnswer();

 private:
  // How the calls in an answer are read.
  struct KeptCalls {
    std::shared_ptr<const CallRules> rules;
    CallIds ids;
  };
  enum class Kind : uint8_t { kEmpty, kMessages, kText };
  void AddResults(Row* row);

  const TextModel* text_;
  Kind kind_ = Kind::kEmpty;
  std::optional<Session> session_;  // of messages
  Prompt prompt_;                   // the last one
  std::optional<KeptCalls> calls_;  // of its row, if calls are read
  std::string answer_;              // to it, without what only its reasoning tags say
  std::vector<TokenId> answer_ids_;
  bool stopped_ = false;     // by a token or a string, not by its length
  bool continues_ = false;   // the answer continues the last message
  bool is_unknown_ = false;  // the last answer
};

}  // namespace minisgl::batch
