// Runtime: one scheduler thread over one engine. Submit a prompt, receive its events, abort it.
//
// Submit, Abort and stats may be called from any thread. Events are pushed to the request's
// EventQueue by the runtime's thread; every request gets any number of kTokens events and then
// exactly one kDone. With nothing to do the thread sleeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/histogram.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/engine.h"
#include "minisgl/sched/scheduler.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

struct Prompt {
  std::vector<TokenId> ids;  // not empty
  SamplingParams sampling;
  int64_t max_tokens = -1;  // -1: to the end of the context
  // Stop strings: neither one that ends the answer nor a part of it reaches the text. Before
  // sampling.min_tokens tokens a stop string is ordinary text.
  std::vector<std::string> stop;
  // End the answer: the model's end tokens, and the user's own.
  std::vector<TokenId> stop_token_ids;
  // For whoever fills stop_token_ids: the runtime itself reads those alone.
  bool ignore_eos = false;
  // Control tokens that the text spells all the same, as the tags are that tell a model's reasoning
  // from its answer. Few.
  std::vector<TokenId> spelled_ids;
  int32_t priority = 0;  // smaller first; chat turns use kChatPriority
  // From Submit on: an answer not whole by then ends with kTimeout.
  std::optional<std::chrono::duration<double>> timeout;
  // The conversation it is a turn of, as OpenSession gave it (kError, "invalid_row" where that is
  // closed); 0: none.
  SessionId session = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
};

// Of one answer, in seconds from Submit on; 0 for what was not reached.
struct AnswerTimes {
  double admitted_s = 0;     // the first time, where it was admitted more than once
  double first_token_s = 0;  // and the last one, as they were handed out
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
  enum class Kind { kTokens, kDone };
  RequestId request = 0;
  uint64_t tag = 0;  // as given to Submit
  Kind kind = Kind::kTokens;
  // kTokens: text that is now certain ("" while a character or a possible stop string is
  // incomplete), and the tokens accepted since the event before. kDone carries the last text.
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> logprobs;  // one for each of token_ids, where asked for
  // kDone:
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  AnswerTimes times;
  // kError: "invalid_row", "length_exceeded", "nan_logits", "kv_load_failed", "internal"; of a step
  // that failed, and so of all that ran: "device_fault", "device_unavailable" (it will not come
  // back), "out_of_memory".
  std::string error_code;
  std::string error_message;
  bool max_tokens_lowered = false;  // max_tokens was more than the room left
};

// Unbounded; any thread pushes, one thread pops.
class EventQueue {
 public:
  EventQueue();
  ~EventQueue();
  void Push(Event event);
  // The next event; nothing where none came before `timeout`, or Interrupt was called.
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
  // Of each step: the time the runtime's thread spent planning it and handing out its tokens, apart
  // from waiting for the engine.
  Histogram host_step_s;
};

struct RuntimeOptions {
  SchedulerOptions scheduler;
  bool overlap = true;  // plan the next step while one computes
  // Takes a trace in the Chrome trace event format (what Perfetto opens), piece by piece, from the
  // runtime's thread; the last piece comes before the runtime's destructor returns. It must not
  // throw. Empty: none.
  std::function<void(std::string_view)> trace_sink;
};

class Runtime {
 public:
  // `tokenizer` outlives the runtime; may be null where nobody needs text (then events carry none).
  static Result<std::unique_ptr<Runtime>> Create(std::unique_ptr<Engine> engine,
                                                 const Tokenizer* tokenizer,
                                                 const RuntimeOptions& options);
  // Aborts what is left (each request still gets its kDone) and joins the thread.
  virtual ~Runtime() = default;

  // Takes `prompt`; `queue` outlives the request. What can never fit gets its kDone at once. `tag`
  // comes back in every event.
  virtual RequestId Submit(Prompt prompt, EventQueue* queue, uint64_t tag = 0) = 0;
  // All or nothing: the scheduler sees them at once and in this order (n answers of one prompt).
  virtual std::vector<RequestId> SubmitAll(std::vector<Prompt> prompts, EventQueue* queue,
                                           const std::vector<uint64_t>& tags) = 0;
  // Its kDone says kAborted, unless it ended before. Unknown ids are ignored.
  virtual void Abort(RequestId request) = 0;

  // A conversation (see Scheduler::OpenSession): between its turns its prefix stays cached and its
  // place is kept free. A turn submitted during another waits for that one's end.
  virtual SessionId OpenSession() = 0;
  // Aborts its turns. Unknown ids are ignored.
  virtual void CloseSession(SessionId session) = 0;

  virtual RuntimeStats Stats() const = 0;
  virtual const EngineLimits& limits() const = 0;
};

}  // namespace minisgl
