// The program's PrefixSource over a simulated disk: a store whose blocks may be lost, or written
// torn, and whose reads and writes take time. All is drawn from a seed and the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/store/kv_block_store.h"
#include "runtime/background_work.h"
#include "runtime/prefix_source.h"
#include "sim/sim_engine.h"
#include "sim/sim_source.h"

namespace minisgl::sim {

struct StorePlan {
  bool exists = false;
  int32_t block_tokens = 64;
  int64_t delay_max = 3;        // steps, of one piece of work
  int64_t torn_percent = 0;     // of blocks written: found, and not to be read
  int64_t lost_percent = 0;     // of blocks, at each look: gone, with or without those after them
  int64_t refused_percent = 0;  // of writes
  int64_t full_after = -1;      // writes; -1: never
  bool drops_at_end = false;    // saves that wait when all requests ended
  struct Prefix {
    std::vector<TokenId> tokens;
    std::vector<KeyMark> marks = {};
    int64_t num_blocks = 0;
    std::vector<int64_t> states = {};  // after so many blocks, if the model has any
  };
  std::vector<Prefix> filled;  // what earlier processes kept
};

class SimStore final : public KvBlockStore {
 public:
  SimStore(const StorePlan& plan, uint64_t seed) : plan_(plan), seed_(seed) {}

  std::vector<KvBlockKey> Keys(const PrefixKey& key) const override;
  int64_t Find(KvBlockPath path) override;
  bool Read(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override;
  bool Write(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data) override;
  void Touch(KvBlockPath) override {}
  bool HasState(KvBlockPath path) override;
  bool ReadState(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override;
  bool WriteState(KvBlockPath path, const PrefixKey& block,
                  std::span<const std::byte> data) override;
  bool accepts_blocks() const override { return !is_full_; }
  KvBlockStoreStats stats() const override { return {}; }

  // Puts blocks of `key`, and states after so many of them, there, as an earlier process would
  // have.
  void Fill(const PrefixKey& key, int64_t num_blocks, std::span<const int64_t> states = {});
  // No block is lost any more.
  void Heal() { is_healed_ = true; }
  // The first block or state that was written with the wrong bytes; "" if there was none.
  const std::string& violation() const { return violation_; }
  int64_t num_writes() const { return num_writes_; }
  int64_t num_reads() const { return num_reads_; }
  int64_t num_state_writes() const { return num_state_writes_; }
  // As if the disk had lost or damaged them.
  void DropStates() { states_.clear(); }
  void TearStates() {
    for (auto& [key, state] : states_) state.is_torn = true;
  }

 private:
  struct Block {
    std::vector<TokenId> tokens;
    std::vector<KeyMark> marks;
    std::vector<std::byte> data;
    bool is_torn = false;
  };
  int64_t Draw(int64_t below);
  using Blocks = std::map<KvBlockKey, Block>;
  bool ReadFrom(Blocks* blocks, KvBlockPath path, const PrefixKey& block,
                std::span<std::byte> data);
  // Stores it, perhaps torn, unless it is there.
  void WriteTo(Blocks* blocks, KvBlockPath path, const PrefixKey& block,
               std::span<const std::byte> data);
  // The last hash in `data` must be that of the prefix: that of the key. And `block` must lead
  // there from the block before.
  void CheckHash(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data);

  StorePlan plan_;
  uint64_t seed_;
  uint64_t draws_ = 0;
  bool is_full_ = false, is_healed_ = false;
  int64_t num_writes_ = 0, num_reads_ = 0, num_state_writes_ = 0;
  Blocks blocks_, states_;
  std::string violation_;
};

// Background work that runs in Tick, each piece after a time of its own. Urgent work ends in any
// order, as that of several threads does.
class SimWork final : public runtime::BackgroundWork {
 public:
  SimWork(int64_t delay_max, uint64_t seed) : delay_max_(delay_max), seed_(seed) {}
  void Post(bool is_urgent, Work work) override;
  void Tick();
  void Heal() { delay_max_ = 0; }

 private:
  int64_t delay_max_;
  uint64_t seed_;
  int64_t wait_ = 0;  // steps until the next piece runs
  std::vector<Work> urgent_, other_;
  std::vector<std::byte> scratch_;
};

// The source of a workload: one that makes things up (SimSource), the program's over a simulated
// disk, or none.
class SimSources {
 public:
  SimSources(const SourcePlan& source, const StorePlan& store, uint64_t seed, SimEngine* engine)
      : invented_(source, seed, engine), store_(store, seed) {
    if (source.exists) source_ = &invented_;
    if (!store.exists) return;
    for (const StorePlan::Prefix& prefix : store.filled) {
      store_.Fill({prefix.tokens, prefix.marks}, prefix.num_blocks, prefix.states);
    }
    auto work = std::make_unique<SimWork>(store.delay_max, seed);
    work_ = work.get();
    stored_ = std::make_unique<runtime::PrefixSource>(engine, &store_, std::move(work),
                                                      store.block_tokens);
    source_ = stored_.get();
  }

  KvSource* get() { return source_; }
  void Tick() {
    invented_.Tick();
    if (work_ != nullptr) work_->Tick();
  }
  void Heal() {
    invented_.Heal();
    store_.Heal();
    if (work_ != nullptr) work_->Heal();
  }
  int64_t num_loading() const {
    return static_cast<int64_t>(invented_.num_loading()) +
           (stored_ == nullptr ? 0 : stored_->num_loading());
  }
  const std::string& violation() const {
    return invented_.violation().empty() ? store_.violation() : invented_.violation();
  }

 private:
  SimSource invented_;
  SimStore store_;
  std::unique_ptr<runtime::PrefixSource> stored_;
  SimWork* work_ = nullptr;  // of stored_
  KvSource* source_ = nullptr;
};

}  // namespace minisgl::sim
