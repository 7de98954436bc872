// The KV of prefixes in a KvBlockStore, as the scheduler's source: it finds, loads and saves whole
// blocks of tokens, which pass through Engine::ReadPages and Engine::WritePages. Of a model with
// states also those at ends of blocks, which pass through Engine::ReadState and Engine::WriteState:
// what it finds of a prefix ends at one.
//
// The runtime's thread keeps the books and calls the engine. What waits, reads and writes of the
// store and the copies between blocks and pages, is background work. A load is urgent, and reads as
// many blocks at once as the engine has copies and the background work threads. Of saves at most
// kSavesAtOnce blocks and states are under way, so that a save whose pages are needed is soon
// dropped. What waits is in the pages and slots that hold it, and takes no other memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/engine/engine.h"
#include "minisgl/sched/kv_source.h"
#include "minisgl/store/kv_block_store.h"
#include "runtime/background_work.h"

namespace minisgl::runtime {

class PrefixSource final : public KvSource {
 public:
  static constexpr int kSavesAtOnce = 4;  // blocks and states
  // If the engine has no memory for a copy so many times in a row while no other is under way, it
  // will have none: a load ends there, and a save is dropped.
  static constexpr int kRefusalsMax = 1000;

  // `engine` and `store` outlive it. REQUIRES engine->KvBlockBytes(block_tokens) > 0, the size of
  // the store's blocks, and states of the store's size.
  PrefixSource(Engine* engine, KvBlockStore* store, std::unique_ptr<BackgroundWork> work,
               int32_t block_tokens = kKvBlockTokens);
  ~PrefixSource() override;

  // A prefix of less than one block past what is cached is not loaded.
  std::optional<int64_t> Lookup(RequestId id, const PrefixKey& key, int64_t cached_len) override;
  void Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
            std::span<const PageId> pages, StateSlot state) override;
  void Cancel(RequestId id) override;
  std::vector<KvLoadResult> TakeFinished() override;
  void Forget(RequestId id) override { known_.erase(id); }

  int32_t block_tokens() const override { return block_tokens_; }
  bool keeps_states() const override { return state_bytes_ > 0; }
  KvSaveOffer Save(KvSaveId id, RequestId request, const KvPrefix& prefix) override;
  std::optional<KvSaveResult> DropSave(KvSaveId id) override;
  std::vector<KvSaveResult> TakeSaved() override;

  int64_t num_loading() const { return static_cast<int64_t>(loads_.size()); }

 private:
  using Keys = std::shared_ptr<const std::vector<KvBlockKey>>;
  // A copy of a part of a prefix, at whose beginning a block begins.
  struct PrefixPart {
    PrefixPart() = default;
    explicit PrefixPart(const PrefixKey& key)
        : tokens(key.tokens().begin(), key.tokens().end()),
          marks(key.marks().begin(), key.marks().end()),
          begin(key.begin()) {}

    std::vector<TokenId> tokens;
    std::vector<KeyMark> marks;
    int64_t begin = 0;  // place of its first token
  };
  // The block keys of a request, and how many of their blocks are stored.
  struct Known {
    Keys keys;
    int64_t num_found = -1;  // -1: not looked for
    uint64_t found_at = 0;   // num_saved_ then: there may be more since
    // up_to_state: the blocks, among the first `state_limit`, up to the last stored state;
    // state_limit -1: not looked for since.
    int64_t state_limit = -1, up_to_state = 0;
  };
  // A block, or the state after it if there is a slot for it.
  struct Piece {
    int64_t block = 0;  // number in the prefix
    StateSlot slot = kZeroState;

