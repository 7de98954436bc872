#include "sched/constrained_rows.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl::sched {
namespace {

// Longer runs of forced tokens are verified in several steps.
constexpr int32_t kForcedTokensMax = 32;

bool IsStop(const RequestState& state, TokenId token) {
  const std::vector<TokenId>& stops = state.request.stop_ids;
  return std::binary_search(stops.begin(), stops.end(), token);
}

bool IsEmpty(std::span<const uint32_t> mask) {
  return std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; });
}

// Takes the banned tokens out of `mask`, unless that would leave none: the grammar wins.
void BanUntilMin(const SamplingParams& sampling, std::span<uint32_t> mask) {
  std::vector<TokenId> removed;
  for (const TokenId id : sampling.banned_until_min) {
    const auto word = static_cast<size_t>(id) / 32;
    const uint32_t bit = uint32_t{1} << (id % 32);
    if (id < 0 || word >= mask.size() || (mask[word] & bit) == 0) continue;
    mask[word] &= ~bit;
    removed.push_back(id);
  }
  if (removed.empty() || !IsEmpty(mask)) return;
  for (const TokenId id : removed) mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

// The next mask of `masks`, all 0.
std::span<uint32_t> AddMask(int64_t vocab_size, StepMasks* masks) {
  const auto num_words = static_cast<size_t>(MaskWords(vocab_size));
  masks->words.resize(masks->words.size() + num_words);
  return std::span(masks->words).last(num_words);
}

}  // namespace

int32_t AppendMasks(const RequestState& state, std::span<const TokenId> drafts, int64_t vocab_size,
                    int64_t* work_left, StepMasks* masks) {
  TokenConstraint& constraint = *state.request.constraint;
  const SamplingParams& sampling = state.request.sampling;
  const auto num_drafts = static_cast<int32_t>(drafts.size());
  const size_t words_before = masks->words.size();
  int32_t place = 0;
  for (; place <= num_drafts; ++place) {
    const std::span<uint32_t> mask = AddMask(vocab_size, masks);
    if (constraint.FillMask(mask, work_left) == MaskOutcome::kLater) break;
    if (state.answer_len() + place < sampling.min_tokens) BanUntilMin(sampling, mask);
    if (place == num_drafts) continue;
    MINISGL_CHECK(constraint.Accept(drafts[static_cast<size_t>(place)]),
                  "draft {} of request {} is not allowed", place, state.request.id);
  }
  constraint.RollBack(std::min(place, num_drafts));
  if (place <= num_drafts) {
    masks->words.resize(words_before +
                        static_cast<size_t>(place) * static_cast<size_t>(MaskWords(vocab_size)));
    AppendFullMasks(1 + num_drafts - place, vocab_size, masks);
  }
  return place;
}

void AppendFullMasks(int64_t num_places, int64_t vocab_size, StepMasks* masks) {
  for (int64_t place = 0; place < num_places; ++place) {
    const std::span<uint32_t> mask = AddMask(vocab_size, masks);
    std::fill(mask.begin(), mask.end(), ~uint32_t{0});
    if (vocab_size % 32 != 0) mask.back() >>= 32 - vocab_size % 32;
  }
}

void CutDrafts(const RequestState& state, std::vector<TokenId>* drafts) {
  TokenConstraint& constraint = *state.request.constraint;
  size_t accepted = 0;
  while (accepted < drafts->size() && !constraint.MustEnd() &&
         !IsStop(state, (*drafts)[accepted]) && constraint.Accept((*drafts)[accepted])) {
    ++accepted;
  }
  // A place after the whole answer would have nothing to choose.
  const bool at_end = accepted > 0 && constraint.MustEnd();
  constraint.RollBack(static_cast<int64_t>(accepted));
  drafts->resize(at_end ? accepted - 1 : accepted);
}

bool NeedsMasks(const RequestState& state, int64_t known_len, std::span<const TokenId> drafts) {
  if (state.request.constraint == nullptr) return false;
  TokenConstraint& constraint = *state.request.constraint;
  const int64_t ahead = known_len - static_cast<int64_t>(state.tokens.size());
  bool needs = constraint.NeedsMask(ahead);
  int64_t accepted = 0;
  for (const TokenId draft : drafts) {
    if (needs) break;
    MINISGL_CHECK(ahead == 0 && constraint.Accept(draft), "draft {} of request {} is not allowed",
                  accepted, state.request.id);
    ++accepted;
    needs = constraint.NeedsMask(0);
  }
  constraint.RollBack(accepted);
  return needs;
}

const std::vector<TokenId>& ForcedTokens(RequestState* state) {
  const auto len = static_cast<int64_t>(state->tokens.size());
  if (state->forced_at != len && state->request.constraint != nullptr) {
    state->forced_at = len;
    state->forced = state->request.constraint->ForcedTokens(kForcedTokensMax);
  }
  return state->forced;
}

}  // namespace minisgl::sched
