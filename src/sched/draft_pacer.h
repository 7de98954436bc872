// Decides how much of one request is drafted: longer drafts after accepted ones, none for a while
// after rejected ones. Drafting stops by itself if it does not pay.
#pragma once

#include <algorithm>
#include <cstdint>

namespace minisgl::sched {

class DraftPacer {
 public:
  // True if drafts are wanted for an answer of `answer_len` tokens so far.
  bool Wants(int64_t answer_len) const { return answer_len >= paused_until_; }
  // Tokens of the next draft, at most `max_drafts`.
  int32_t length(int32_t max_drafts) const { return std::min(length_, max_drafts); }

  // A draft was wanted, and the drafter had none.
  void CountNoGuess(int64_t answer_len) { Pay(-1, answer_len); }
  // A draft of `drafted` tokens was verified.
  void CountVerified(int32_t drafted, int32_t accepted, int64_t answer_len) {
    length_ = accepted == drafted ? std::min(2 * length_, kLengthMax) : accepted + 1;
    if (accepted > 0) pause_ = kPauseMin;
    Pay(kWorth * accepted - drafted, answer_len);
  }

 private:
  // Worth of an accepted token, which saves a step, in verified tokens, each of which costs about a
  // quarter of a step.
  static constexpr int32_t kWorth = 4;
  static constexpr int32_t kCreditStart = 16;
  static constexpr int32_t kCreditMax = 32;
  static constexpr int32_t kLengthMax = 64;
  static constexpr int64_t kPauseMin = 32, kPauseMax = 1024;  // tokens

  void Pay(int32_t gain, int64_t answer_len) {
    credit_ = std::min(credit_ + gain, kCreditMax);
    if (credit_ > 0) return;
    paused_until_ = answer_len + pause_;
    pause_ = std::min(2 * pause_, kPauseMax);
    credit_ = kCreditStart / 2;
    length_ = 2;
  }

  int32_t length_ = 2;
  int32_t credit_ = kCreditStart;
  int64_t pause_ = kPauseMin;
  int64_t paused_until_ = 0;
};

}  // namespace minisgl::sched
