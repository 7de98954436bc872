// Runtime: one scheduler thread over one engine. Submit a prompt, receive its events, abort it.
//
// Submit, Abort and Stats may be called from any thread. The runtime's thread pushes events to the
// request's EventQueue: any number of kTokens events, before them of kPrompt events if they are
// wanted, then exactly one kDone. The thread sleeps if it has nothing to do.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/histogram.h"
#include "minisgl/base/kernel_profile.h"
#include "minisgl/base/prefix_key.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/engine.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/sched/scheduler.h"
#include "minisgl/store/kv_block_store.h"
#include "minisgl/text/answer_parts.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

struct Prompt {
  std::vector<TokenId> ids;  // not empty
  // What decides keys and values beside the ids, in order of their places in them.
  std::vector<KeyMark> marks;
  // What the prompt brings beside its ids, and wants beside tokens and scores; null: nothing. With
  // Pooling the prompt has no answer: max_tokens is 0, and no log-probabilities are wanted.
  std::shared_ptr<const RowExtras> extras;
  SamplingParams sampling;  // top_p may be 0 here: greedy
  // -1: to the end of the context. 0: no answer, only the prompt's vector or its log-probabilities.
  // REQUIRES that one of these is wanted (RowExtras::pooling, SamplingParams::num_prompt_logprobs),
  // be it log-probabilities of no token.
  int64_t max_tokens = -1;
  // Stop strings. The one that ends the answer does not reach the text, nor does any part of it.
  // They are looked for in the answer, not in its reasoning. One that is the spelling of a special
  // token stops at that token too, in the reasoning unless the token is part of its tags. Before
  // sampling.min_tokens tokens a stop string is ordinary text.
  std::vector<std::string> stop;
  // The answer's text keeps the stop string, or the text of the token, that ends it.
  bool include_stop = false;
  // Tokens that end the answer: the model's end tokens and the user's.
  std::vector<TokenId> stop_token_ids;
  // For the caller that fills stop_token_ids; the runtime does not read it.
  bool ignore_eos = false;
  // What the answer must be; null: anything. With ignore_eos the answer ends where the grammar
  // leaves nothing else.
  std::shared_ptr<const GrammarText> grammar;
  // The reasoning that may come before the answer's text and before what `grammar` describes, or
  // must come if the prompt opens it.
  ReasoningTags reasoning;
  // After so many tokens of reasoning `thought_message` follows, if it is not empty and the budget
  // is not 0, and then the tokens that close the reasoning; -1: no bound. At most three more tokens
  // complete a character. Without `reasoning` it has no effect.
  int64_t thought_budget = -1;
  std::string thought_message;
  // Special tokens that are kept in the text, such as the tags around a model's reasoning. The
  // others are left out. A short list: each token of the answer is looked up in it.
  std::vector<TokenId> kept_special_ids;
  bool keep_special = false;  // all of them are kept, except the one that ends the answer
  // The only tokens that the answer may have, those that end it included; empty: all.
  std::vector<TokenId> allowed_token_ids;
  // Sequences of tokens that the answer never has: after the others of a sequence its last one is
  // not sampled. None is empty.
  std::vector<std::vector<TokenId>> banned_sequences;
  int32_t priority = 0;         // smaller first; chat turns use kChatPriority
  bool wants_progress = false;  // kPrompt events while the prompt is computed
  // Counted from Submit. An answer that is not complete by then ends with kTimeout.
  std::optional<std::chrono::duration<double>> timeout;
  // The conversation whose turn it is, from OpenSession; 0: none. If it is closed, the request ends
  // with kError, "invalid_row".
  SessionId session = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  // Completion tokens in the reasoning, without its tags; a forced message is part of it. 0 without
  // Prompt::reasoning.
  int64_t reasoning_tokens = 0;
};

// Times of one answer, in seconds from Submit; 0 if not reached.
struct AnswerTimes {
  double admitted_s = 0;     // of its first admission
  double first_token_s = 0;  // when it was pushed to the queue; likewise the last
  double last_token_s = 0;
};

enum class FinishReason { kStop, kLength, kAborted, kTimeout, kError };
// "stop", "length", "aborted", "timeout", "error"
const char* FinishReasonName(FinishReason reason);

