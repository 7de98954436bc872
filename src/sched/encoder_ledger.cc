#include "sched/encoder_ledger.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::sched {

EncoderLedger::EncoderLedger(const SchedulerOptions& options, bool encodes_in_pieces)
    : encodes_in_pieces_(encodes_in_pieces),
      budget_(options.encoder_budget),
      capacity_(options.encoder_cache) {
  MINISGL_CHECK(budget_ >= 1 && capacity_ >= 1, "an encoder budget of {} and a cache of {}",
                budget_, capacity_);
}

void EncoderLedger::Want(const ContentHash& hash, int64_t change) {
  int64_t& count = wanted_[hash];
  count += change;
  MINISGL_CHECK(count >= 0, "an input is wanted {} times", count);
  if (count == 0) wanted_.erase(hash);
}

void EncoderLedger::Add(RequestState* state) {
  if (state->request.extras == nullptr) return;
  state->inputs.resize(state->request.extras->inputs.size());
  for (const EncoderInput& input : state->request.extras->inputs) Want(input.hash, 1);
}

void EncoderLedger::Pass(RequestState* state) {
  for (size_t i = 0; i < state->inputs.size(); ++i) {
    InputState& input = state->inputs[i];
    const EncoderInput& its = state->request.extras->inputs[i];
    if (input.is_passed || its.end() > state->computed_len) continue;
    Unrefer(&input);
    input.is_passed = true;
    Want(its.hash, -1);
  }
}

void EncoderLedger::Release(RequestState* state) {
  for (size_t i = 0; i < state->inputs.size(); ++i) {
    InputState& input = state->inputs[i];
    Unrefer(&input);
    if (input.is_passed) Want(state->request.extras->inputs[i].hash, 1);
    input.is_passed = false;
  }
}

void EncoderLedger::Remove(RequestState* state) {
  Release(state);
  for (size_t i = 0; i < state->inputs.size(); ++i) {
    Want(state->request.extras->inputs[i].hash, -1);
  }
  state->inputs.clear();
}

void EncoderLedger::BeginStep(int64_t batch_share) {
  MINISGL_CHECK(drafted_.empty(), "{} inputs of a draft that was given up", drafted_.size());
  left_ = budget_;
  batch_left_ = std::max<int64_t>(budget_ / batch_share, 1);
}

void EncoderLedger::BoundBatch(int64_t most) {
  batch_left_ = std::min(batch_left_, std::max<int64_t>(most, 1));
}

int64_t EncoderLedger::BudgetFor(const RequestState& state) const {
  return state.is_chat() ? left_ : std::min(left_, batch_left_);
}

bool EncoderLedger::TakesPlace(const RequestState& state) const {
  if (in_pieces_ == 0) return false;
  const Entry& entry = entries_.at(in_pieces_);
  const std::vector<EncoderInput>& inputs = state.request.extras->inputs;
  const bool wants_it = std::any_of(inputs.begin(), inputs.end(), [&](const EncoderInput& input) {
    return input.hash == entry.hash;
  });
  return entry.drafted == 0 && entry.is_batch && state.is_chat() && !wants_it;
}

EncoderLedger::Stop EncoderLedger::FindStop(const RequestState& state, int64_t count) const {
  int64_t budget = BudgetFor(state), referred = referred_;
  bool is_first = drafted_.empty();
  // Between the pieces of an input no other is begun.
  bool is_between = in_pieces_ != 0 && entries_.at(in_pieces_).left() > 0;
  std::vector<ContentHash> seen;
  for (size_t i = 0; i < state.inputs.size(); ++i) {
    const EncoderInput& input = state.request.extras->inputs[i];
    if (input.end() <= state.launched_len) continue;
    if (input.token >= state.launched_len + count) break;
    if (std::find(seen.begin(), seen.end(), input.hash) != seen.end()) continue;
    seen.push_back(input.hash);
    const auto known = source_of_.find(input.hash);
    const Entry* const entry = known == source_of_.end() ? nullptr : &entries_.at(known->second);
    const bool is_referred = entry != nullptr && entry->references > 0;
    const int64_t work = entry != nullptr ? entry->left() : input.num_embeddings;
    if (is_referred && work == 0) continue;
    const bool takes_place = entry == nullptr && is_between && TakesPlace(state);
    if (takes_place) referred -= entries_.at(in_pieces_).size;
    const bool may_begin = entry != nullptr || !is_between || takes_place;
    const bool goes_alone = is_first && !encodes_in_pieces_;
    const bool fits_budget = work == 0 || (may_begin && (work <= budget || goes_alone));
    const bool fits_room =
        is_referred || input.num_embeddings <= capacity_ - referred || referred == 0;
    if (!fits_budget || !fits_room) {
      return {std::max<int64_t>(input.token - state.launched_len, 0),
              fits_room ? Wait::kForBudget : Wait::kForRoom, i};
    }
    if (!is_referred) referred += input.num_embeddings;
    if (work == 0) continue;
    budget -= work;
    is_first = is_between = false;  // what was in pieces has its last one, or is given up
  }
  return {count, Wait::kNone, 0};
}

