// One step of the engine as flat integer arrays: built once by the scheduler, then immutable.
//
// Letters: R rows (one a request, decode rows first, then extending rows), T tokens (rows in order,
// each row's tokens in position order). Rows that sample come in any place; `wants_token` says
// which.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

// How the next token of one row is chosen. Plain data; a neutral value turns a field off.
// Order (as the field applies it): bias, penalties, temperature, then top-k, top-p, min-p, then the
// draw.
struct SamplingParams {
  double temperature = 0.0;         // 0: greedy (ties: the lowest id)
  int32_t top_k = 0;                // 0: all
  double top_p = 1.0;               // (0, 1]
  double min_p = 0.0;               // [0, 1]: keep p >= min_p * p_max
  double repetition_penalty = 1.0;  // > 0: over prompt and answer (l > 0: l / r, else l * r)
  double presence_penalty = 0.0;    // over the answer
  double frequency_penalty = 0.0;   // over the answer, times the count
  uint64_t seed = 0;                // with the token's index gives its random number
  std::vector<std::pair<TokenId, float>> logit_bias;
  int32_t num_logprobs = -1;  // -1: none; 0: the chosen token's; n: and the n most likely tokens'
  int32_t min_tokens = 0;     // until then `banned_until_min` cannot be chosen
  std::vector<TokenId> banned_until_min;

  bool UsesPenalties() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
};

// `count` page-table entries of `table_row`, from page index `first` on, become pages[offset...].
struct PageTableWrite {
  int32_t table_row;
  int32_t first;
  int32_t count;
  int32_t offset;
};

// Known tokens (a prompt; after a preemption the answer so far too) or drafted ones put into the
// token pool: positions [first, first + count) of `table_row` become tokens[offset...].
struct TokenPoolWrite {
  int32_t table_row;
  int32_t first;
  int32_t count;
  int32_t offset;
};

struct BatchPlan {
  StepId step = 0;

  // Applied first, in order, before anything of the step runs.
  std::vector<PageTableWrite> page_table_writes;
  std::vector<PageId> pages;  // what page_table_writes refer to
  // Beside `pages`, where there are window pages: the window page of each, num_window_pages (a
  // dummy) for a hole. What stands in the table for a page that a row's window has moved past is
  // not kept up: attention with a window reads no table entry before the page of its first key.
  std::vector<WindowPageId> window_pages;
  std::vector<TokenPoolWrite> token_pool_writes;
  std::vector<TokenId> tokens;  // what token_pool_writes refer to

  // Over the T tokens. A token's id is token_pool[table_row of its row][position]: prompt ids and
  // drafts were put there by a TokenPoolWrite, an answer's by the step that sampled them, so no
  // plan carries a sampled value.
  std::vector<int32_t> positions;     // [T]
  std::vector<int64_t> slots;         // [T] where K and V are written: page * page_size + offset
  std::vector<int64_t> window_slots;  // [T] the same by window page, where there are any

  // Over the R rows.
  std::vector<int32_t> table_row;  // [R] row of the page table and the token pool; never twice
  std::vector<int32_t> row_begin;  // [R + 1] first token of each row; row_begin[R] == T
  std::vector<int32_t> kv_len;     // [R] keys that the row's last token attends to, itself included
  // [R] 1: sample after the row's last token, and put the id at kv_len. With drafts: see below.
  std::vector<uint8_t> wants_token;
  // [R] d: the row's last d tokens are guesses that this step verifies (0 where it wants no token;
  // extend_len >= 1 + d; the sum over rows is at most max_step_drafts). Tokens s[0..d] are sampled,
  // s[i] after the token at position kv_len - 1 - d + i and with the history that ends there; the
  // draft at position kv_len - d + i is accepted where it equals s[i] and all before it were. With
  // a drafts accepted, s[0..a] are the row's result and stand at positions kv_len - d ... of the
  // token pool; what is in the pool and in KV past them is not read before it is written again.
  std::vector<int32_t> num_drafts;
  // [R] where the answer begins: for penalties, and the index of a token's random number.
  std::vector<int32_t> prompt_len;
  // [R] owned by the request, alive until the step is collected.
  std::vector<const SamplingParams*> sampling;

  int num_rows() const { return static_cast<int>(table_row.size()); }
  int num_tokens() const { return static_cast<int>(positions.size()); }
  int extend_len(int row) const { return row_begin[row + 1] - row_begin[row]; }

  std::string ToJson() const;
};

struct TokenLogprob {
  TokenId id;
  float logprob;
};

// What one row of a step gave. Rows that wanted no token have token == -1.
//
// A row with drafts gives 1 + accepted results: the first here, the others in `more` (whose own
// `more` are empty). Where one has the outcome kNonFinite it is the last.
struct RowResult {
  enum class Outcome : uint8_t { kNone, kToken, kNonFinite };
  Outcome outcome = Outcome::kNone;
  TokenId token = -1;
  float logprob = 0;  // of `token` in the raw distribution, where asked for
  // Most likely first (ties: the lower id), where asked for.
  std::vector<TokenLogprob> top_logprobs;
  std::vector<RowResult> more;
};

}  // namespace minisgl
