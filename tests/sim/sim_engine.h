// An engine without a model.
//
// Each slot of its KV stores a hash of the whole prefix for which it was written, with its marks.
// A step that reads a slot without the expected prefix fails the test. The next token is a hash of
// the prefix, so the right answer of every request is known under every schedule.
//
// Steps take effect at Launch, in order, as on a stream; results wait for Collect. If a scheduler
// frees a page too early, a later step overwrites it, and that is found.
//
// Each of its state slots stores the hash of the prefix whose state it holds.
//
// With window pages it has layers of both kinds: a row writes both, reads all earlier positions in
// its pages, and the positions within its tokens' windows in its window pages.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/prefix_key.h"
#include "minisgl/engine/engine.h"

namespace minisgl::sim {

// Returns the hash of a prefix with one more word.
inline uint64_t ExtendBy(uint64_t prefix, uint64_t word) {
  uint64_t hash = prefix + 0x9E3779B97F4A7C15ull + word;
  hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
  return hash ^ hash >> 31;
}

// Returns the hash of a prefix with one more token.
inline uint64_t Extend(uint64_t prefix, TokenId token) {
  return ExtendBy(prefix, static_cast<uint32_t>(token));
}

// The prefixes of a sequence with marks, one token after the other. What `marks` views outlives it.
class PrefixWalk {
 public:
  explicit PrefixWalk(std::span<const KeyMark> marks = {}) : marks_(marks) {}
  // Goes on from the prefix of `position` tokens.
  PrefixWalk(uint64_t prefix, int64_t position, std::span<const KeyMark> marks)
      : prefix_(prefix), position_(position), marks_(marks) {}

  // Returns the hash of the prefix with one more token, and with the marks at its place.
  uint64_t Push(TokenId token) {
    for (; !marks_.empty() && marks_.front().place == position_; marks_ = marks_.subspan(1)) {
      prefix_ = ExtendBy(prefix_, uint64_t{1} << 32);  // no token
      for (const uint64_t word : marks_.front().hash) prefix_ = ExtendBy(prefix_, word);
    }
    ++position_;
    return prefix_ = Extend(prefix_, token);
  }
  // The same for all tokens of a key.
  uint64_t PushAll(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) Push(token);
    return prefix_;
  }
  uint64_t prefix() const { return prefix_; }

 private:
  uint64_t prefix_ = 1;  // of no token
  int64_t position_ = 0;
  std::span<const KeyMark> marks_;
};

// Returns the token that follows a prefix: 0 (the end token) about once in `end_rate`, else one of
// [1, vocab).
inline TokenId NextToken(uint64_t prefix, int64_t vocab, int64_t end_rate) {
  const uint64_t draw = Extend(prefix, -7);
  if (end_rate > 0 && draw % static_cast<uint64_t>(end_rate) == 0) return 0;
  return static_cast<TokenId>(1 + (draw >> 20) % static_cast<uint64_t>(vocab - 1));
}

// Returns the token that follows a prefix among those of `mask`: the first one from NextToken's on,
// around the vocabulary; -1 if there is none.
TokenId NextMasked(uint64_t prefix, std::span<const uint32_t> mask, int64_t vocab,
                   int64_t end_rate);

// How often a drafter is right.
struct DrafterPlan {
  int64_t right_percent = 80;  // of the tokens it drafts
  int64_t none_percent = 20;   // of its calls
};

// Returns what a drafter of this plan says after a prefix.
inline TokenId DraftAfter(const DrafterPlan& plan, uint64_t prefix, int64_t vocab,
                          int64_t end_rate) {
  const TokenId right = NextToken(prefix, vocab, end_rate);
  const auto percent = static_cast<int64_t>(Extend(prefix, -5) % 100);
  return percent < plan.right_percent ? right : static_cast<TokenId>((right + 1) % vocab);
}

// Returns what stands for the log-probability of the token that ends a prefix.
inline float ScoreOf(uint64_t prefix) { return -static_cast<float>(Extend(prefix, -9) % 1000); }

// Returns the whole right answer: it ends with token 0 if that is a stop token, or at max_tokens.
std::vector<TokenId> RightAnswer(const PrefixKey& prompt, int64_t max_tokens, bool stops,
                                 int64_t vocab, int64_t end_rate);

