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
      stops_(prompt.stop),
      kept_special_ids_(prompt.keep_special ? std::vector<TokenId>() : prompt.kept_special_ids),
      keep_special_(prompt.keep_special),
      include_stop_(prompt.include_stop),
      stop_filter_(prompt.stop, prompt.include_stop),
      tokenizer_(tokenizer) {
  if (tokenizer != nullptr) decoder_.emplace(tokenizer, /*at_start=*/false, keep_special_);
  const ReasoningTags& tags = prompt.reasoning;
  if (marks != nullptr) reader_.emplace(marks->tags(), tags.starts_inside, tags.is_closed);
  if (marks != nullptr) thoughts_.emplace(std::move(marks), tags.starts_inside);
  usage_.prompt_tokens = static_cast<int64_t>(prompt.ids.size());
}

Event Answer::MakeEvent(Event::Kind kind) const {
  Event event;
  event.request = id_;
  event.tag = tag_;
  event.kind = kind;
  return event;
}

bool Answer::IsKept(TokenId id) const {
  return std::find(kept_special_ids_.begin(), kept_special_ids_.end(), id) !=
         kept_special_ids_.end();
}

std::string Answer::Decode(TokenId id, StreamDecoder* decoder, size_t* control) const {
  std::string text = decoder->Push(id);
  if (IsKept(id)) {
    const std::string spelling = tokenizer_->PieceText(id);
    *control = spelling.size();
    return text + spelling;
  }
  *control = 0;
  if (!keep_special_ || !tokenizer_->IsSpecial(id)) return text;
  const std::string spelling = tokenizer_->PieceText(id);
  if (text.ends_with(spelling)) *control = spelling.size();
  return text;
}

// A token that divides a thought from the answer ends no answer.
bool Answer::IsStopSpelling(TokenId id) const {
  if (stops_.empty() || !tokenizer_->IsSpecial(id)) return false;
  if (thoughts_ && thoughts_->inside() && thoughts_->marks().IsOfTag(id)) return false;
  return std::find(stops_.begin(), stops_.end(), tokenizer_->PieceText(id)) != stops_.end();
}

void Answer::AddText(PartKind kind, const std::string& text, Event* event) {
  event->text += text;
  if (reader_) AddPart(kind, text.size(), &event->parts);
  if constexpr (kDebugBuild) delivered_ += text;
}

void Answer::AddParts(const std::vector<AnswerPart>& parts, bool may_stop, Event* event) {
  for (const AnswerPart& part : parts) {
    if (part.kind != PartKind::kText) {
      AddText(PartKind::kText, stop_filter_.Finish(), event);
      AddText(part.kind, part.text, event);
      continue;
    }
    const StopFilter::Output output = stop_filter_.Push(part.text, may_stop);
    AddText(PartKind::kText, output.text, event);
    stop_found_ = output.stopped;
    if (stop_found_) return;
  }
}

void Answer::AddToken(TokenId id, bool may_stop, Event* event) {
  const bool is_stop = may_stop && IsStopSpelling(id);
  size_t control = 0;
  std::string text = Decode(id, &*decoder_, &control);
  if constexpr (kDebugBuild) spoken_ids_.push_back(id);
  if (is_stop) {
    text.resize(text.size() - control);
    control = 0;
  }
  if (!reader_) {
    AddParts({{PartKind::kText, std::move(text)}}, may_stop, event);
  } else {
    if (control > 0) text.insert(text.size() - control, 1, kControlMark);
    const bool closes = id == thoughts_->marks().close_id() && reader_->MayCloseBare();
    if (closes) bare_tokens_ = usage_.completion_tokens;
    AddParts(closes ? reader_->PushClose(text) : reader_->Push(text), may_stop, event);
  }
  if (!is_stop || stop_found_) return;
  if (reader_) AddParts(reader_->Finish(), may_stop, event);
  if (stop_found_) return;
  AddText(PartKind::kText, stop_filter_.Finish(), event);
  stop_found_ = true;
  if (!include_stop_) return;
  const std::string spelling = tokenizer_->PieceText(id);
  event->text += spelling;
  if (reader_) AddPart(PartKind::kText, spelling.size(), &event->parts);
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
  if (decoder_ && (!is_stop || include_stop_)) {
    AddToken(row.token, num_tokens >= min_tokens_, &event);
  }
  if (thoughts_ && !is_stop) {
    thoughts_->Push(row.token);
    usage_.reasoning_tokens = bare_tokens_ + thoughts_->num_tokens();
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
    const bool may_stop = usage_.completion_tokens >= min_tokens_;
    std::string text = decoder_->Finish();
    if (reader_) {
      AddParts(reader_->Push(text), may_stop, &done);
      if (!stop_found_) AddParts(reader_->Finish(), may_stop, &done);
    } else {
      AddParts({{PartKind::kText, std::move(text)}}, may_stop, &done);
    }
    if (!stop_found_) AddText(PartKind::kText, stop_filter_.Finish(), &done);
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
  size_t control = 0;
  for (TokenId id : spoken_ids_) whole += Decode(id, &decoder, &control);
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
                       const Tokenizer& tokenizer, TextParts* parts) {
  EventQueue queue;
  std::shared_ptr<const runtime::ThoughtMarks> marks;
  if (!prompt.reasoning.none()) {
    marks = std::make_shared<const runtime::ThoughtMarks>(&tokenizer, prompt.reasoning);
  }
  runtime::Answer answer(0, 0, prompt, &tokenizer, &queue, std::move(marks));
  for (const TokenId id : ids) {
    RowResult row;
    row.token = id;
    if (answer.AcceptToken(row)) break;
  }
  answer.End(SchedEvent{});
  std::string text;
  while (const std::optional<Event> event = queue.Pop(std::chrono::milliseconds(0))) {
    text += event->text;
    if (parts == nullptr) continue;
    for (const TextPart& part : event->parts) AddPart(part.kind, part.size, parts);
  }
  return text;
}

}  // namespace minisgl
