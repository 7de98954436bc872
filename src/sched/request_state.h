// One request as the scheduler sees it, from Submit until no step in flight names it.
//
// Its lengths, in tokens (I7):
//   cached_len      found in the cache at the last admission, whole pages
//   computed_len    KV written by steps that were collected, or by a load that ended
//   launched_len    KV written, or being written, by steps that were launched
//   device_len      ids in the token pool, or being written there: the prompt, then one for each
//                   token that a launched step may sample
//   max_device_len  prompt + max_tokens
// cached_len <= computed_len <= launched_len <= device_len <= max_device_len
//
// Tokens of the prompt from scored_begin() on may be scored: scored_len counts the tokens up to the
// last one whose log-probability was collected. The token before one that is still to be scored is
// computed, never taken from a cache.
//
// A step with drafts counts them in launched_len and device_len. When it is collected, both return
// to the accepted length.
//
// Its pages, as half-open intervals of page indices:
//   [0, tree_pages)             in the prefix cache, under `node`, which it locks
//   [tree_pages, pages.size())  its own
//   [window_begin, pages.size())  with a claim on the window page, if the engine has them
// While it runs, pages.size() == ceil((launched_len + load_len) / page_size).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "minisgl/base/checked_math.h"
#include "minisgl/kv/prefix_cache.h"
#include "minisgl/sched/request.h"
#include "sched/draft_pacer.h"

namespace minisgl::sched {

// kLoading: admitted, and a KvSource writes its pages.
enum class Phase : uint8_t { kWaiting, kLoading, kPrefill, kDecode, kEnded };

// Why a waiting request may not be tried, as bits: its gate is closed, an earlier turn has not
// ended, the KV source does not know yet, another request computes a prefix of it, or its adapter
// is not loaded.
enum HoldReason : uint8_t {
  kHeldByGate = 1,
  kHeldByTurn = 2,
  kHeldBySource = 4,
  kHeldByPrefix = 8,
  kHeldByAdapter = 16
};

// How a request is counted for its adapter (adapter_ledger.h).
enum class AdapterUse : uint8_t { kNone, kWaits, kRuns };

// A state slot of a running request.
struct StateEntry {
  StateSlot slot = kZeroState;
  int64_t len = 0;        // it holds the state after so many tokens, or will
  bool is_spare = false;  // beyond the slots that are promised to the request
};

// One of a request's inputs to encode (RowExtras::inputs).
struct InputState {
  EmbeddingSource source = 0;  // the embeddings that the request refers to; 0: none
  bool is_passed = false;      // its tokens are computed, or were found in the cache
};

struct RequestState {
  Request request;
  Phase phase = Phase::kWaiting;
  std::vector<TokenId> tokens;  // the prompt, then the collected part of the answer

  uint64_t arrival = 0;               // number of its submission
  int32_t queue_class = 0;            // smaller goes first
  int64_t admissions_at_arrival = 0;  // number of admissions when it began to wait
  uint8_t holds = 0;                  // HoldReason bits; 0: it may be tried
  int32_t preemptions = 0;
  int32_t bypassed = 0;        // requests admitted past it while it did not fit
  bool is_guaranteed = false;  // its whole length is promised: it is never preempted

  int64_t first_cached_len = -1;  // at its first admission, for usage; -1: never admitted
  int64_t cached_len = 0;
  int64_t prefill_len = 0;
  int64_t computed_len = 0;
  int64_t launched_len = 0;
  int64_t device_len = 0;
  int64_t scored_len = 0;

  int32_t table_row = -1;      // from admission to release
  PrefixNode* node = nullptr;  // locked from admission to end
  bool holds_lock = false;
  int32_t tree_pages = 0;
  std::vector<PageId> pages;
  int32_t window_begin = 0;
  int32_t clean_pages = 0;     // the device's page table has pages [0, clean_pages)
  bool in_token_pool = false;  // the device has the prompt

  std::vector<uint64_t> page_hashes;  // chain hash of each whole page of the prompt
  // Hashes [tree_pages, registered_pages) are in the index of pages being computed.
  int32_t registered_pages = 0;
  uint64_t awaited_hash = 0;  // of the page that it waits for, while held by kHeldByPrefix
  // Pages up to its last state when it was held for pages that are cached without one; -1: never.
  int32_t awaited_state_at = -1;

  // With states. Its own slots; the snapshot that it goes on from, with a pin, and the length of
  // that; of its own slots, the length of the one to leave as a snapshot at its end, 0: none; and
  // sorted lengths of snapshots that are planned.
  std::vector<StateEntry> states;
  StateSlot pinned_state = kZeroState;
  int64_t pinned_len = 0;
  int64_t kept_state_len = 0;
  // Likewise the latest that ends a block of the source before that, in a spare slot.
  int64_t kept_block_len = 0;
  std::vector<int64_t> wanted_states;

  bool is_whole = false;           // EngineLimits::attends_both_ways
  std::vector<InputState> inputs;  // parallel to request.extras->inputs, until it ends

  int64_t in_flight = 0;  // number of launched steps with a row of it

