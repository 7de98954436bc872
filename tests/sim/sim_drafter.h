// A Drafter that knows the right answer and is sometimes wrong.
#pragma once

#include <cstdint>

#include "minisgl/sched/drafter.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {

struct DrafterPlan {
  int64_t right_percent = 80;  // of the tokens it drafts
  int64_t none_percent = 20;   // of its calls
};

class SimDrafter : public Drafter {
 public:
  SimDrafter(const DrafterPlan& plan, int64_t vocab, int64_t end_rate)
      : plan_(plan), vocab_(vocab), end_rate_(end_rate) {}

  void Draft(RequestId id, std::span<const TokenId> tokens, int32_t count,
             std::vector<TokenId>* drafts) override {
    static_cast<void>(id);
    uint64_t prefix = 1;
    for (TokenId token : tokens) prefix = Extend(prefix, token);
    if (Percent(prefix, -3) < plan_.none_percent) return;
    const int64_t length = 1 + static_cast<int64_t>(Extend(prefix, -4) % uint64_t(count));
    for (int64_t i = 0; i < length; ++i) {
      TokenId token = NextToken(prefix, vocab_, end_rate_);
      if (Percent(prefix, -5) >= plan_.right_percent) {
        token = static_cast<TokenId>((token + 1) % vocab_);
      }
      drafts->push_back(token);
      prefix = Extend(prefix, token);
    }
  }
  void Forget(RequestId) override {}

 private:
  static int64_t Percent(uint64_t prefix, TokenId salt) {
    return static_cast<int64_t>(Extend(prefix, salt) % 100);
  }

  DrafterPlan plan_;
  int64_t vocab_, end_rate_;
};

}  // namespace minisgl::sim