// Returns what stands for the vector of a pooled prompt.
std::vector<float> RightVector(const PrefixKey& prompt, Pooling pooling);

class SimEngine : public Engine {
 public:
  explicit SimEngine(const EngineLimits& limits, int64_t end_rate = 20);

  // The request of rows whose sampling has this seed has these marks.
  void KnowMarks(uint64_t seed, std::vector<KeyMark> marks) { marks_[seed] = std::move(marks); }

  // Likewise these extras. Each must reach exactly the tokens that it belongs to: of an input, by
  // embeddings that were encoded from its content and not dropped.
  void KnowExtras(uint64_t seed, std::shared_ptr<const RowExtras> extras) {
    extras_[seed] = std::move(extras);
  }

  // Its own drafter, of limits with makes_drafts.
  void KnowDrafter(const DrafterPlan& plan) { drafter_ = plan; }

  // Embeddings of inputs are at most `capacity`, or those of one input.
  void LimitEmbeddings(int64_t capacity) { embedding_capacity_ = capacity; }

  const EngineLimits& limits() const override { return limits_; }
  void Launch(std::shared_ptr<const BatchPlan> plan) override;
  void SupplyMasks(StepMasks masks) override;
  // Asks the guide for each draft, and does not follow it.
  std::vector<std::vector<TokenId>> GuideDrafts(const DraftGuide& guide) override;
  StepResult Collect() override;