  DraftPacer pacer;
  // The engine's drafter has read all tokens that steps computed since the admission.
  bool is_fed = true;

  // The constraint of the answer allows an end after its tokens, without the one that stopped it.
  bool may_end = true;
  std::vector<TokenId> forced;  // ForcedTokens after `forced_at` tokens; -1: not asked yet
  int64_t forced_at = -1;
  DraftPacer forced_pacer;
  bool drafts_forced = false;  // the step in flight with its drafts has those
  // Number of tokens after which its mask is being made, if that takes long; -1: none is. Until the
  // mask is ready it has no row in a step.
  int64_t awaited_mask = -1;
  // The step in flight with its row lacks a mask: tokens are dropped when it is collected.
  bool drops_tokens = false;

  AdapterUse adapter_use = AdapterUse::kNone;

  bool is_loading = false;  // its load has not ended
  int64_t load_len = 0;     // tokens that the load writes, from launched_len on
  // The slot of the state that it writes, if the model has states: taken until the load ends.
  StateSlot load_state = kZeroState;
  std::vector<PageId> load_pages;  // of a load that outlives the request's release

  int64_t claimed_windows() const { return static_cast<int64_t>(pages.size()) - window_begin; }
  // The known tokens with their marks: what the prefix cache and sources may share of it.
  PrefixKey key() const { return {tokens, request.marks}; }
  bool is_chat() const { return queue_class <= kChatPriority; }
  int64_t prompt_len() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t answer_len() const { return static_cast<int64_t>(tokens.size()) - prompt_len(); }
  int64_t max_device_len() const { return prompt_len() + request.max_tokens; }
  // Position of the first token to score; prompt_len() if there is none.
  int64_t scored_begin() const {
    const SamplingParams& sampling = request.sampling;
    if (sampling.num_prompt_logprobs < 0) return prompt_len();
    return std::clamp<int64_t>(sampling.prompt_logprobs_begin, 1, prompt_len());
  }
  // Upper bound on the tokens that a cache may serve, of those known: the last one is computed, for
  // its logits, and so is each before a token to score, and each whose state is pooled.
  int64_t shareable_len() const {
    if (is_whole || (pools() && !NeedsLastTokenOnly(*request.extras->pooling))) return 0;
    const bool has_unscored = scored_len < prompt_len();
    return (has_unscored ? scored_len : static_cast<int64_t>(tokens.size())) - 1;
  }
  // The number of the next `count` tokens that have a successor to score.
  int32_t NumScored(int64_t count) const {
    const int64_t first = std::max(launched_len, scored_len - 1);
    const int64_t end = std::min(launched_len + count, prompt_len() - 1);
    return static_cast<int32_t>(std::max<int64_t>(end - first, 0));
  }
  bool pools() const { return request.extras != nullptr && request.extras->pooling.has_value(); }
  // The last token needs no KV, because no token follows it, except where its state is pooled.
  int64_t max_kv_len() const { return max_device_len() - (pools() ? 0 : 1); }
  int32_t max_pages(int32_t page_size) const {
    return static_cast<int32_t>(CeilDiv<int64_t>(max_kv_len(), page_size));
  }
  // Pages that admission promises it: for its longest length if that is guaranteed, else for its
  // prompt and one more.
  int64_t promised_pages(int32_t page_size) const {
    const int32_t longest = max_pages(page_size);
    if (is_guaranteed) return longest;
    return std::min<int64_t>(longest, CeilDiv<int64_t>(prefill_len, page_size) + 1);
  }
  // `length`, or where the input begins that attends both ways and that `length` would cut.
  int64_t BeforeInput(int64_t length) const {
    if (is_whole && length < prompt_len()) return 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const EncoderInput& input = request.extras->inputs[i];
      if (input.attends_both_ways && input.token < length && length < input.end()) {
        return input.token;
      }
    }
    return length;
  }
  // The least number of tokens that a step may compute of it from launched_len on: an input that
  // attends both ways is computed whole.
  int64_t LeastChunk() const {
    if (is_whole) return prompt_len() - launched_len;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const EncoderInput& input = request.extras->inputs[i];
      if (input.attends_both_ways && input.token == launched_len) return input.length;
    }
    return 1;
  }
  // The longest run of its tokens that one step computes; 1 if any chunk may end anywhere.
  int64_t longest_whole() const {
    int64_t longest = is_whole ? prompt_len() : 1;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const EncoderInput& input = request.extras->inputs[i];
      if (input.attends_both_ways) longest = std::max(longest, input.length);
    }
    return longest;
  }
  bool LacksMask() const { return awaited_mask >= 0 || drops_tokens; }
  // True if another step may be launched: a known or expected token has no KV yet, and the answer
  // continues after it. At most one token of an answer with a constraint is unknown: if the row
  // that samples after it is dropped, no later one is in flight.
  bool CanLaunchDecode() const {
    return phase == Phase::kDecode && device_len < max_device_len() && !LacksMask() &&
           (request.constraint == nullptr || in_flight < 2);
  }
};

}  // namespace minisgl::sched
