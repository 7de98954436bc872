#include "runtime/answer.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

double Seconds(Answer::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

FinishReason ReasonOf(EndReason reason) {
  switch (reason) {
    case EndReason::kStopToken:
    case EndReason::kStopped:
      return FinishReason::kStop;
    case EndReason::kLength:
      return FinishReason::kLength;
    case EndReason::kAborted:
      return FinishReason::kAborted;
    case EndReason::kFailed:
      return FinishReason::kError;
  }
  return FinishReason::kError;
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAborted:
      return "aborted";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

Answer::Answer(RequestId id, uint64_t tag, const Prompt& prompt, const Tokenizer* tokenizer,
               EventQueue* queue, Clock::time_point submitted)
    : id_(id),
      tag_(tag),
      queue_(queue),
      wants_logprobs_(prompt.sampling.num_logprobs >= 0),
      min_tokens_(prompt.sampling.min_tokens),
      stop_ids_(prompt.stop_token_ids),
      stop_filter_(prompt.stop),
      tokenizer_(tokenizer),
      submitted_(submitted) {
  if (tokenizer != nullptr) decoder_.emplace(tokenizer, /*at_start=*/false);
  usage_.prompt_tokens = static_cast<int64_t>(prompt.ids.size());
}

Event Answer::MakeEvent(Event::Kind kind) const {
  Event event;
  event.request = id_;
  event.tag = tag_;
  event.kind = kind;
  return event;
}

bool Answer::AcceptToken(const RowResult& row) {
  if (stop_found_) return false;
  last_token_ = Clock::now();
  if (usage_.completion_tokens++ == 0) first_token_ = last_token_;
  Event event = MakeEvent(Event::Kind::kTokens);
  event.token_ids.push_back(row.token);
  if (wants_logprobs_) event.logprobs.push_back({row.token, row.logprob, row.top_logprobs});
  // An end token has no text, also where a user's stop token is an ordinary word.
  const bool is_stop = std::find(stop_ids_.begin(), stop_ids_.end(), row.token) != stop_ids_.end();
  if (decoder_ && !is_stop) {
    std::string text = decoder_->Push(row.token);
    StopFilter::Output output = stop_filter_.Push(text, usage_.completion_tokens >= min_tokens_);
    text = std::move(output.text);
    stop_found_ = output.stopped;
    if constexpr (kDebugBuild) {
      spoken_ids_.push_back(row.token);
      delivered_ += text;
    }
    event.text = std::move(text);
  }
  queue_->Push(std::move(event));
  return stop_found_;
}

void Answer::End(const SchedEvent& end) {
  Event done = MakeEvent(Event::Kind::kDone);
  done.finish_reason = ReasonOf(end.reason);
  done.error_code = end.error_code;
  done.error_message = end.error_message;
  usage_.cached_tokens = end.cached_tokens;
  if (decoder_ && !stop_found_) {
    StopFilter::Output output = stop_filter_.Push(decoder_->Finish());
    stop_found_ = output.stopped;
    done.text = output.text + (output.stopped ? "" : stop_filter_.Finish());
    if constexpr (kDebugBuild) delivered_ += done.text;
  }
  if constexpr (kDebugBuild) CheckText();
  PushDone(std::move(done));
}

void Answer::CheckText() const {
  if (tokenizer_ == nullptr) return;
  StreamDecoder decoder(tokenizer_, /*at_start=*/false);
  std::string whole;
  for (TokenId id : spoken_ids_) whole += decoder.Push(id);
  whole += decoder.Finish();
  MINISGL_CHECK(stop_found_ ? whole.starts_with(delivered_) : whole == delivered_,
                "I11: request {} was told another text than its tokens spell", id_);
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
  queue_->Push(std::move(done));
}

std::optional<double> Answer::first_token_s() const {
  if (usage_.completion_tokens == 0) return std::nullopt;
  return Seconds(first_token_ - submitted_);
}

std::optional<double> Answer::between_tokens_s() const {
  if (usage_.completion_tokens < 2) return std::nullopt;
  return Seconds(last_token_ - first_token_) / static_cast<double>(usage_.completion_tokens - 1);
}

}  // namespace minisgl
