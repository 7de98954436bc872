// Inputs that towers encode (pictures): when each is encoded, how long its embeddings stay, and who
// reads them.
//
// A step computes a token of an input only if its embeddings are in the encoder cache, or are
// encoded by the step itself. A request refers to the embeddings of an input from the first such
// step until the input's tokens are computed, or until it ends or is preempted. Embeddings without
// a reference stay for other requests with the same input, until their room is needed: those that
// no live request wants go first, then the ones that were used longest ago.
//
// Room and budget are counted in embeddings. An input that is larger than the cache is encoded with
// no other that is referred to in it. One that is larger than what a step has left of the budget is
// encoded in pieces, a step each, if the engine does so: the request that waits for it, admitted
// and with no token before it left to compute, refers to it from the first piece on. Until the last
// piece no other input is begun, except that a chat's turn takes the place of a request below its
// class. Otherwise one step encodes such an input, with no other.
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
  EncoderLedger(const SchedulerOptions& options, bool encodes_in_pieces);

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
  // Those requests may use at most `most` of it, at least 1.
  void BoundBatch(int64_t most);
  // Upper bound on the next tokens of `state`, at most `count`, whose inputs are in the cache or
  // can be encoded in the drafted step.
  int64_t Reach(const RequestState& state, int64_t count) const;
  // The drafted step has the next `count` tokens of `state`. REQUIRES count <= Reach.
  void Take(RequestState* state, int64_t count);
  // `state` is admitted, and Reach is less than the `count` tokens that it computes at least:
  // drafts a piece of the input that it waits for. False if the step has none of it.
  bool Advance(RequestState* state, int64_t count);
  // True if the next `count` tokens of `state` wait for the budget of a later step, and not for
  // room in the cache.
  bool WaitsForBudget(const RequestState& state, int64_t count) const;
  // True if the draft encodes an input or a piece.
  bool has_draft() const { return !drafted_.empty(); }
  // The draft becomes a plan: moves what it encodes and drops to `extras`.
  void Launch(PlanExtras* extras);
  // The step that encodes `runs` failed: no request finds their embeddings any more, and the rest
  // of one in pieces is not encoded.
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
    int64_t done = 0;     // embeddings whose work is launched
    int64_t drafted = 0;  // of the draft
    bool is_valid = true;
    bool is_batch = false;                          // begun by a request below the chat's class
    std::shared_ptr<const EncoderContent> content;  // until the last piece is launched

    int64_t left() const { return size - done - drafted; }
  };
  enum class Wait : uint8_t { kNone, kForBudget, kForRoom };
  struct Stop {
    int64_t reach = 0;
    Wait wait = Wait::kNone;
    size_t input = 0;  // that is waited for
  };
  // What ends the next `count` tokens of `state`.
  Stop FindStop(const RequestState& state, int64_t count) const;
  int64_t BudgetFor(const RequestState& state) const;
  // True if an input that is begun for `state` takes the place of the one in pieces, which `state`
  // does not want itself.
  bool TakesPlace(const RequestState& state) const;
  void Refer(RequestState* state, size_t index);
  // A new input, of which nothing is drafted yet.
  EmbeddingSource Begin(const RequestState& state, const EncoderInput& input);
  // Adds `work` of an input to the draft.
  void DraftPiece(EmbeddingSource source, int64_t work, bool is_chat);
  // Gives up the input in pieces: the request that waits for it begins anew.
  void GiveUpPieces();
  void Unrefer(InputState* input);
  void Want(const ContentHash& hash, int64_t change);
  // Drops embeddings without a reference until `size` more have room, or none are left.
  void MakeRoom(int64_t size);
  void Drop(EmbeddingSource source);
  void CheckPieces(const std::map<EmbeddingSource, int64_t>& references) const;

  const bool encodes_in_pieces_;
  int64_t budget_, capacity_;
  std::map<EmbeddingSource, Entry> entries_;
  std::map<ContentHash, EmbeddingSource> source_of_;  // of the valid ones
  std::map<ContentHash, int64_t> wanted_;             // by live requests that have not passed it
  std::vector<EmbeddingSource> drafted_;              // encoded by the draft
  std::vector<EmbeddingSource> dropped_;              // that the engine has not been told
  EmbeddingSource in_pieces_ = 0;                     // begun, and not launched whole; 0: none
  RequestState* waits_for_pieces_ = nullptr;          // the only one that refers to it
  int64_t held_ = 0, referred_ = 0;                   // embeddings
  int64_t left_ = 0, batch_left_ = 0;                 // of the draft's budget
  int64_t num_encoded_ = 0, num_reused_ = 0;
  uint64_t clock_ = 0;  // counts uses
  EmbeddingSource next_source_ = 1;
};

}  // namespace minisgl::sched
