// A Drafter that knows the right answer and is sometimes wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "minisgl/sched/drafter.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {

class SimDrafter : public Drafter {
 public:
  // `marks_of` gives the marks of a request; null: none has any.
  using MarksOf = std::function<std::span<const KeyMark>(RequestId)>;
  SimDrafter(const DrafterPlan& plan, int64_t vocab, int64_t end_rate, MarksOf marks_of = nullptr)
      : plan_(plan), vocab_(vocab), end_rate_(end_rate), marks_of_(std::move(marks_of)) {}

  void Draft(RequestId id, std::span<const TokenId> tokens, int32_t count,
             std::vector<TokenId>* drafts) override {
    uint64_t prefix =
        PrefixWalk(marks_of_ ? marks_of_(id) : std::span<const KeyMark>()).PushAll(tokens);
    if (Percent(prefix, -3) < plan_.none_percent) return;
    const int64_t length = 1 + static_cast<int64_t>(Extend(prefix, -4) % uint64_t(count));
    for (int64_t i = 0; i < length; ++i) {
      const TokenId token = DraftAfter(plan_, prefix, vocab_, end_rate_);
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
  MarksOf marks_of_;
};

}  // namespace minisgl::sim
