// Inputs that towers encode (pictures): when each is encoded, how long its embeddings stay, and who
// reads them.
//
// A step computes a token of an input only if its embeddings are in the encoder cache, or are
// encoded by the step itself. A request refers to the embeddings of an input from the first such
// step until the input's tokens are computed, or until it ends or is preempted. Embeddings without
// a reference stay for other requests with the same input, until their room is needed: those that
// no live request wants go first, then the ones that were used longest ago.
//
// Room and budget are counted in embeddings. An input that is larger than either is encoded alone:
// with no other in its step, and with no other that is referred to in the cache.
//
// Progress: the embeddings that a request refers to let it go on by at least one token, after which
// it gives them up, so that a request that waits for room does not wait for ever, if no new request
// is admitted before it (StepDraft::holds_back). One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/plan/row_extras.h"
#include "minisgl/sched/scheduler.h"
#include "sched/request_state.h"

namespace minisgl::sched {

class EncoderLedger {
 public:
  explicit EncoderLedger(const SchedulerOptions& options);

  // `state` was submitted: it wants all its inputs.
  void Add(RequestState* state);
  // The computed length of `state` has grown: it gives up what it has passed.
  void Pass(RequestState* state);
  // `state` is preempted: it gives up all embeddings, and wants the inputs again.
  void Release(RequestState* state);
  // `state` has ended.
  void Remove(RequestState* state);

  // A new draft begins. `batch_share`: the part of the budget that requests below the chat's class
  // may use, as a divisor.
  void BeginStep(int64_t batch_share);
  // Upper bound on the next tokens of `state`, at most `count`, whose inputs are in the cache or
  // can be encoded in the drafted step.
  int64_t Reach(const RequestState& state, int64_t count) const;
  // The drafted step has the next `count` tokens of `state`. REQUIRES count <= Reach.
  void Take(RequestState* state, int64_t count);
  // The draft becomes a plan: moves what it encodes and drops to `extras`.
  void Launch(PlanExtras* extras);
  // The step that encodes `runs` failed: no request finds their embeddings any more.
  void Invalidate(const std::vector<EncoderRun>& runs);
  // True if `state` refers to embeddings whose step failed.
  bool ReadsInvalid(const RequestState& state) const;

  // References and wishes recounted from `requests`, who have not ended. Aborts if they differ.
  void CheckInvariants(const std::vector<const RequestState*>& requests) const;
  int64_t num_entries() const { return std::ssize(entries_); }
  int64_t num_referred() const { return referred_; }  // embeddings
  int64_t num_encoded() const { return num_encoded_; }
  int64_t num_reused() const { return num_reused_; }

 private:
  struct Entry {
    ContentHash hash{};
    int64_t size = 0;
    int64_t references = 0;
    uint64_t used_at = 0;
    bool is_launched = false;  // else encoded by the draft
    bool is_valid = true;
    bool is_batch = false;                          // drafted by a request below the chat's class
    std::shared_ptr<const EncoderContent> content;  // until the launch
  };
  int64_t BudgetFor(const RequestState& state) const;
  void Refer(RequestState* state, size_t index);
  void Unrefer(InputState* input);
  void Want(const ContentHash& hash, int64_t change);
  // Drops embeddings without a reference until `size` more have room, or none are left.
  void MakeRoom(int64_t size);
  void Drop(EmbeddingSource source);

  int64_t budget_, capacity_;
  std::map<EmbeddingSource, Entry> entries_;
  std::map<ContentHash, EmbeddingSource> source_of_;  // of the valid ones
  std::map<ContentHash, int64_t> wanted_;             // by live requests that have not passed it
  std::vector<EmbeddingSource> drafted_;              // encoded by the draft
  std::vector<EmbeddingSource> dropped_;              // that the engine has not been told
  int64_t held_ = 0, referred_ = 0;                   // embeddings
  int64_t left_ = 0, batch_left_ = 0;                 // of the draft's budget
  int64_t num_encoded_ = 0, num_reused_ = 0;
  uint64_t clock_ = 0;  // counts uses
  EmbeddingSource next_source_ = 1;
};

}  // namespace minisgl::sched