int64_t EncoderLedger::Reach(const RequestState& state, int64_t count) const {
  return FindStop(state, count).reach;
}

bool EncoderLedger::WaitsForBudget(const RequestState& state, int64_t count) const {
  return FindStop(state, count).wait == Wait::kForBudget;
}

void EncoderLedger::Take(RequestState* state, int64_t count) {
  const int64_t end = state->launched_len + count;
  // Refers to known ones first: room for the others might be made of them.
  for (const bool is_known : {true, false}) {
    for (size_t i = 0; i < state->inputs.size(); ++i) {
      const EncoderInput& input = state->request.extras->inputs[i];
      if (input.token >= end) break;
      if (input.end() <= state->launched_len) continue;
      if (is_known && !source_of_.contains(input.hash)) continue;
      if (state->inputs[i].source == 0) Refer(state, i);
      const EmbeddingSource source = state->inputs[i].source;
      const int64_t left = entries_.at(source).left();
      if (left > 0) DraftPiece(source, left, state->is_chat());
    }
  }
}

bool EncoderLedger::Advance(RequestState* state, int64_t count) {
  const Stop stop = FindStop(*state, count);
  const int64_t budget = BudgetFor(*state);
  if (!encodes_in_pieces_ || stop.wait != Wait::kForBudget || budget < 1) return false;
  const EncoderInput& input = state->request.extras->inputs[stop.input];
  const auto known = source_of_.find(input.hash);
  if (known == source_of_.end()) {
    if (in_pieces_ != 0 && !TakesPlace(*state)) return false;
    Refer(state, stop.input);
    in_pieces_ = state->inputs[stop.input].source;
    waits_for_pieces_ = state;
  }
  DraftPiece(in_pieces_, std::min(budget, entries_.at(in_pieces_).left()), state->is_chat());
  return true;
}

EmbeddingSource EncoderLedger::Begin(const RequestState& state, const EncoderInput& input) {
  if (in_pieces_ != 0 && entries_.at(in_pieces_).left() > 0) GiveUpPieces();
  MakeRoom(input.num_embeddings);
  const EmbeddingSource source = next_source_++;
  entries_[source] = {.hash = input.hash,
                      .size = input.num_embeddings,
                      .is_batch = !state.is_chat(),
                      .content = input.content};
  held_ += input.num_embeddings;
  source_of_.emplace(input.hash, source);
  return source;
}

void EncoderLedger::DraftPiece(EmbeddingSource source, int64_t work, bool is_chat) {
  Entry& entry = entries_.at(source);
  if (entry.drafted == 0) drafted_.push_back(source);
  entry.drafted += work;
  left_ -= work;
  if (!is_chat) batch_left_ -= work;
}

void EncoderLedger::GiveUpPieces() {
  RequestState* const state = waits_for_pieces_;
  for (InputState& input : state->inputs) {
    if (input.source == in_pieces_) return Unrefer(&input);
  }
}

void EncoderLedger::Refer(RequestState* state, size_t index) {
  const EncoderInput& input = state->request.extras->inputs[index];
  const auto known = source_of_.find(input.hash);
  const bool is_new = known == source_of_.end();
  const EmbeddingSource source = is_new ? Begin(*state, input) : known->second;
  if (!is_new) ++num_reused_;
  Entry& entry = entries_.at(source);
  if (entry.references++ == 0) referred_ += entry.size;
  entry.used_at = ++clock_;
  state->inputs[index].source = source;
}

void EncoderLedger::Unrefer(InputState* input) {
  if (input->source == 0) return;
  const EmbeddingSource source = std::exchange(input->source, 0);
  Entry& entry = entries_.at(source);
  if (--entry.references > 0) return;
  referred_ -= entry.size;
  if (entry.done == entry.size && entry.is_valid) {
    MakeRoom(0);  // it may be larger than the cache
    return;
  }
  if (entry.drafted > 0) {  // the row that needed it was withdrawn
    left_ += entry.drafted;
    if (entry.is_batch) batch_left_ += entry.drafted;
    std::erase(drafted_, source);
  }
  Drop(source);
}

void EncoderLedger::MakeRoom(int64_t size) {
  while (held_ + size > capacity_) {
    const auto order = [this](const auto& one) {
      return std::tuple(wanted_.contains(one.second.hash), one.second.used_at);
    };
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (at->second.references > 0) continue;
      if (oldest == entries_.end() || order(*at) < order(*oldest)) oldest = at;
    }
    if (oldest == entries_.end()) return;
    Drop(oldest->first);
  }
}

void EncoderLedger::Drop(EmbeddingSource source) {
  const auto at = entries_.find(source);
  if (at->second.is_valid) source_of_.erase(at->second.hash);
  held_ -= at->second.size;
  if (at->second.done > 0) dropped_.push_back(source);
  if (source == in_pieces_) in_pieces_ = 0;
  entries_.erase(at);
}

