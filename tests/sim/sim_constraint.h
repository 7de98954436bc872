// A toy grammar: which tokens may follow is a hash of the answer so far. Some places allow one
// token alone, some an end, some nothing but the end, and in some grammars a few allow nothing at
// all. In others most places allow everything, and need no mask.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/sched/scheduler.h"
#include "minisgl/token_constraint.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {

struct SimGrammar {
  uint64_t seed = 0;
  bool gets_stuck = false;
  int64_t vocab_size = 0;
  bool has_end = false;   // token 0 ends an answer
  int64_t late_rate = 0;  // one mask in so many comes later; 0: none
  bool is_free = false;   // most places allow every token, an end among them
};

// Masks that come later, each so many steps after it was asked for. What is ready stays so.
class SimMaskMaker {
 public:
  // True if it is ready. If it is not, the first call asks for it.
  bool IsReady(RequestId id, uint64_t place, uint64_t delay) {
    const auto [found, is_new] = due_.try_emplace({id, place}, now_ + static_cast<int64_t>(delay));
    // Again only after it was said to be ready, which may be for another place, or a preemption.
    const int64_t asked = ++asked_[{id, place}];
    if (asked > kPreemptionsMax + 2 + num_told_[id])
      violation_ = "a mask is asked for again and again";
    if (is_healed_) found->second = std::min(found->second, now_);
    return !is_new && told_.contains({id, place});
  }
  void Tick() { ++now_; }
  // The requests with masks that became ready; some are told of twice.
  std::vector<RequestId> TakeReady() {
    std::vector<RequestId> ready;
    for (auto& [key, due] : due_) {
      if ((due > now_ && !is_healed_) || told_.contains(key)) continue;
      told_.insert(key);
      ++num_told_[key.first];
      ready.push_back(key.first);
      if (key.second % 4 == 0) ready.push_back(key.first);
    }
    return ready;
  }
  // From here on every mask is ready in the next step.
  void Heal() { is_healed_ = true; }
  const std::string& violation() const { return violation_; }

 private:
  using Key = std::pair<RequestId, uint64_t>;
  std::map<Key, int64_t> due_;
  std::set<Key> told_;
  std::map<Key, int64_t> asked_;
  std::map<RequestId, int64_t> num_told_;
  std::string violation_;
  int64_t now_ = 0;
  bool is_healed_ = false;
};

class SimConstraint final : public TokenConstraint {
 public:
  // Without a `maker` no mask comes later.
  explicit SimConstraint(const SimGrammar& grammar, RequestId id = 0, SimMaskMaker* maker = nullptr)
      : grammar_(grammar), hashes_{grammar.seed}, id_(id), maker_(maker) {}

  bool Allows(TokenId token) const {
    if (IsFree()) return true;
    if (IsStuck() || MustEnd()) return token == 0 && grammar_.has_end && MustEnd() && !ended_;
    if (token == 0) return grammar_.has_end && MayEnd();
    if (token == OneToken()) return true;
    return !IsForced() && (Extend(Hash(), token) >> 5) % 2 == 0;
  }

  MaskOutcome FillMask(std::span<uint32_t> mask, int64_t* work_left) override {
    if (ComesLater(*work_left)) {
      mask[0] = ~0U;  // what is there is not looked at
      return MaskOutcome::kLater;
    }
    bool any = false;
    for (TokenId token = 0; token < grammar_.vocab_size; ++token) {
      if (!Allows(token)) continue;
      mask[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
      any = true;
    }
    return any ? MaskOutcome::kMade : MaskOutcome::kNone;
  }
  bool Accept(TokenId token) override {
    if (ended_ || !Allows(token)) return false;
    ended_ = token == 0 && grammar_.has_end;
    hashes_.push_back(Extend(Hash(), token));
    return true;
  }
  void RollBack(int64_t count) override {
    if (count == 0) return;
    hashes_.resize(hashes_.size() - static_cast<size_t>(count));
    ended_ = false;
  }
  bool MayEnd() const override { return MustEnd() || IsFree() || Hash() % 5 == 1; }
  bool MustEnd() const override {
    return ended_ || (!IsFree() && hashes_.size() > 1 && Hash() % 40 == 0);
  }
  // A guess is often wrong, both ways.
  bool NeedsMask(int64_t ahead) override {
    return !grammar_.is_free ||
           (ahead == 0 ? !IsFree() : Extend(Hash(), static_cast<TokenId>(ahead)) % 4 == 0);
  }
  // Sometimes a guess that is wrong from some token on.
  std::vector<TokenId> ForcedTokens(int32_t count) override {
    std::vector<TokenId> forced;
    SimConstraint next = *this;
    while (static_cast<int32_t>(forced.size()) < count && next.IsForced()) {
      const TokenId token = next.OneToken();
      forced.push_back(next.Hash() % 7 == 0 ? 1 + token % static_cast<TokenId>(Others()) : token);
      if (!next.Accept(token)) break;
    }
    return forced;
  }
  bool IsStuck() const {
    return grammar_.gets_stuck && Hash() % 30 == 7 && !MustEnd() && !IsFree();
  }

 private:
  uint64_t Hash() const { return hashes_.back(); }
  bool IsFree() const { return grammar_.is_free && !ended_ && (Hash() >> 3) % 4 != 0; }
  int64_t Others() const { return grammar_.vocab_size - 1; }
  TokenId OneToken() const {
    return static_cast<TokenId>(1 + (Hash() >> 8) % static_cast<uint64_t>(Others()));
  }
  bool ComesLater(int64_t work_left) const {
    if (maker_ == nullptr || grammar_.late_rate == 0 || work_left == INT64_MAX) return false;
    const uint64_t dice = Extend(Hash(), 7919) >> 7;
    return dice % static_cast<uint64_t>(grammar_.late_rate) == 0 &&
           !maker_->IsReady(id_, Hash(), dice / 64 % 40);
  }
  bool IsForced() const { return Hash() % 3 == 0 && !MayEnd() && !IsStuck(); }

  SimGrammar grammar_;
  std::vector<uint64_t> hashes_;  // after each token
  bool ended_ = false;
  RequestId id_;
  SimMaskMaker* maker_;
};

}  // namespace minisgl::sim
