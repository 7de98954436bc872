#include "sched/encoder_ledger.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::sched {

EncoderLedger::EncoderLedger(const SchedulerOptions& options)
    : budget_(options.encoder_budget), capacity_(options.encoder_cache) {
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

int64_t EncoderLedger::BudgetFor(const RequestState& state) const {
  return state.is_chat() ? left_ : std::min(left_, batch_left_);
}

int64_t EncoderLedger::Reach(const RequestState& state, int64_t count) const {
  int64_t budget = BudgetFor(state), referred = referred_;
  bool is_first = drafted_.empty();
  std::vector<ContentHash> seen;
  for (size_t i = 0; i < state.inputs.size(); ++i) {
    const EncoderInput& input = state.request.extras->inputs[i];
    if (input.end() <= state.launched_len || state.inputs[i].source != 0) continue;
    if (input.token >= state.launched_len + count) break;
    if (std::find(seen.begin(), seen.end(), input.hash) != seen.end()) continue;
    seen.push_back(input.hash);
    const auto known = source_of_.find(input.hash);
    const bool is_new = known == source_of_.end();
    if (!is_new && entries_.at(known->second).references > 0) continue;
    const int64_t size = input.num_embeddings;
    const bool fits_budget = !is_new || size <= budget || is_first;
    const bool fits_cache = size <= capacity_ - referred || referred == 0;
    if (!fits_budget || !fits_cache) return std::max<int64_t>(input.token - state.launched_len, 0);
    referred += size;
    if (!is_new) continue;
    budget -= size;
    is_first = false;
  }
  return count;
}

void EncoderLedger::Take(RequestState* state, int64_t count) {
  const int64_t end = state->launched_len + count;
  // Refers to known ones first: room for the others might be made of them.
  for (const bool is_known : {true, false}) {
    for (size_t i = 0; i < state->inputs.size(); ++i) {
      const EncoderInput& input = state->request.extras->inputs[i];
      if (input.token >= end) break;
      if (input.end() <= state->launched_len || state->inputs[i].source != 0) continue;
      if (!is_known || source_of_.contains(input.hash)) Refer(state, i);
    }
  }
}

void EncoderLedger::Refer(RequestState* state, size_t index) {
  const EncoderInput& input = state->request.extras->inputs[index];
  auto known = source_of_.find(input.hash);
  if (known == source_of_.end()) {
    MakeRoom(input.num_embeddings);
    const EmbeddingSource source = next_source_++;
    entries_[source] = {.hash = input.hash,
                        .size = input.num_embeddings,
                        .is_batch = !state->is_chat(),
                        .content = input.content};
    held_ += input.num_embeddings;
    known = source_of_.emplace(input.hash, source).first;
    drafted_.push_back(source);
    left_ -= input.num_embeddings;
    if (!state->is_chat()) batch_left_ -= input.num_embeddings;
  } else {
    ++num_reused_;
  }
  Entry& entry = entries_.at(known->second);
  if (entry.references++ == 0) referred_ += entry.size;
  entry.used_at = ++clock_;
  state->inputs[index].source = known->second;
}

void EncoderLedger::Unrefer(InputState* input) {
  if (input->source == 0) return;
  const EmbeddingSource source = std::exchange(input->source, 0);
  Entry& entry = entries_.at(source);
  if (--entry.references > 0) return;
  referred_ -= entry.size;
  if (!entry.is_launched) {  // the row that needed it was withdrawn
    left_ += entry.size;
    if (entry.is_batch) batch_left_ += entry.size;
    std::erase(drafted_, source);
    source_of_.erase(entry.hash);
    held_ -= entry.size;
    entries_.erase(source);
  } else if (!entry.is_valid) {
    Drop(source);
  } else {
    MakeRoom(0);  // it may be larger than the cache
  }
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
  dropped_.push_back(source);
  entries_.erase(at);
}

void EncoderLedger::Launch(PlanExtras* extras) {
  for (const EmbeddingSource source : drafted_) {
    Entry& entry = entries_.at(source);
    entry.is_launched = true;
    extras->encoded.push_back({source, entry.size, entry.hash, std::move(entry.content)});
  }
  num_encoded_ += std::ssize(drafted_);
  drafted_.clear();
  extras->dropped = std::exchange(dropped_, {});
}

void EncoderLedger::Invalidate(const std::vector<EncoderRun>& runs) {
  for (const EncoderRun& run : runs) {
    const auto at = entries_.find(run.source);
    if (at == entries_.end()) continue;
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
      MINISGL_CHECK(!is_read || source != 0,
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
}

}  // namespace minisgl::sched
