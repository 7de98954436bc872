// Requests with a TokenConstraint: the masks of their rows, and drafts that respect it.
//
// A request's constraint is the state after the tokens that were collected. The functions here go
// on from it through the drafts of one row and come back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/batch_plan.h"
#include "sched/request_state.h"

namespace minisgl::sched {

// Work on the masks of one step, as TokenConstraint::FillMask counts it: a few milliseconds. A row
// whose mask takes more is left out of later steps until the mask is made.
inline constexpr int64_t kStepMaskWork = 20'000;

// Appends the masks of a row of `state`: of the place after its known tokens, and of one after each
// of `drafts`. Before min_tokens tokens an end is left out where the answer can go on. A mask is
// all 0 if no token may follow. REQUIRES that all tokens before the drafts are collected, and
// drafts that CutDrafts leaves as they are.
// Returns how many of the places have their mask. At the others, if their masks come later, all
// tokens may follow, and what is sampled there is to be dropped.
int32_t AppendMasks(const RequestState& state, std::span<const TokenId> drafts, int64_t vocab_size,
                    int64_t* work_left, StepMasks* masks);

// The same for a row whose tokens are not wanted any more: all tokens may follow.
void AppendFullMasks(int64_t num_places, int64_t vocab_size, StepMasks* masks);

// Removes the first draft that the constraint of `state` does not allow, or that may end the
// answer, and all drafts after it.
void CutDrafts(const RequestState& state, std::vector<TokenId>* drafts);

// True if a row of `state` must have masks: at a place after its first `known_len` tokens, of which
// the last ones may be in flight, or after any of `drafts`. A guess if some are in flight.
bool NeedsMasks(const RequestState& state, int64_t known_len, std::span<const TokenId> drafts);

// The tokens that must follow the collected ones as far as their constraint tells; remembered until
// more are collected. Empty without a constraint.
const std::vector<TokenId>& ForcedTokens(RequestState* state);

}  // namespace minisgl::sched
