// A request to the scheduler, and the events and notes that it returns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/prefix_key.h"
#include "minisgl/plan/row_extras.h"
#include "minisgl/row_result.h"
#include "minisgl/sampling_params.h"
#include "minisgl/token_constraint.h"

namespace minisgl {

using RequestId = uint64_t;  // the program's own, never reused, never a user's

using SessionId = uint64_t;  // 0: none

inline constexpr int32_t kChatPriority = -1000;

struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // not empty, each id in the vocabulary
  // What decides keys and values beside the prompt's ids, in order: contents of pictures, an
  // adapter at place 0. Requests share a prefix up to the first difference in ids or marks.
  std::vector<KeyMark> marks;
  // The parts that it brings beside ids and wants beside tokens and scores; null: none. Valid
  // (CheckExtras). With Pooling it has no answer and no tokens to score: it ends with its vector.
  std::shared_ptr<const RowExtras> extras;
  SamplingParams sampling;
  // At least 1; or 0 for a request whose prompt has tokens to score
  // (SamplingParams::num_prompt_logprobs): it ends when all of them are; or 0 with Pooling.
  int64_t max_tokens = 0;
  std::vector<TokenId> stop_ids;  // end and stop tokens, sorted; empty: only length ends it
  int32_t priority = 0;
  // The conversation whose turn it is, open at Submit. A turn waits until the turn before it ended.
  SessionId session = 0;
  // Waits for Scheduler::OpenGate (a grammar, an image); keeps its place, and does not block
  // others.
  bool is_gated = false;
  bool wants_progress = false;  // of its prompt: kPrompt events
  // The state of its answer before the first token; null: any token may follow any other. May come
  // with OpenGate instead. The scheduler alone uses it from then on.
  std::shared_ptr<TokenConstraint> constraint;
};

enum class EndReason : uint8_t { kStopToken, kLength, kStopped, kAborted, kTimedOut, kFailed };

// What happened to a request in one Collect, Submit or Abort.
struct SchedEvent {
  enum class Kind : uint8_t { kToken, kScored, kPrompt, kVector, kEnd };
  RequestId id = 0;
  Kind kind = Kind::kToken;
  RowResult token;  // kToken; kVector: the vector alone
  // kScored: the next tokens of the prompt whose log-probabilities are wanted. All of them come
  // before the first kToken.
  std::vector<RowResult> scored;
  // kPrompt: a chunk of the prompt that is not its last was computed, and so many of the prompt's
  // tokens are now, with those that a cache served.
  int64_t computed_tokens = 0;
  // kEnd: always after the last of the others.
  EndReason reason = EndReason::kStopToken;
  std::string error_code, error_message;  // kFailed
  // The constraint did not allow an end after the answer's tokens (the last one left out if it is
  // a stop token).
  bool cut_in_constraint = false;
  // Found in the cache at the first admission, or loaded then.
  int64_t cached_tokens = 0;
};

// A note for a trace. Recorded only with SchedulerOptions::record_notes.
struct SchedNote {
  enum class Kind : uint8_t {
    kQueued,        // value: tokens of the prompt
    kAdmitted,      // value: tokens found in the cache
    kPreempted,     // value: number of its preemptions so far
    kPagesStored,   // value: pages that entered the prefix cache
    kPagesEvicted,  // value: pages that left it
    kCacheReset,    // value: pages still cached
  };
  Kind kind = Kind::kQueued;
  RequestId id = 0;  // 0 if it concerns no single request
  int64_t value = 0;
};

}  // namespace minisgl