void EncoderLedger::Launch(PlanExtras* extras) {
  for (const EmbeddingSource source : drafted_) {
    Entry& entry = entries_.at(source);
    const int64_t begin = entry.done;
    entry.done += std::exchange(entry.drafted, 0);
    const bool is_last = entry.done == entry.size;
    extras->encoded.push_back({source, entry.size, entry.hash, entry.content, begin, entry.done});
    if (!is_last) continue;
    entry.content = nullptr;
    if (source == in_pieces_) in_pieces_ = 0;
    ++num_encoded_;
  }
  drafted_.clear();
  extras->dropped = std::exchange(dropped_, {});
}

void EncoderLedger::Invalidate(const std::vector<EncoderRun>& runs) {
  for (const EncoderRun& run : runs) {
    const auto at = entries_.find(run.source);
    if (at == entries_.end() || !at->second.is_valid) continue;
    at->second.is_valid = false;
    source_of_.erase(run.hash);
    if (at->second.references == 0) Drop(run.source);
  }
}

bool EncoderLedger::ReadsInvalid(const RequestState& state) const {
  return std::any_of(state.inputs.begin(), state.inputs.end(), [this](const InputState& input) {
    return input.source != 0 && !entries_.at(input.source).is_valid;
  });
}

void EncoderLedger::CheckPieces(const std::map<EmbeddingSource, int64_t>& references) const {
  for (const auto& [source, entry] : entries_) {
    const bool is_begun = entry.is_valid && entry.left() > 0;
    MINISGL_CHECK(is_begun == (source == in_pieces_),
                  "I13: {} of {} embeddings of input {} are encoded, and {} is in pieces",
                  entry.done, entry.size, source, in_pieces_);
    MINISGL_CHECK(!is_begun || references.contains(source),
                  "I1: no request waits for the rest of input {}", source);
  }
  if (in_pieces_ == 0) return;
  const std::vector<InputState>& inputs = waits_for_pieces_->inputs;
  const bool waits = std::any_of(inputs.begin(), inputs.end(), [this](const InputState& input) {
    return input.source == in_pieces_;
  });
  MINISGL_CHECK(waits, "I5: request {} does not wait for input {}", waits_for_pieces_->request.id,
                in_pieces_);
}

void EncoderLedger::CheckInvariants(const std::vector<const RequestState*>& requests) const {
  std::map<EmbeddingSource, int64_t> references;
  std::map<ContentHash, int64_t> wanted;
  for (const RequestState* state : requests) {
    for (size_t i = 0; i < state->inputs.size(); ++i) {
      const EncoderInput& input = state->request.extras->inputs[i];
      const EmbeddingSource source = state->inputs[i].source;
      if (!state->inputs[i].is_passed) ++wanted[input.hash];
      if (source != 0) ++references[source];
      MINISGL_CHECK(
          source == 0 || (state->table_row >= 0 && entries_.at(source).hash == input.hash),
          "I5: request {} refers to embeddings of another input, or does not run",
          state->request.id);
      const bool is_read = state->table_row >= 0 && input.token < state->launched_len &&
                           input.end() > state->computed_len &&
                           state->launched_len > state->computed_len;
      MINISGL_CHECK(!is_read || (source != 0 && entries_.at(source).left() == 0),
                    "I4: request {} computes input {} without its embeddings", state->request.id,
                    i);
      MINISGL_CHECK(!input.attends_both_ways || state->table_row < 0 ||
                        state->launched_len <= input.token || state->launched_len >= input.end(),
                    "I13: request {} is cut within input {}", state->request.id, i);
    }
  }
  MINISGL_CHECK(wanted == wanted_, "I5: {} inputs are wanted, {} counted", wanted.size(),
                wanted_.size());
  int64_t held = 0, referred = 0, num_referred = 0, num_valid = 0;
  for (const auto& [source, entry] : entries_) {
    const auto known = references.find(source);
    const int64_t count = known == references.end() ? 0 : known->second;
    MINISGL_CHECK(count == entry.references, "I5: {} references to embeddings {}, {} counted",
                  count, source, entry.references);
    held += entry.size;
    referred += count > 0 ? entry.size : 0;
    num_referred += count > 0 ? 1 : 0;
    num_valid += entry.is_valid ? 1 : 0;
  }
  MINISGL_CHECK(held == held_ && referred == referred_ && num_valid == std::ssize(source_of_),
                "I1: {} embeddings held, {} referred to, {} inputs known; counted {}, {}, {}", held,
                referred, num_valid, held_, referred_, source_of_.size());
  MINISGL_CHECK(held <= capacity_ || num_referred >= 1, "I8: {} embeddings in a cache of {}", held,
                capacity_);
  MINISGL_CHECK(drafted_.empty(), "I13: a draft's inputs are left");
  CheckPieces(references);
}

}  // namespace minisgl::sched