  // A block's bytes are the hashes of its slots. At most kCopiesMax copies exist at a time. Until a
  // read is taken no step may write its pages, and until a block is written none may use its pages.
  static constexpr int kCopiesMax = 3;
  int64_t KvBlockBytes(int32_t block_tokens) const override {
    return limits_.num_window_pages > 0 ? 0 : block_tokens * int64_t{sizeof(uint64_t)};
  }
  std::unique_ptr<KvBlockCopy> ReadPages(std::span<const PageId> pages) override;
  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages) override;
  void WritePages(std::unique_ptr<KvBlockCopy> copy) override;
  // A state's bytes are the hash in its slot.
  int64_t StateBytes() const override {
    return limits_.num_state_slots > 0 ? int64_t{sizeof(uint64_t)} : 0;
  }
  std::unique_ptr<KvBlockCopy> ReadState(StateSlot slot) override;
  std::unique_ptr<KvBlockCopy> BeginStateWrite(StateSlot slot) override;
  void WriteState(std::unique_ptr<KvBlockCopy> copy) override;
  int num_copies() const { return num_copies_; }

  // The first wrong read or plan; "" if there was none.
  const std::string& violation() const { return violation_; }
  int64_t num_tokens() const { return num_tokens_; }
  int in_flight() const { return static_cast<int>(in_flight_.size()); }

  // A load begins to write `pages` while steps are in flight: rows that read them give wrong
  // tokens. Until it ends no step may read or write them.
  void BeginLoad(std::span<const PageId> pages);
  // The load wrote positions [begin, begin + count) of the prefix `key`, and invalid KV past that.
  void EndLoad(std::span<const PageId> pages, const PrefixKey& key, int64_t begin, int64_t count);

  // Faults of the next step.
  void FailNextStep(std::string message, StatusCode code = StatusCode::kInternal) {
    fail_next_ = Status(code, std::move(message));
  }
  void NonFiniteInNextStep(int row) { non_finite_row_ = row; }
  void ForeignTokenInNextStep(int row) { foreign_row_ = row; }  // a token outside the vocabulary

 private:
  class BlockCopy;
  class StateCopy;
  // The hashes of a block's slots, 0 where it has no page.
  std::vector<uint64_t> HashesOf(std::span<const PageId> pages) const;
  void Apply(const BatchPlan& plan);
  // Writes the drafts that the plan wants made to the token pool.
  void MakeDrafts(const BatchPlan& plan);
  void CheckFed(const BatchPlan& plan);
  // Visits the tokens of a row. Returns the prefixes after which it samples; sets its scores.
  std::vector<uint64_t> RunRow(const BatchPlan& plan, int row, RowResult* result);
  // Samples after each prefix, within `masks` (a mask for each; empty: all tokens).
  void SampleRow(const BatchPlan& plan, int row, std::span<const uint64_t> prefixes,
                 std::span<const uint32_t> masks, RowResult* result);
  RowResult ScoreToken(const BatchPlan& plan, int row, int64_t position, uint64_t prefix);
  // Writes or reads the slot of one token of a row, whose prefix up to it is `prefix`.
  void VisitToken(const BatchPlan& plan, int row, int64_t position, uint64_t prefix);
  // The same in the window pages.
  void VisitWindowToken(const BatchPlan& plan, int row, int64_t position, uint64_t prefix);
  // Checks the state that the row begins from, and writes those of its segments. `states`: the
  // prefixes before the row's first token, and after each of its tokens.
  void RunSegments(const BatchPlan& plan, int row, std::span<const uint64_t> states);
  std::vector<PageId> PagesRead(const BatchPlan& plan, int row) const;
  std::span<const KeyMark> MarksOf(const BatchPlan& plan, int row) const;
  // Drops and encodes inputs. Those of a step that fails are not valid: a row that reads them gives
  // wrong tokens.
  void Encode(const BatchPlan& plan, bool fails);
  void EncodePiece(const BatchPlan& plan, const EncoderRun& run, bool fails);
  // What the embeddings of a source show of their content.
  uint64_t ContentOf(const BatchPlan& plan, EmbeddingSource source);
  void CheckWhole(const BatchPlan& plan, int row, const RowExtras& extras);
  // Compares the plan's extras with those that its requests have for each of its tokens.
  void CheckExtras(const BatchPlan& plan);
  // Pools the tokens of a row after which the prefixes are `after`.
  void Pool(const BatchPlan& plan, int row, std::span<const uint64_t> after, RowResult* result);
  void Violate(const std::string& what);
  using Table = std::vector<std::vector<int32_t>>;  // [rows][pages]
  int64_t SlotOf(const Table& table, int32_t table_row, int64_t position) const;

  EngineLimits limits_;
  int64_t end_rate_;
  DrafterPlan drafter_;
  std::vector<bool> is_left_out_;  // [table rows] the drafter has not read all of its tokens
  std::map<uint64_t, std::vector<KeyMark>> marks_;               // by seed
  std::map<uint64_t, std::shared_ptr<const RowExtras>> extras_;  // by seed
  struct Embeddings {
    ContentHash hash{};
    int64_t count = 0;
    int64_t encoded = 0;  // of the count; less: in pieces
    bool is_valid = true;
  };
  std::map<EmbeddingSource, Embeddings> embeddings_;
  int64_t embedding_capacity_ = 0;
  std::vector<bool> reads_invalid_;      // [rows of the plan that is launched]
  std::map<int32_t, uint64_t> pooled_;   // by table row, of the chunks so far
  std::vector<uint64_t> shadow_;         // [slots] the prefix each was written for; 0: never
  std::vector<uint64_t> states_;         // [state slots] likewise
  std::vector<bool> is_state_loading_;   // [state slots] a load writes it
  std::vector<bool> is_loading_;         // [pages] a load writes it
  std::vector<uint64_t> window_shadow_;  // [window slots, and those of the dummy]
  Table page_table_, window_table_;
  std::vector<std::vector<TokenId>> token_pool_;  // [rows][positions]
  struct InFlight {
    StepResult result;
    std::vector<std::vector<PageId>> pages_read;  // of each row
    std::shared_ptr<const BatchPlan> plan;
    std::vector<std::vector<uint64_t>> prefixes;  // of each row, if it waits for masks
    bool waits_for_masks = false;
    int foreign_row = -1, non_finite_row = -1;
  };
  // `masks`: of the masked rows.
  void Sample(const StepMasks& masks, InFlight* step);

  std::deque<InFlight> in_flight_;
  std::string violation_;
  Status fail_next_;
  int non_finite_row_ = -1;
  int foreign_row_ = -1;
  int64_t num_tokens_ = 0;
  int num_copies_ = 0;
};

}  // namespace minisgl::sim
