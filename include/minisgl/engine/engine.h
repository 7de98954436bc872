// The interface that runs steps: token ids in, token ids out. The scheduler plans for an Engine and
// knows nothing else about it.
//
// Launch returns at once. Steps run in the order of their launches, and each sees what earlier ones
// wrote (keys and values, sampled ids in the token pool). Collect waits. All calls come from one
// thread (the runtime's).
//
// Keys and values of whole pages can be copied to memory of the host and back, a block of tokens at
// a time, and so can the state in a slot. On a device such copies delay no step; on the CPU a
// state is copied between two steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/plan/adapter_source.h"
#include "minisgl/row_result.h"

namespace minisgl {

struct EngineLimits {
  int64_t vocab_size = 0;
  int32_t page_size = 16;  // 1, 2, 4, ..., 64
  int32_t num_pages = 0;   // ids 0 .. num_pages - 1
  // Layers with a sliding window may keep their keys and values in window pages 0 ..
  // num_window_pages - 1, as long as a window reaches them. 0: every page holds all layers.
  // Otherwise at least what one request can need at once (the scheduler checks it).
  int32_t num_window_pages = 0;
  int32_t sliding_window = 0;  // the longest of any layer, in keys; 0 without window pages
  // Slots for the states of sequences, if the model has layers with a state; else 0. A slot keeps
  // its content until a step writes it.
  int32_t num_state_slots = 0;
  // Requests have table rows 0 .. max_running_requests - 1; the row after them serves padding.
  int32_t max_running_requests = 0;
  int32_t max_seq_len = 0;      // longest prompt + answer
  int32_t max_step_tokens = 0;  // T of any plan
  int32_t max_step_drafts = 0;  // drafted tokens of any plan, part of T
  bool makes_drafts = false;    // BatchPlan::makes_drafts
  int32_t max_in_flight = 2;    // plans launched and not collected
  bool lacks_head = false;      // prompts have no answer and no log-probabilities
  // Tokens attend to later ones, too: a prompt is computed by one step, shares nothing with others,
  // and has no answer.
  bool attends_both_ways = false;
  int32_t num_adapters = 0;  // slots 0 .. num_adapters - 1 of rows with kHasAdapter
  RowExtraSet extras = 0;    // the parts of RowExtras that it implements; plans have no others
  // With makes_drafts: rows with other parts of RowExtras have no drafts, and the drafter does not
  // read them.
  RowExtraSet draft_extras = 0;
  // Inputs that are larger than a step's budget are encoded in pieces, a step each. A plan with a
  // piece may have no rows. Else such an input is encoded by one step.
  bool encodes_in_pieces = false;
};

// State slots that one running request holds at most: what its rows in flight and the next one read
// and write, and its last state at the end of a page (src/sched/state_ledger.cc).
constexpr int32_t StateSlotsPerRequest(int32_t max_in_flight) {
  return (max_in_flight < 2 ? 2 : max_in_flight) + 1;
}

// Sets the bits of the tokens that may follow `drafts`, which a masked row of a plan has so far, in
// `mask`, all 0 before. False if it is not known: the drafts are a guess anyhow.
using DraftGuide =
    std::function<bool(int32_t row, std::span<const TokenId> drafts, std::span<uint32_t> mask)>;

struct StepResult {
  Status status;                // of the whole step; if it failed, `rows` is meaningless
  std::vector<RowResult> rows;  // [R] of the plan
};

// A block of tokens whose keys and values, or a slot whose state, are on their way between the
// engine and memory of the host.
//
// The bytes of a block depend neither on the page size nor on the order in which pages hold them:
//   [layer][keys [kv_head][token of the block][dim], values [kv_head][token of the block][dim]]
// Layers that read the keys and values of another have none. Of several ranks: those of the first
// rank, then of the next.
// Those of a state: of each layer that has one the convolution's inputs, then the matrices, as f32;
// likewise rank by rank.
//
// Made and destroyed by the thread that calls the engine, before the engine.
class KvBlockCopy {
 public:
  virtual ~KvBlockCopy() = default;

  // For ReadPages and ReadState: true if TakeBlock may be called. Called by the engine's caller.
  virtual bool IsReady() = 0;
  // Writes the block's bytes. Bytes of tokens without a page are left as they are. An error if the
  // engine is broken. Any thread. REQUIRES IsReady.
  virtual Status TakeBlock(std::span<std::byte> block) = 0;
  // For BeginWrite and BeginStateWrite: takes the block's bytes. Any thread.
  virtual void PutBlock(std::span<const std::byte> block) = 0;
};

// In a list of the pages of a block: its tokens are not copied.
inline constexpr PageId kNoPage = -1;

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineLimits& limits() const = 0;
  // REQUIRES fewer than limits().max_in_flight plans in flight.
  virtual void Launch(std::shared_ptr<const BatchPlan> plan) = 0;
  // The masks of the plan that was launched last. Its layers do not wait for them, only its
  // sampling. REQUIRES that it has masked rows, and that its masks come before the next Launch and
  // before its Collect.
  virtual void SupplyMasks(StepMasks masks) = 0;
  // Waits for the drafts of the masked rows of the plan that was launched last, and returns them
  // row by row; asks `guide`, on the caller's thread, for the tokens that each may be. REQUIRES
  // rows with a mask and BatchPlan::makes_drafts; it is called once, before SupplyMasks. An engine
  // without EngineLimits::makes_drafts has none.
  virtual std::vector<std::vector<TokenId>> GuideDrafts(const DraftGuide& guide) = 0;
  // Waits for the oldest plan in flight and returns its result. REQUIRES a plan in flight.
  virtual StepResult Collect() = 0;

  // Loads adapters while requests run; null: all are loaded. Outlived by the engine.
  virtual AdapterSource* adapter_source() { return nullptr; }

  // Bytes of a block of `block_tokens` tokens, a multiple of the page size. 0: pages cannot be
  // copied, because some layers keep keys and values in window pages, or none has any.
  virtual int64_t KvBlockBytes(int32_t block_tokens) const = 0;
  // Begins to copy the block in `pages` (one for each page of the block, or kNoPage) to the host,
  // after all launched steps. Null if there is no memory for it now: ask again after other copies
  // are destroyed. Later steps may not write the pages until TakeBlock has returned or the copy is
  // destroyed. REQUIRES KvBlockBytes > 0.
  virtual std::unique_ptr<KvBlockCopy> ReadPages(std::span<const PageId> pages) = 0;
  // Makes a copy to `pages`; null likewise. Call PutBlock, then WritePages. REQUIRES that no step
  // in flight uses the pages, and that none is launched that does until WritePages is called.
  virtual std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages) = 0;
  // Every step launched later finds the block in its pages. REQUIRES that PutBlock has returned.
  virtual void WritePages(std::unique_ptr<KvBlockCopy> copy) = 0;

  // Bytes of the state in one slot. 0: the model has none, or it cannot be copied.
  virtual int64_t StateBytes() const = 0;
  // As ReadPages, of the state in a slot: later steps may not write it until TakeBlock has returned
  // or the copy is destroyed. REQUIRES StateBytes > 0.
  virtual std::unique_ptr<KvBlockCopy> ReadState(StateSlot slot) = 0;
  // As BeginWrite and WritePages. Steps in flight may use the slot until then, because the write
  // happens after them; steps that are launched before WriteState may not.
  virtual std::unique_ptr<KvBlockCopy> BeginStateWrite(StateSlot slot) = 0;
  virtual void WriteState(std::unique_ptr<KvBlockCopy> copy) = 0;
};

}  // namespace minisgl
