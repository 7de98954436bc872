#include "runtime/token_limits.h"

#include <algorithm>
#include <utility>

#include "minisgl/batch_plan.h"
#include "runtime/thought_budget.h"

namespace minisgl::runtime {
namespace {

bool Has(std::span<const uint32_t> mask, TokenId token) {
  const auto word = static_cast<size_t>(token) / 32;
  return token >= 0 && word < mask.size() && (mask[word] >> (token % 32) & 1) != 0;
}

void Clear(std::span<uint32_t> mask, TokenId token) {
  if (Has(mask, token)) mask[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
}

bool IsEmpty(std::span<const uint32_t> mask) {
  return std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; });
}

void FillAll(std::span<uint32_t> mask, int64_t vocab_size) {
  std::fill(mask.begin(), mask.end(), ~uint32_t{0});
  if (vocab_size % 32 != 0) mask.back() >>= 32 - vocab_size % 32;
}

}  // namespace

std::shared_ptr<const TokenLimits> TokenLimits::Of(const Prompt& prompt, int64_t vocab_size) {
  if (prompt.allowed_token_ids.empty() && prompt.banned_sequences.empty()) return nullptr;
  if (prompt.max_tokens == 0) return nullptr;
  return std::shared_ptr<const TokenLimits>(new TokenLimits(prompt, vocab_size));
}

TokenLimits::TokenLimits(const Prompt& prompt, int64_t vocab_size)
    : vocab_size_(vocab_size), banned_(prompt.banned_sequences) {
  if (prompt.allowed_token_ids.empty()) return;
  allowed_.resize(static_cast<size_t>(MaskWords(vocab_size)));
  for (const TokenId id : prompt.allowed_token_ids) {
    if (id < 0 || id >= vocab_size) continue;
    allowed_[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
  }
}

std::vector<TokenId> TokenLimits::Completing(std::span<const TokenId> answer) const {
  std::vector<TokenId> completing;
  for (const std::vector<TokenId>& sequence : banned_) {
    const size_t before = sequence.size() - 1;
    if (before > answer.size()) continue;
    const auto end = answer.last(before);
    if (std::equal(end.begin(), end.end(), sequence.begin())) completing.push_back(sequence.back());
  }
  return completing;
}

bool TokenLimits::Allows(std::span<const TokenId> answer, TokenId token) const {
  if (!allowed_.empty() && !Has(allowed_, token)) return false;
  const std::vector<TokenId> completing = Completing(answer);
  return std::find(completing.begin(), completing.end(), token) == completing.end();
}

bool TokenLimits::Cut(std::span<const TokenId> answer, std::span<uint32_t> mask) const {
  for (size_t word = 0; word < allowed_.size(); ++word) mask[word] &= allowed_[word];
  for (const TokenId token : Completing(answer)) Clear(mask, token);
  return !IsEmpty(mask);
}

bool TokenLimits::LeavesNone(std::span<const TokenId> answer) const {
  if (allowed_.empty()) return false;
  std::vector<uint32_t> mask = allowed_;
  return !Cut(answer, mask);
}

LimitedConstraint::LimitedConstraint(std::shared_ptr<const TokenLimits> limits,
                                     std::shared_ptr<TokenConstraint> inner,
                                     ThoughtBudget* thoughts)
    : limits_(std::move(limits)), inner_(std::move(inner)), thoughts_(thoughts) {}

bool LimitedConstraint::IsForced() const { return thoughts_ != nullptr && thoughts_->forces(); }

MaskOutcome LimitedConstraint::FillMask(std::span<uint32_t> mask, int64_t* work_left) {
  if (inner_ == nullptr) {
    FillAll(mask, limits_->vocab_size());
  } else if (const MaskOutcome outcome = inner_->FillMask(mask, work_left);
             outcome != MaskOutcome::kMade) {
    return outcome;
  }
  if (IsForced()) return MaskOutcome::kMade;
  return limits_->Cut(answer_, mask) ? MaskOutcome::kMade : MaskOutcome::kNone;
}

bool LimitedConstraint::Accept(TokenId token) {
  if (!IsForced() && !limits_->Allows(answer_, token)) return false;
  if (inner_ != nullptr && !inner_->Accept(token)) return false;
  answer_.push_back(token);
  return true;
}

void LimitedConstraint::RollBack(int64_t count) {
  if (inner_ != nullptr) inner_->RollBack(count);
  answer_.resize(answer_.size() - static_cast<size_t>(count));
}

bool LimitedConstraint::MayEnd() const { return inner_ == nullptr || inner_->MayEnd(); }

bool LimitedConstraint::MustEnd() const {
  return inner_ == nullptr ? limits_->LeavesNone(answer_) : inner_->MustEnd();
}

// The first of them that the limits do not allow, and those after it, are left out.
std::vector<TokenId> LimitedConstraint::ForcedTokens(int32_t count) {
  if (inner_ == nullptr) return {};
  std::vector<TokenId> forced = inner_->ForcedTokens(count);
  if (IsForced()) return forced;
  std::vector<TokenId> answer = answer_;
  size_t allowed = 0;
  while (allowed < forced.size() && limits_->Allows(answer, forced[allowed])) {
    answer.push_back(forced[allowed++]);
  }
  forced.resize(allowed);
  return forced;
}

std::shared_ptr<TokenConstraint> WithLimits(std::shared_ptr<const TokenLimits> limits,
                                            std::shared_ptr<TokenConstraint> constraint,
                                            ThoughtBudget* thoughts) {
  if (limits == nullptr) return constraint;
  return std::make_shared<LimitedConstraint>(std::move(limits), std::move(constraint), thoughts);
}

}  // namespace minisgl::runtime
