#include "runtime/thought_budget.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/encode_after.h"

namespace minisgl::runtime {
namespace {

// States kept to go back to. Drafts of one row are fewer; more tokens are taken one by one again.
constexpr size_t kStatesMax = 256;
// Tokens past the bound, if each adds one byte to a character that it cuts.
constexpr int64_t kCharacterTokensMax = 3;

// The tokens of `message` and of the end of the thought after it.
std::vector<TokenId> EncodeClosing(const ThoughtMarks& marks, const std::string& message,
                                   const std::vector<TokenId>& close) {
  if (message.empty()) return close;
  const Tokenizer& tokenizer = marks.tokenizer();
  auto ids = EncodeAfter(tokenizer, tokenizer.eos_id(), {TextPiece{message, /*trusted=*/false}});
  if (!ids.ok()) return close;
  ids->insert(ids->end(), close.begin(), close.end());
  return *std::move(ids);
}

}  // namespace

ThoughtBudget::ThoughtBudget(std::shared_ptr<const ThoughtMarks> marks, bool starts_inside,
                             int64_t budget, const std::string& message, int64_t vocab_size,
                             std::shared_ptr<TokenConstraint> answer)
    : tracker_(std::move(marks), starts_inside),
      budget_(budget),
      vocab_size_(vocab_size),
      answer_(std::move(answer)),
      close_(tracker_.marks().TokensOf(tracker_.marks().end().wanted())) {
  with_message_ = EncodeClosing(tracker_.marks(), budget_ == 0 ? "" : message, close_);
}

bool ThoughtBudget::IsInCharacter() const {
  std::string tail;
  for (auto token = tokens_.rbegin(); token != tokens_.rend() && tail.size() < 4; ++token) {
    tail.insert(0, tracker_.marks().BytesOf(*token));
  }
  for (size_t size = std::min<size_t>(tail.size(), 3); size > 0; --size) {
    if (IsIncompleteUtf8(std::string_view(tail).substr(tail.size() - size))) return true;
  }
  return false;
}

bool ThoughtBudget::IsSpent() const {
  const int64_t num_tokens = tracker_.num_so_far();
  if (!tracker_.inside() || num_tokens < budget_) return false;
  if (tracker_.in_header() && tracker_.state().end == 0) return false;
  return num_tokens == 0 || tracker_.state().end > 0 ||
         num_tokens >= budget_ + kCharacterTokensMax || !IsInCharacter();
}

// A single token has no part that the model may have written.
const std::vector<TokenId>& ThoughtBudget::Closing() {
  const uint16_t begun = tracker_.state().end;
  if (begun == 0 || close_.size() <= 1) return state_.has_closed ? close_ : with_message_;
  const auto [place, is_new] = rest_.try_emplace(begun);
  if (is_new) {
    place->second = tracker_.marks().TokensOf(tracker_.marks().end().wanted().substr(begun));
  }
  return place->second.empty() ? close_ : place->second;
}

bool ThoughtBudget::MayFollow(TokenId token) {
  if (token < 0 || token >= vocab_size_) return false;
  if (answer_ == nullptr) return true;
  if (!answer_->Accept(token)) return false;
  answer_->RollBack(1);
  return true;
}

const std::vector<TokenId>* ThoughtBudget::ClosingNow() {
  if (close_.empty()) return nullptr;
  if (state_.closing != nullptr) return state_.closing;
  if (!IsSpent()) return nullptr;
  const std::vector<TokenId>& closing = Closing();
  return MayFollow(closing.front()) ? &closing : &close_;
}

std::optional<TokenId> ThoughtBudget::Forced() {
  const std::vector<TokenId>* const closing = ClosingNow();
  if (closing == nullptr) return std::nullopt;
  const TokenId token = (*closing)[state_.closing == nullptr ? 0 : state_.next];
  return MayFollow(token) ? std::optional(token) : std::nullopt;
}

MaskOutcome ThoughtBudget::FillMask(std::span<uint32_t> mask, int64_t* work_left) {
  if (const std::optional<TokenId> forced = Forced()) {
    mask[static_cast<size_t>(*forced) / 32] |= uint32_t{1} << (*forced % 32);
    return MaskOutcome::kMade;
  }
  if (answer_ != nullptr) return answer_->FillMask(mask, work_left);
  std::fill(mask.begin(), mask.end(), ~uint32_t{0});
  if (vocab_size_ % 32 != 0) mask.back() >>= 32 - vocab_size_ % 32;
  return MaskOutcome::kMade;
}

bool ThoughtBudget::Accept(TokenId token) {
  const std::vector<TokenId>* const closing = ClosingNow();
  const std::optional<TokenId> forced = Forced();
  if (forced && token != *forced) return false;
  if (answer_ != nullptr && !answer_->Accept(token)) return false;
  state_.thought = tracker_.state();
  before_.push_back(state_);
  if (before_.size() > kStatesMax) before_.pop_front();
  if (forced && state_.closing == nullptr) {
    state_.closing = closing;
    state_.next = 0;
  } else if (!forced && state_.closing != nullptr) {
    state_.closing = nullptr;  // the answer's constraint forbids the rest
    state_.has_closed = true;
  }
  Advance(token);
  return true;
}

void ThoughtBudget::Advance(TokenId token) {
  tokens_.push_back(token);
  tracker_.Push(token);
  if (state_.closing == nullptr || ++state_.next < state_.closing->size()) return;
  state_.closing = nullptr;
  state_.has_closed = true;
  tracker_.SetText();
}

void ThoughtBudget::RollBack(int64_t count) {
  MINISGL_CHECK(count <= std::ssize(tokens_), "{} of {} tokens are taken back", count,
                tokens_.size());
  if (count == 0) return;
  if (count <= std::ssize(before_)) {
    if (answer_ != nullptr) answer_->RollBack(count);
    before_.resize(before_.size() - static_cast<size_t>(count) + 1);
    state_ = before_.back();
    before_.pop_back();
    tracker_.set_state(state_.thought);
    tokens_.resize(tokens_.size() - static_cast<size_t>(count));
    return;
  }
  std::vector<TokenId> kept = std::exchange(tokens_, {});
  if (answer_ != nullptr) answer_->RollBack(std::ssize(kept));
  kept.resize(kept.size() - static_cast<size_t>(count));
  before_.clear();
  state_ = State();
  tracker_.set_state(tracker_.Begin());
  for (const TokenId token : kept) {
    MINISGL_CHECK(Accept(token), "token {} was allowed before", token);
  }
}

std::vector<TokenId> ThoughtBudget::ForcedTokens(int32_t count) {
  if (!Forced()) {
    return answer_ == nullptr ? std::vector<TokenId>() : answer_->ForcedTokens(count);
  }
  const std::vector<TokenId>& closing = *ClosingNow();
  std::vector<TokenId> forced(
      closing.begin() + static_cast<std::ptrdiff_t>(state_.closing == nullptr ? 0 : state_.next),
      closing.end());
  if (std::ssize(forced) > count) forced.resize(static_cast<size_t>(count));
  return forced;
}

bool ThoughtBudget::NeedsMask(int64_t ahead) {
  if (answer_ != nullptr) return true;
  if (ahead == 0) return Forced().has_value();
  return state_.closing != nullptr ||
         (tracker_.inside() && tracker_.num_so_far() + ahead >= budget_);
}

}  // namespace minisgl::runtime