struct TokenLogprobs {
  TokenId id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct Event {
  enum class Kind { kTokens, kPrompt, kDone };
  RequestId request = 0;
  uint64_t tag = 0;  // as given to Submit
  Kind kind = Kind::kTokens;
  // kTokens: text that is certain now ("" while a character or a possible stop string is
  // incomplete), and the tokens accepted since the previous event. kDone carries the last text.
  std::string text;
  TextParts parts;  // of `text`; none without Prompt::reasoning
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> logprobs;  // one for each of token_ids, if requested
  // kPrompt: so many tokens of the prompt are computed or were cached. After each chunk but the
  // last, whose event is the first token's.
  int64_t computed_tokens = 0;
  // kDone:
  // Of the prompt's tokens from sampling.prompt_logprobs_begin on, if wanted. Empty after an error.
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<float> vector;  // of a pooled prompt
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  AnswerTimes times;
  // kError: "invalid_row", "invalid_grammar", "length_exceeded", "nan_logits", "kv_load_failed" or
  // "internal". If a step failed, for every request that ran: "device_fault", "device_unavailable"
  // (permanent) or "out_of_memory".
  std::string error_code;
  std::string error_message;
  bool max_tokens_lowered = false;  // max_tokens exceeded the room left
  // The answer stopped before its grammar allowed an end, or at a stop string: it need not be a
  // whole text of the grammar.
  bool cut_in_grammar = false;
  bool ended_in_thought = false;              // all of it is reasoning that was not closed
  std::vector<std::string> grammar_warnings;  // what compiling its grammar noticed
};

// Returns the text that the events of an answer of `ids` to `prompt` carry in total; *parts: its
// parts, if they are wanted.
std::string AnswerText(const Prompt& prompt, std::span<const TokenId> ids,
                       const Tokenizer& tokenizer, TextParts* parts = nullptr);

// Unbounded; any thread pushes, one thread pops.
class EventQueue {
 public:
  EventQueue();
  ~EventQueue();
  void Push(Event event);
  // Returns the next event, or nothing if none came within `timeout` or Interrupt was called.
  std::optional<Event> Pop(std::chrono::milliseconds timeout);
  // Wakes a waiting Pop once. Safe in a signal handler's thread, not in the handler.
  void Interrupt();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct RuntimeStats {
  SchedulerStats scheduler;
  double uptime_s = 0;
  Histogram waiting_s;         // from Submit to the first admission
  Histogram first_token_s;     // from Submit to the first token
  Histogram between_tokens_s;  // every gap between two tokens of one answer
  // The time that the runtime's thread spent on planning each step and handing out its tokens,
  // without waiting for the engine.
  Histogram host_step_s;
};

struct RuntimeOptions {
  SchedulerOptions scheduler;
  bool overlap = true;  // plan the next step while one computes
  // Where prefixes are found and kept that outlive the process, in blocks of kKvBlockTokens tokens
  // of the engine's; may be null. Not beside scheduler.kv_source. REQUIRES
  // Engine::KvBlockBytes(kKvBlockTokens) > 0.
  std::shared_ptr<KvBlockStore> kv_store;
  // Receives a trace in the Chrome trace event format, which Perfetto opens, piece by piece, on the
  // runtime's thread; the last piece comes before the runtime's destructor returns. It must not
  // throw. Empty: no trace.
  std::function<void(std::string_view)> trace_sink;
  // Receives the events of the prefix cache as JSON Lines (src/runtime/cache_event_writer.h), whole
  // lines at a time, those of a request before its kDone. Otherwise as trace_sink. Not beside
  // scheduler.cache_observer.
  std::function<void(std::string_view)> cache_event_sink;
  // Its spans become a track of the trace. May be null.
  std::shared_ptr<KernelProfile> kernel_profile;
};

class Runtime {
 public:
  // `tokenizer` outlives the runtime. It may be null: then events carry no text.
  static Result<std::unique_ptr<Runtime>> Create(std::unique_ptr<Engine> engine,
                                                 const Tokenizer* tokenizer,
                                                 const RuntimeOptions& options);
  // Aborts the remaining requests (each still gets its kDone), drops what FinishSaves would wait
  // for, and joins the thread.
  virtual ~Runtime() = default;

  // Takes `prompt`; `queue` outlives the request. A request that can never fit gets its kDone at
  // once. Every event carries `tag`.
  virtual RequestId Submit(Prompt prompt, EventQueue* queue, uint64_t tag = 0) = 0;
  // Takes all or none. The scheduler sees them at once and in this order (n answers of one prompt).
  virtual std::vector<RequestId> SubmitAll(std::vector<Prompt> prompts, EventQueue* queue,
                                           const std::vector<uint64_t>& tags) = 0;
  // Ends the request with kAborted, unless it has ended. Unknown ids are ignored.
  virtual void Abort(RequestId request) = 0;

  // Opens a conversation (see Scheduler::OpenSession): between its turns its prefix stays cached
  // and its place is kept free. A turn that is submitted during another waits for the end of that
  // one.
  virtual SessionId OpenSession() = 0;
  // Aborts its turns. Unknown ids are ignored.
  virtual void CloseSession(SessionId session) = 0;

  // Waits until the prefixes of ended requests are in RuntimeOptions::kv_store, for `timeout` at
  // most; drops those that are not by then. SchedulerStats::dropped_pages says how many were.
  virtual void FinishSaves(std::chrono::milliseconds timeout) = 0;

  // Drops the cached pages that no request uses, those of sessions too, before what is submitted
  // after this call. What is kept on disk stays there.
  virtual void ResetPrefixCache() = 0;

  virtual RuntimeStats Stats() const = 0;
  virtual const EngineLimits& limits() const = 0;
};

}  // namespace minisgl
