// A conversation: its turns as token ids, so that each turn's prompt extends the last one's answer
// and hits the cache.
//
// The ids of answers are kept as sampled; only text that came later is tokenised. Used by one
// thread; many sessions may share a Runtime.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

struct SessionMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
  std::vector<TokenId>
      answer_ids;  // assistant: the ids as sampled, end token included; empty where unknown
  // assistant: what stands between control tokens, which no content can spell; where the tags are
  // text they stand in the content.
  std::string reasoning = {};
};

class Session {
 public:
  // All outlive the session.
  Session(const Tokenizer* tokenizer, const ChatTemplate* chat_template);

  std::vector<SessionMessage>& messages() { return messages_; }
  const std::vector<SessionMessage>& messages() const { return messages_; }

  // What the model's reasoning stands between, without what a prompt opens; and the control tokens
  // among it: an answer's text is expected with these spelled (Prompt::spelled_ids).
  const ReasoningTags& reasoning_tags() const { return tags_; }
  const std::vector<TokenId>& spelled_ids() const { return spelled_ids_; }
  // The message of an answer of `ids`, its reasoning apart from the content where control tokens
  // divide them. `tags` are reasoning_tags() as the answer's prompt leaves them.
  SessionMessage AnswerMessage(const std::string& text, std::vector<TokenId> ids,
                               const ReasoningTags& tags) const;

  // Control tokens spelled in a content count as such (they are text otherwise).
  void set_parse_special(bool parse_special) { parse_special_ = parse_special; }

  // The ids of the conversation so far with the generation prompt after it: what the next answer
  // continues. Answers are spliced in by the ids they were sampled as where rendering them gives
  // the same text, or the same from some control token on (a template that leaves out earlier
  // reasoning); where a template rewrites what came before, all is tokenised.
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
  struct Rendered;
  bool ShowsReasoning(bool in_blocks, std::string_view open, std::string_view close) const;
  Result<std::vector<TextPiece>> RenderMessages(Json::Array messages, bool add_generation_prompt,
                                                const Json& template_args) const;
  Result<std::vector<TextPiece>> Render(size_t num_messages, const Json& template_args) const;
  std::vector<Splice> FindSplices(const Rendered& whole, const Json& template_args) const;
  std::optional<Splice> MatchAnswer(const SessionMessage& message, size_t num_ids,
                                    const Rendered& whole, size_t at) const;
  Result<std::vector<TokenId>> EncodeSpliced(const std::vector<TextPiece>& pieces,
                                             const std::vector<Splice>& splices) const;
  Result<std::vector<TokenId>> EncodeAfter(TokenId marker, std::vector<TextPiece> pieces) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  std::vector<TokenId> spelled_ids_;
  const ReasoningTags tags_;
  // The template takes a message's reasoning as a part of its content, of type "thinking".
  const bool reasoning_in_blocks_;
  bool parse_special_ = false;
  std::vector<SessionMessage> messages_;
};

}  // namespace minisgl
