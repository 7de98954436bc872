// How much of one request is drafted: longer guesses where they are right, none for a while where
// they miss, so that drafting goes away by itself where it does not pay.
#pragma once

#include <algorithm>
#include <cstdint>

namespace minisgl::sched {

class DraftPacer {
 public:
  // Whether guesses are wanted once the answer has `answer_len` tokens.
  bool Wants(int64_t answer_len) const { return answer_len >= paused_until_; }
  // Tokens of the next guess, at most `max_drafts`.
  int32_t length(int32_t max_drafts) const { return std::min(length_, max_drafts); }

  // A step was planned with a guess wanted and none there.
  void CountNoGuess(int64_t answer_len) { Pay(-1, answer_len); }
  // A guess of `drafted` tokens was verified.
  void CountVerified(int32_t drafted, int32_t accepted, int64_t answer_len) {
    length_ = accepted == drafted ? std::min(2 * length_, kLengthMax) : accepted + 1;
    if (accepted > 0) pause_ = kPauseMin;
    Pay(kWorth * accepted - drafted, answer_len);
  }

 private:
  // A token verified costs a part of a step, a token accepted saves one: with a part of a quarter
  // both weigh the same.
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
