// One answer in progress: turns token ids into text, finds stop strings, counts usage and pushes
// events. Used by the runtime's thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/runtime/runtime.h"
#include "minisgl/text/stream_decoder.h"
#include "runtime/stop_filter.h"
#include "runtime/thought_tracker.h"

namespace minisgl::runtime {

class Answer {
 public:
  // `tokenizer` may be null: then events carry no text. `marks`: of prompt.reasoning, whose
  // tokens are counted; null: they are not.
  Answer(RequestId id, uint64_t tag, const Prompt& prompt, const Tokenizer* tokenizer,
         EventQueue* queue, std::shared_ptr<const ThoughtMarks> marks = nullptr);

  // Takes a sampled token. Returns true if it completed a stop string: the request must be stopped,
  // and later tokens are dropped.
  bool AcceptToken(const RowResult& row);
  // Takes log-probabilities of the prompt's next tokens.
  void AcceptScored(const std::vector<RowResult>& scored);
  // Takes the vector of a pooled prompt.
  void AcceptVector(const std::vector<float>& vector);
  // Tells the reader that the first `computed_tokens` of the prompt are computed.
  void TellProgress(int64_t computed_tokens);
  // Ends it as the scheduler's event `end` says. Returns the reason in its kDone.
  FinishReason End(const SchedEvent& end, const AnswerTimes& times = {});
  // Ends it with an error: the scheduler never saw the request, or can run no more.
  void Fail(std::string code, std::string message);
  void set_warnings(std::vector<std::string> warnings) { warnings_ = std::move(warnings); }
  void set_max_tokens_lowered() { max_tokens_lowered_ = true; }

  bool stop_found() const { return stop_found_; }
  int64_t num_tokens() const { return usage_.completion_tokens; }

 private:
  // Returns the text that one more token completes in `decoder`, including that of
  // kept_special_ids_; *control: bytes at its end that spell a control token.
  std::string Decode(TokenId id, StreamDecoder* decoder, size_t* control) const;
  // Adds the text of a token to `event`.
  void AddToken(TokenId id, bool may_stop, Event* event);
  // Adds the parts of the answer that are decided, up to a stop string.
  void AddParts(const std::vector<AnswerPart>& parts, bool may_stop, Event* event);
  void AddText(PartKind kind, const std::string& text, Event* event);
  // True if the token's spelling is a stop string, and it stands where stop strings are looked for.
  bool IsStopSpelling(TokenId id) const;
  bool IsKept(TokenId id) const;
  // I11: the delivered text is the whole text of the tokens, up to a stop string.
  void CheckText() const;
  Event MakeEvent(Event::Kind kind) const;
  void PushDone(Event done);

  RequestId id_;
  uint64_t tag_;
  EventQueue* queue_;
  bool has_grammar_;
  bool wants_logprobs_;
  int64_t min_tokens_;
  std::vector<TokenId> stop_ids_;
  std::vector<std::string> stops_;
  std::vector<TokenId> kept_special_ids_;
  bool keep_special_;
  bool include_stop_;
  std::optional<StreamDecoder> decoder_;
  StopFilter stop_filter_;
  const Tokenizer* tokenizer_;
  std::optional<ThoughtTracker> thoughts_;
  std::optional<ThoughtReader> reader_;
  int64_t bare_tokens_ = 0;  // of a thought that no tag has opened
  std::vector<TokenLogprobs> prompt_logprobs_;
  std::vector<float> vector_;  // of a pooled prompt
  Usage usage_;
  std::vector<std::string> warnings_;  // of its grammar
  bool stop_found_ = false;
  bool max_tokens_lowered_ = false;
  // Kept in debug builds only, for CheckText.
  std::vector<TokenId> spoken_ids_;
  std::string delivered_;
};

}  // namespace minisgl::runtime
