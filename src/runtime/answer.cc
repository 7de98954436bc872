#include "runtime/answer.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAborted:
      return "aborted";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

}  // namespace minisgl

namespace minisgl::runtime {
namespace {

FinishReason ReasonOf(EndReason reason) {
  switch (reason) {
    case EndReason::kStopToken:
    case EndReason::kStopped:
      return FinishReason::kStop;
    case EndReason::kLength:
      return FinishReason::kLength;
    case EndReason::kAborted:
      return FinishReason::kAborted;
    case EndReason::kTimedOut:
      return FinishReason::kTimeout;
    case EndReason::kFailed:
      return FinishReason::kError;
  }
  return FinishReason::kError;
}

}  // namespace

Answer::Answer(RequestId id, uint64_t tag, const Prompt& prompt, const Tokenizer* tokenizer,
               EventQueue* queue, std::shared_ptr<const ThoughtMarks> marks)
    : id_(id),
      tag_(tag),
      queue_(queue),
      has_grammar_(prompt.grammar != nullptr),
      wants_logprobs_(prompt.sampling.num_logprobs >= 0),
      min_tokens_(prompt.sampling.min_tokens),
      stop_ids_(prompt.stop_token_ids),
      kept_special_ids_(prompt.keep_special ? std::vector<TokenId>() : prompt.kept_special_ids),
      keep_special_(prompt.keep_special),
      include_stop_(prompt.include_stop),
      stop_filter_(prompt.stop, prompt.include_stop),
      tokenizer_(tokenizer) {
  if (tokenizer != nullptr) decoder_.emplace(tokenizer, /*at_start=*/false, keep_special_);
  if (marks != nullptr) thoughts_.emplace(std::move(marks), prompt.reasoning.starts_inside);
  usage_.prompt_tokens = static_cast<int64_t>(prompt.ids.size());
}

Event Answer::MakeEvent(Event::Kind kind) const {
  Event event;
  event.request = id_;
  event.tag = tag_;
  event.kind = kind;
  return event;
}

std::string Answer::Decode(TokenId id, StreamDecoder* decoder) const {
  std::string text = decoder->Push(id);
  if (std::find(kept_special_ids_.begin(), kept_special_ids_.end(), id) !=
      kept_special_ids_.end()) {
    text += tokenizer_->PieceText(id);
  }
  return text;
}

bool Answer::AcceptToken(const RowResult& row) {
  if (stop_found_) return false;
  const int64_t num_tokens = usage_.completion_tokens + 1;
  Event event = MakeEvent(Event::Kind::kTokens);
  event.token_ids.push_back(row.token);
  if (wants_logprobs_) event.logprobs.push_back({row.token, row.logprob, row.top_logprobs});
  // An end token has no text, even if a user's stop token is an ordinary word, unless stops are
  // part of the answer.
  const bool is_stop = std::find(stop_ids_.begin(), stop_ids_.end(), row.token) != stop_ids_.end();
  if (thoughts_ && !is_stop) {
    thoughts_->Push(row.token);
    usage_.reasoning_tokens = thoughts_->num_tokens();
  }
  if (decoder_ && (!is_stop || include_stop_)) {
    std::string text = Decode(row.token, &*decoder_);
    StopFilter::Output output = stop_filter_.Push(text, num_tokens >= min_tokens_);
    text = std::move(output.text);
    stop_found_ = output.stopped;
    if constexpr (kDebugBuild) {
      spoken_ids_.push_back(row.token);
      delivered_ += text;
    }
    event.text = std::move(text);
  }
  queue_->Push(std::move(event));
  usage_.completion_tokens = num_tokens;  // what was delivered, even if memory ran out before
  return stop_found_;
}

void Answer::AcceptScored(const std::vector<RowResult>& scored) {
  for (const RowResult& row : scored) {
    prompt_logprobs_.push_back({row.token, row.logprob, row.top_logprobs});
  }
}

void Answer::AcceptVector(const std::vector<float>& vector) { vector_ = vector; }

void Answer::TellProgress(int64_t computed_tokens) {
  Event event = MakeEvent(Event::Kind::kPrompt);
  event.computed_tokens = computed_tokens;
  queue_->Push(std::move(event));
}

FinishReason Answer::End(const SchedEvent& end, const AnswerTimes& times) {
  Event done = MakeEvent(Event::Kind::kDone);
  done.times = times;
  usage_.cached_tokens = end.cached_tokens;
  if (decoder_ && !stop_found_) {
    StopFilter::Output output =
        stop_filter_.Push(decoder_->Finish(), usage_.completion_tokens >= min_tokens_);
    stop_found_ = output.stopped;
    done.text = output.text + (output.stopped ? "" : stop_filter_.Finish());
    if constexpr (kDebugBuild) delivered_ += done.text;
  }
  // A stop string ends the answer, whatever other tokens its step gave: the same as if each step
  // gave one token.
  const FinishReason reason = stop_found_ ? FinishReason::kStop : ReasonOf(end.reason);
  done.finish_reason = reason;
  done.ended_in_thought = thoughts_ && thoughts_->in_first() && usage_.completion_tokens > 0;
  // A stop string is text of the grammar that the answer lacks.
  done.cut_in_grammar = end.cut_in_constraint || (has_grammar_ && stop_found_);
  if (reason == FinishReason::kError) {
    done.error_code = end.error_code;
    done.error_message = end.error_message;
  } else {
    done.prompt_logprobs = std::move(prompt_logprobs_);
    done.vector = std::move(vector_);
  }
  if constexpr (kDebugBuild) CheckText();
  PushDone(std::move(done));
  return reason;
}

void Answer::CheckText() const {
  if (tokenizer_ == nullptr) return;
  StreamDecoder decoder(tokenizer_, /*at_start=*/false, keep_special_);
  std::string whole;
  for (TokenId id : spoken_ids_) whole += Decode(id, &decoder);
  whole += decoder.Finish();
  MINISGL_CHECK(stop_found_ ? whole.starts_with(delivered_) : whole == delivered_,
                "I11: the text delivered for request {} is not that of its tokens", id_);
}

void Answer::Fail(std::string code, std::string message) {
  Event done = MakeEvent(Event::Kind::kDone);
  done.finish_reason = FinishReason::kError;
  done.error_code = std::move(code);
  done.error_message = std::move(message);
  PushDone(std::move(done));
}

void Answer::PushDone(Event done) {
  done.usage = usage_;
  done.max_tokens_lowered = max_tokens_lowered_;
  done.grammar_warnings = std::move(warnings_);
  queue_->Push(std::move(done));
}

}  // namespace minisgl::runtime

namespace minisgl {

std::string AnswerText(const Prompt& prompt, std::span<const TokenId> ids,
                       const Tokenizer& tokenizer) {
  EventQueue queue;
  runtime::Answer answer(0, 0, prompt, &tokenizer, &queue);
  for (const TokenId id : ids) {
    RowResult row;
    row.token = id;
    if (answer.AcceptToken(row)) break;
  }
  answer.End(SchedEvent{});
  std::string text;
  while (const std::optional<Event> event = queue.Pop(std::chrono::milliseconds(0))) {
    text += event->text;
  }
  return text;
}

}  // namespace minisgl
