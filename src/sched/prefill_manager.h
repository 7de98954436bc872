// Admission from the waiting queue, and chunked prefill.
#pragma once

#include <cstdint>

#include "sched/context.h"

namespace minisgl {

class PrefillManager {
 public:
  explicit PrefillManager(SchedulerContext* context) : context_(context) {}

  // Drafts the prefill rows of a step within the token budget: continuing chunks first, then new
  // requests in the order of the waiting queue.
  void Schedule();
  // Asks the source again for those that wait for its word.
  void AskSource();

 private:
  enum class Admission { kAdmitted, kWaits, kNoRoom };
  void AdmitNew();
  void AdmitFront();
  Admission TryAdmit(RequestState* state);
  // Pages that there must be room for if `state` is to be admitted with `match`.
  int64_t WantedPages(const RequestState& state, const PrefixMatch& match) const;
  // Makes some session let go of its prefix for `state`; false where that is not to be.
  bool TakePrefixFromSession(const RequestState& state, const PrefixMatch& match);
  // Locks `match` where the promises leave room for `state` with it.
  bool LockWhereItFits(const RequestState& state, const PrefixMatch& match);
  void Admit(RequestState* state, PrefixMatch match, int64_t load_len);
  // Holds `state` where an admitted request computes what it shares beyond its match.
  bool HoldForPrefix(RequestState* state, int32_t matched_pages);
  // A chat turn may take the place of batch rows: preempts one of a lower class.
  bool PreemptFor(const RequestState& state);
  // Drafts the next chunk of an admitted prompt.
  void AddChunk(RequestState* state);
  // Most tokens of one chunk: a part of the budget while others wait, whom a chat's turn outranks.
  int64_t ChunkLimit(const RequestState& state) const;
  // Prefill tokens that the step has left for `state`.
  int64_t BudgetFor(const RequestState& state) const;

  SchedulerContext* context_;
  uint64_t asked_last_ = 0;  // arrival of whom AskSource asked last
};

}  // namespace minisgl
