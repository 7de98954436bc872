// One answer on its way out: token ids become text, stop strings end it, usage is counted, events
// are pushed. Used by the runtime's thread alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/runtime/runtime.h"
#include "minisgl/text/stream_decoder.h"
#include "runtime/stop_filter.h"

namespace minisgl::runtime {

class Answer {
 public:
  // `tokenizer` may be null: then events carry no text.
  Answer(RequestId id, uint64_t tag, const Prompt& prompt, const Tokenizer* tokenizer,
         EventQueue* queue);

  // Takes a sampled token; true where it completed a stop string: the request is to be stopped, and
  // tokens that come after it are dropped.
  bool AcceptToken(const RowResult& row);
  // The end, as the scheduler says it; what its kDone says.
  FinishReason End(const SchedEvent& end, const AnswerTimes& times = {});
  // The end of a request that the scheduler never saw.
  void Fail(std::string code, std::string message);
  void set_max_tokens_lowered() { max_tokens_lowered_ = true; }

  bool stop_found() const { return stop_found_; }
  int64_t num_tokens() const { return usage_.completion_tokens; }

 private:
  // What `decoder` makes of one more token, and its spelling where that is asked for.
  std::string Decode(TokenId id, StreamDecoder* decoder) const;
  // I11: the text delivered is the text of the tokens, whole (up to a stop string).
  void CheckText() const;
  Event MakeEvent(Event::Kind kind) const;
  void PushDone(Event done);

  RequestId id_;
  uint64_t tag_;
  EventQueue* queue_;
  bool wants_logprobs_;
  int64_t min_tokens_;
  std::vector<TokenId> stop_ids_;
  std::vector<TokenId> spelled_ids_;
  std::optional<StreamDecoder> decoder_;
  StopFilter stop_filter_;
  const Tokenizer* tokenizer_;
  Usage usage_;
  bool stop_found_ = false;
  bool max_tokens_lowered_ = false;
  // Kept in debug builds only, for CheckText.
  std::vector<TokenId> spoken_ids_;
  std::string delivered_;
};

}  // namespace minisgl::runtime
