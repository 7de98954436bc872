// A conversation: its turns as token ids, so that each turn's prompt extends the last one's answer
// and hits the cache.
//
// The ids of answers are kept as sampled; only text that came later is tokenised. Used by one
// thread; many sessions may share a Runtime.
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

struct SessionMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
  std::vector<TokenId>
      answer_ids;  // assistant: the ids as sampled, end token included; empty where unknown
};

class Session {
 public:
  // All outlive the session.
  Session(const Tokenizer* tokenizer, const ChatTemplate* chat_template);

  std::vector<SessionMessage>& messages() { return messages_; }
  const std::vector<SessionMessage>& messages() const { return messages_; }

  // Control tokens spelled in a content count as such (they are text otherwise).
  void set_parse_special(bool parse_special) { parse_special_ = parse_special; }

  // The ids of the conversation so far with the generation prompt after it: what the next answer
  // continues. Answers are spliced in by the ids they were sampled as where rendering them gives
  // the same text; where a template rewrites what came before, all is tokenised.
  Result<std::vector<TokenId>> PromptIds(const Json& template_args = Json()) const;

  // The text of the same prompt, as the template makes it.
  Result<std::vector<TextPiece>> PromptPieces(const Json& template_args = Json()) const {
    return Render(messages_.size(), template_args);
  }

  // Takes the oldest turn (the first user message and all up to the next one) out of the
  // conversation and returns it. Messages before the first user message stay, and so does the last
  // turn: nothing is returned where it is the only one.
  std::vector<SessionMessage> TakeOldestTurn();

 private:
  struct Splice;
  Result<std::vector<TextPiece>> Render(size_t num_messages, const Json& template_args) const;
  std::vector<Splice> FindSplices(const std::string& text, const std::vector<TextPiece>& pieces,
                                  const Json& template_args) const;
  std::string AnswerText(const std::vector<TokenId>& ids) const;
  Result<std::vector<TokenId>> EncodeSpliced(const std::vector<TextPiece>& pieces,
                                             const std::vector<Splice>& splices) const;
  Result<std::vector<TokenId>> EncodeAfter(TokenId marker, std::vector<TextPiece> pieces) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  bool parse_special_ = false;
  std::vector<SessionMessage> messages_;
};

}  // namespace minisgl