    bool is_state() const { return slot != kZeroState; }
  };
  // One piece on its way.
  struct Job {
    Piece piece;
    std::unique_ptr<KvBlockCopy> copy;
    bool is_posted = false;
    bool is_good = false;  // set before is_done
    std::atomic<bool> is_skipped = false, is_done = false;
  };
  struct LoadState {
    Keys keys;
    PrefixPart prefix;  // up to the end of the load's last block
    int64_t begin = 0, count = 0;
    std::vector<PageId> pages;
    // Without the state nothing is of use, so it is read first. kZeroState: it is under way, or
    // there is none.
    StateSlot waiting_state = kZeroState;
    int64_t next_block = 0, end_block = 0;
    std::deque<std::shared_ptr<Job>> jobs;
    int64_t good = 0;         // tokens
    bool is_stopped = false;  // by a piece that is not to be had, or by Cancel
  };
  struct SaveState {
    Keys keys;
    int64_t first_block = 0;  // the first that waits; of it on:
    PrefixPart part;
    std::vector<PageId> pages;
    std::deque<Piece> waiting;
    std::vector<std::shared_ptr<Job>> jobs;
    KvSaveResult result;
  };

  // The keys of all whole blocks of `key`, computed once for a request.
  Known& KeysOf(RequestId request, const PrefixKey& key);
  // How many of the first `num_blocks` blocks are stored, from the first on.
  int64_t FindBlocks(Known* known, int64_t num_blocks);
  // How many of those there are up to the last state that is stored; 0 without one.
  int64_t FindState(Known* known, int64_t num_blocks);
  // Pages of a block: those of [begin, begin + count), which `pages` holds.
  std::vector<PageId> PagesOf(int64_t block, int64_t begin, int64_t count,
                              std::span<const PageId> pages) const;
  // The name of a piece that is being saved.
  using PieceKey = std::pair<KvBlockKey, bool>;
  static PieceKey KeyOf(const Keys& keys, const Piece& piece) {
    return {(*keys)[static_cast<size_t>(piece.block)], piece.is_state()};
  }
  static KvBlockPath PathTo(const Keys& keys, int64_t block) {
    return std::span(*keys).first(static_cast<size_t>(block) + 1);
  }
  // The tokens and marks of a block of the prefix, which `part` holds.
  PrefixKey BlockOf(const PrefixPart& part, int64_t block) const {
    const PrefixKey key(part.tokens, part.marks, part.begin);
    return key.subspan(static_cast<size_t>(block * block_tokens_ - part.begin),
                       static_cast<size_t>(block_tokens_));
  }
  int64_t BytesOf(const Piece& piece) const {
    return piece.is_state() ? state_bytes_ : block_bytes_;
  }
  // Goes on with a load. Returns true if it ended.
  bool Advance(LoadState* load);
  // Takes the result of the first job, which is done.
  void EndRead(LoadState* load);
  // Begins the next job. False if the engine has no memory for it now.
  bool BeginRead(LoadState* load);
  void PostRead(const LoadState* load, const std::shared_ptr<Job>& job);
  void PostWrite(const SaveState* save, const std::shared_ptr<Job>& job);
  void DropWaiting(SaveState* save);
  // Adds the states of `prefix` that are to be kept to `save` and `offer`.
  void AddStates(const KvPrefix& prefix, const Keys& keys, SaveState* save, KvSaveOffer* offer);
  void EndWrites(SaveState* save);
  void BeginWrites(SaveState* save);
  // Marks the blocks as used, in the background.
  void Touch(const Keys& keys, int64_t num_blocks);
  // Counts the engine's refusal of a copy. True if there were too many.
  bool IsRefused();

  Engine* const engine_;
  KvBlockStore* const store_;
  const int32_t block_tokens_;
  const int64_t block_bytes_, state_bytes_;
  std::map<RequestId, Known> known_;
  std::map<RequestId, LoadState> loads_;
  std::map<KvSaveId, SaveState> saves_;
  std::set<PieceKey> saving_;  // those that wait or are under way
  int num_writing_ = 0;        // pieces of saves under way
  int num_reading_ = 0;        // pieces of loads under way
  int num_refusals_ = 0;       // in a row
  uint64_t num_saved_ = 0;     // pieces
  std::atomic<int> num_touches_ = 0;
  std::unique_ptr<BackgroundWork> work_;  // last: ends first
};

}  // namespace minisgl::runtime
