// A toy grammar: which tokens may follow is a hash of the answer so far. Some places allow one
// token alone, some an end, some nothing but the end, and in some grammars a few allow nothing at
// all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/token_constraint.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {

struct SimGrammar {
  uint64_t seed = 0;
  bool gets_stuck = false;
  int64_t vocab_size = 0;
  bool has_end = false;  // token 0 ends an answer
};

class SimConstraint final : public TokenConstraint {
 public:
  explicit SimConstraint(const SimGrammar& grammar) : grammar_(grammar), hashes_{grammar.seed} {}

  bool Allows(TokenId token) const {
    if (IsStuck() || MustEnd()) return token == 0 && grammar_.has_end && MustEnd() && !ended_;
    if (token == 0) return grammar_.has_end && MayEnd();
    if (token == OneToken()) return true;
    return !IsForced() && (Extend(Hash(), token) >> 5) % 2 == 0;
  }

  bool FillMask(std::span<uint32_t> mask) override {
    bool any = false;
    for (TokenId token = 0; token < grammar_.vocab_size; ++token) {
      if (!Allows(token)) continue;
      mask[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
      any = true;
    }
    return any;
  }
  bool Accept(TokenId token) override {
    if (ended_ || !Allows(token)) return false;
    ended_ = token == 0;
    hashes_.push_back(Extend(Hash(), token));
    return true;
  }
  void RollBack(int64_t count) override {
    if (count == 0) return;
    hashes_.resize(hashes_.size() - static_cast<size_t>(count));
    ended_ = false;
  }
  bool MayEnd() const override { return MustEnd() || Hash() % 5 == 1; }
  bool MustEnd() const override { return ended_ || (hashes_.size() > 1 && Hash() % 40 == 0); }
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
  bool IsStuck() const { return grammar_.gets_stuck && Hash() % 30 == 7 && !MustEnd(); }

 private:
  uint64_t Hash() const { return hashes_.back(); }
  int64_t Others() const { return grammar_.vocab_size - 1; }
  TokenId OneToken() const {
    return static_cast<TokenId>(1 + (Hash() >> 8) % static_cast<uint64_t>(Others()));
  }
  bool IsForced() const { return Hash() % 3 == 0 && !MayEnd() && !IsStuck(); }

  SimGrammar grammar_;
  std::vector<uint64_t> hashes_;  // after each token
  bool ended_ = false;
};

}  // namespace minisgl::sim
