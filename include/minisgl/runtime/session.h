// A conversation as token ids: the prompt of each turn extends the previous answer, so it hits the
// prefix cache.
//
// Answers keep the ids that were sampled; only later text is tokenized. Used by one thread; many
// sessions may share a Runtime.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/answer_start.h"
#include "minisgl/text/chat_messages.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

struct SessionMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
  // assistant: the ids as sampled, end token included; empty if unknown.
  std::vector<TokenId> answer_ids;
  // assistant: the reasoning between control tokens, which no content can spell. If the tags are
  // ordinary text, the reasoning is in the content.
  std::string reasoning = {};
  // The message as the caller has it, with members that the fields above lack; null: these fields
  // are the message. Not of an answer of this session.
  Json given = {};
};

// What a template is given besides messages and arguments.
struct SessionInputs {
  Json tools, documents;  // null or arrays
  // Rendering fails soon after this becomes true; null: it cannot be cancelled.
  const std::atomic<bool>* cancelled = nullptr;
  int64_t index_offset = 0;  // added to the index of a message in an error
};

// Returns the ids of `pieces` that follow the control token `marker`, if there is one. They are
// encoded with its spelling before them, so that no tokenizer treats them as the beginning of a
// text.
Result<std::vector<TokenId>> EncodeAfter(const Tokenizer& tokenizer, std::optional<TokenId> marker,
                                         std::vector<TextPiece> pieces);

class Session {
 public:
  // All outlive the session.
  Session(const Tokenizer* tokenizer, const ChatTemplate* chat_template);

  std::vector<SessionMessage>& messages() { return messages_; }
  const std::vector<SessionMessage>& messages() const { return messages_; }

  // The tags around the model's reasoning, not counting one that a prompt opens; and the special
  // tokens in them, which an answer's text must keep (Prompt::kept_special_ids).
  const ReasoningTags& reasoning_tags() const { return tags_; }
  const std::vector<TokenId>& kept_special_ids() const { return kept_special_ids_; }
  // Returns the message of an answer of `ids`, its reasoning separate from the content if control
  // tokens divide them. `tags` are reasoning_tags() as the answer's prompt leaves them.
  SessionMessage AnswerMessage(const std::string& text, std::vector<TokenId> ids,
                               const ReasoningTags& tags) const;

  // Whether control tokens spelled in a content count as such; otherwise they are text.
  void set_parse_special(bool parse_special) { parse_special_ = parse_special; }

  // Of every rendering from now on.
  void set_inputs(SessionInputs inputs) { inputs_ = std::move(inputs); }

  // Whether the next answer continues the text of the last message, rather than beginning another
  // message.
  void set_continues(bool continues) { continues_ = continues; }

  // Returns the ids of the conversation so far and the generation prompt: the next answer continues
  // them. An answer is spliced in by its sampled ids if rendering it gives the same text, or the
  // same from some control token on (a template that leaves out earlier reasoning). If a template
  // rewrites earlier messages, the whole text is tokenized. kBadInput if the template leaves out
  // the text of a message behind the last answer of this session (CheckNothingIsLeftOut).
  Result<std::vector<TokenId>> PromptIds(const Json& template_args = Json()) const;

  // Returns the text of the same prompt, as the template renders it.
  Result<std::vector<TextPiece>> PromptPieces(const Json& template_args = Json()) const {
    return Render(messages_.size(), template_args);
  }

  // Removes and returns the oldest turn: the first user message and all messages up to the next
  // one. Messages before the first user message stay. The last turn stays too: returns nothing if
  // it is the only one.
  std::vector<SessionMessage> TakeOldestTurn();

 private:
  struct Splice;
  struct Rendered;
  bool ShowsReasoning(bool in_blocks, std::string_view open, std::string_view close) const;
  ChatInput InputOf(Json::Array messages, const Json& template_args) const;
  Result<std::vector<TextPiece>> Render(size_t num_messages, const Json& template_args) const;
  // Messages before the last answer were checked when it was asked for.
  CheckedMessages NewMessages() const;
  std::vector<Splice> FindSplices(const Rendered& whole, const Json& template_args) const;
  std::optional<Splice> MatchAnswer(const SessionMessage& message, size_t num_ids,
                                    const Rendered& whole, size_t at) const;
  Result<std::vector<TokenId>> EncodeSpliced(const std::vector<TextPiece>& pieces,
                                             const std::vector<Splice>& splices) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  SessionInputs inputs_;  // before reasoning_in_blocks_, whose value needs renderings
  std::vector<TokenId> kept_special_ids_;
  const ReasoningTags tags_;
  // True if the template takes a message's reasoning as a part of its content, of type "thinking".
  const bool reasoning_in_blocks_;
  bool parse_special_ = false;
  bool continues_ = false;
  std::vector<SessionMessage> messages_;
};

}  // namespace minisgl
