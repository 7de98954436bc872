// One step of the engine as flat integer arrays, built by the scheduler and immutable afterwards.
//
// Letters: R rows (one a request; decode rows first, then extending rows), T tokens (row by row,
// each row's tokens in position order). Any rows may sample, in any place: see `wants_token`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/plan/row_extras.h"
#include "minisgl/sampling_params.h"

namespace minisgl {

// Sets page-table entries [first, first + count) of `table_row` to pages[offset...].
struct PageTableWrite {
  int32_t table_row;
  int32_t first;
  int32_t count;
  int32_t offset;
};

// Sets positions [first, first + count) of `table_row` in the token pool to tokens[offset...]:
// known tokens (a prompt; after a preemption also the answer so far) or drafted ones.
struct TokenPoolWrite {
  int32_t table_row;
  int32_t first;
  int32_t count;
  int32_t offset;
};

// Layers with a state (recurrent layers, convolutions) run over the tokens of a row in segments,
// one after the other: the state is read from a slot, and the state after the last token is written
// to another. A slot holds the states of all such layers for one sequence at one position.
struct StateSegment {
  int32_t row;         // of the plan
  int32_t num_tokens;  // at least 1
  StateSlot read;      // kZeroState: the first segment of a sequence's first row
  StateSlot write;     // never `read`
};

struct BatchPlan {
  StepId step = 0;

  // Applied in order, before anything else of the step runs.
  std::vector<PageTableWrite> page_table_writes;
  std::vector<PageId> pages;  // indexed by PageTableWrite::offset
  // Parallel to `pages`; empty if the engine has no window pages. The window page of each page, or
  // num_window_pages (a dummy) for a hole. Entries of pages that a row's window has moved past are
  // not updated: windowed attention reads no entry before the page of its first key.
  std::vector<WindowPageId> window_pages;
  std::vector<TokenPoolWrite> token_pool_writes;
  std::vector<TokenId> tokens;  // indexed by TokenPoolWrite::offset

  // Over the T tokens. A token's id is token_pool[table_row of its row][position]: prompt ids and
  // drafts were written there by a TokenPoolWrite, answer ids by the step that sampled them, so a
  // plan never carries a sampled value.
  std::vector<int32_t> positions;     // [T]
  std::vector<int64_t> slots;         // [T] where K and V are written: page * page_size + offset
  std::vector<int64_t> window_slots;  // [T] the same by window page; empty if there are none

  // Over the R rows.
  std::vector<int32_t> table_row;  // [R] row of the page table and token pool; without duplicates
  std::vector<int32_t> row_begin;  // [R + 1] first token of each row; row_begin[R] == T
  std::vector<int32_t> kv_len;  // [R] keys that the row's last token attends to, its own included
  // [R] 1: sample after the row's last token and write the id at position kv_len of the token pool.
  // With drafts: see num_drafts.
  std::vector<uint8_t> wants_token;
  // [R] d: the row's last d tokens are drafts that this step verifies. 0 if it wants no token;
  // extend_len >= 1 + d; the sum over rows is at most max_step_drafts. Tokens s[0..d] are sampled,
  // s[i] after the token at position kv_len - 1 - d + i, with the history that ends there. The
  // draft at position kv_len - d + i is accepted if it equals s[i] and all drafts before it were
  // accepted. With a drafts accepted, s[0..a] are the row's result and stand at positions
  // kv_len - d ... of the token pool. Token pool and KV past them hold stale data, which is
  // overwritten before it is read.
  std::vector<int32_t> num_drafts;
  // [R], or empty if all are 0. 1: the engine's own drafter chooses the row's drafts, before its
  // layers run, and writes them over those of the plan's TokenPoolWrite. REQUIRES drafts, one more
  // token, and an engine that makes drafts. Its drafter reads the tokens of the HiddenSpans of
  // `extras`, which cover whole rows.
  std::vector<uint8_t> makes_drafts;
  // [R], or empty if all are 0. k: log-probabilities of k known tokens of the prompt are wanted:
  // those that follow the row's last k tokens, or the k before its last one if the row wants a
  // token. A row has drafts or these, never both.
  std::vector<int32_t> num_scored;
  std::vector<TokenId> scored_ids;  // [sum of num_scored] those tokens, row by row
  // [R], or empty if all are 0. 1: each place of the row chooses among the tokens of a mask, which
  // the engine gets after the launch (Engine::SupplyMasks). 0 if it wants no token.
  std::vector<uint8_t> is_masked;
  // Row by row; the segments of a row cover its tokens in order, and each after the row's first
  // reads the slot that the one before it wrote. Empty if the model has no layers with a state. No
  // slot is written twice in a step, and none is read by one row and written by another.
  std::vector<StateSegment> state_segments;
  // What rows bring beside token ids, and want beside tokens and scores.
  PlanExtras extras;
  // [R] position where the answer begins: for penalties, and for the index of a random number.
  std::vector<int32_t> prompt_len;
  // [R] owned by the requests, alive until the step is collected.
  std::vector<const SamplingParams*> sampling;

  int num_rows() const { return static_cast<int>(table_row.size()); }
  int num_tokens() const { return static_cast<int>(positions.size()); }
  int extend_len(int row) const { return row_begin[row + 1] - row_begin[row]; }
  int scored_len(int row) const { return num_scored.empty() ? 0 : num_scored[row]; }
  bool masked(int row) const { return !is_masked.empty() && is_masked[row] != 0; }
  // True if the engine must get masks for it.
  bool has_masks() const { return !is_masked.empty(); }
  // True if the engine makes the drafts of row `row`, and of a row with a mask.
  bool makes_drafts_of(int row) const {
    return !makes_drafts.empty() && makes_drafts[static_cast<size_t>(row)] != 0;
  }
  bool guides_drafts() const {
    for (int row = 0; row < num_rows(); ++row) {
      if (masked(row) && makes_drafts_of(row)) return true;
    }
    return false;
  }

  std::string ToJson() const;
};

// Words of a mask over `vocab_size` tokens.
constexpr int64_t MaskWords(int64_t vocab_size) { return (vocab_size + 31) / 32; }

// The tokens among which the masked rows of one step choose.
struct StepMasks {
  // [places of masked rows][MaskWords(V)], row by row: 1 + num_drafts places each. Token t may be
  // chosen if bit t % 32 of word t / 32 is set. Bits past the vocabulary are 0.
  std::vector<uint32_t> words;
};

}  // namespace minisgl
