// What the simulated engine checks of the extras of a plan: each token has those of its request,
// inputs are encoded before they are read, and prompts are pooled.
#include <fmt/core.h>

#include "sim/sim_engine.h"

namespace minisgl::sim {
namespace {

std::vector<float> VectorOf(uint64_t pooled) {
  return {static_cast<float>(pooled % 65536), static_cast<float>((pooled >> 16) % 65536)};
}

// What one token of a plan brings and wants.
struct TokenExtras {
  EmbeddingSource source = 0;
  int32_t embedding = -1;  // -1: none
  RopePosition position{-1, -1, -1};
  AdapterSlot adapter = kNoAdapter;
  bool is_hidden = false, is_pooled = false;

  friend bool operator==(const TokenExtras&, const TokenExtras&) = default;
};

// What embeddings show of their content.
uint64_t Seen(const ContentHash& hash) { return ExtendBy(hash[0], hash[1]); }

// The extras of the token at `place` of a request, if a step computes it.
TokenExtras ExtrasAt(const RowExtras& extras, int64_t place, int64_t prompt_len) {
  TokenExtras at;
  for (const ReplacedEmbeddings& run : extras.embeddings) {
    if (place < run.token || place >= run.token + run.count) continue;
    at.source = extras.inputs.empty() ? run.source : Seen(extras.inputs[run.source].hash);
    at.embedding = run.first + static_cast<int32_t>(place - run.token);
  }
  if (!extras.positions.empty() && place < prompt_len) {
    at.position = extras.positions.of_prompt[static_cast<size_t>(place)];
  } else if (!extras.positions.empty()) {
    at.position.fill(static_cast<int32_t>(place) + extras.positions.shift);
  }
  at.adapter = extras.adapter;
  at.is_hidden = extras.hidden && place >= extras.hidden->from;
  at.is_pooled = extras.pooling && (*extras.pooling != Pooling::kLast || place + 1 == prompt_len);
  return at;
}

// The extras of each token of a plan.
std::vector<TokenExtras> ExtrasIn(const BatchPlan& plan) {
  std::vector<TokenExtras> tokens(static_cast<size_t>(plan.num_tokens()));
  const auto visit = [&tokens](const auto& span, const auto& set) {
    for (int32_t i = 0; i < span.count; ++i) set(&tokens[static_cast<size_t>(span.token + i)], i);
  };
  for (const ReplacedEmbeddings& run : plan.extras.embeddings) {
    visit(run, [&run](TokenExtras* at, int32_t i) {
      at->source = run.source;
      at->embedding = run.first + i;
    });
  }
  for (const PositionSpan& span : plan.extras.positions) {
    visit(span, [&](TokenExtras* at, int32_t i) {
      at->position = plan.extras.rope_positions[static_cast<size_t>(span.offset + i)];
    });
  }
  for (const AdapterSpan& span : plan.extras.adapters) {
    visit(span, [&span](TokenExtras* at, int32_t) { at->adapter = span.slot; });
  }
  for (const HiddenSpan& span : plan.extras.hidden) {
    visit(span, [](TokenExtras* at, int32_t) { at->is_hidden = true; });
  }
  for (const PoolingSpan& span : plan.extras.pooling) {
    visit(span, [](TokenExtras* at, int32_t) { at->is_pooled = true; });
  }
  return tokens;
}

}  // namespace

std::vector<float> RightVector(const PrefixKey& prompt, Pooling pooling) {
  PrefixWalk walk(prompt.marks());
  uint64_t pooled = 1;
  for (size_t at = 0; at < prompt.size(); ++at) {
    const uint64_t prefix = walk.Push(prompt.tokens()[at]);
    const bool counts = pooling == Pooling::kFirst  ? at == 0
                        : pooling == Pooling::kLast ? at + 1 == prompt.size()
                                                    : true;
    if (counts) pooled = ExtendBy(pooled, prefix);
  }
  return VectorOf(pooled);
}

void SimEngine::CheckExtras(const BatchPlan& plan) {
  if (extras_.empty() && plan.extras.parts() == 0) return;
  const std::string fault = PlanExtrasFault(plan.extras, plan.row_begin);
  if (!fault.empty()) return Violate(fault);
  std::vector<TokenExtras> found = ExtrasIn(plan);
  for (int row = 0; row < plan.num_rows(); ++row) {
    const auto at = static_cast<size_t>(row);
    const bool is_whole =
        plan.extend_len(row) == plan.kv_len[at] && plan.kv_len[at] == plan.prompt_len[at];
    if (limits_.attends_both_ways && !is_whole) {
      Violate(fmt::format("step {}: row {} is a part of a text that is computed whole", plan.step,
                          row));
    }
    const auto known = extras_.find(plan.sampling[at]->seed);
    if (known != extras_.end() && !known->second->inputs.empty()) {
      CheckWhole(plan, row, *known->second);
      for (int32_t token = plan.row_begin[at]; token < plan.row_begin[at + 1]; ++token) {
        TokenExtras& its = found[static_cast<size_t>(token)];
        if (its.embedding < 0) continue;
        const auto of = embeddings_.find(its.source);
        if (of != embeddings_.end() && !of->second.is_valid) reads_invalid_[at] = true;
        its.source = ContentOf(plan, its.source);
      }
    }
    for (int32_t i = 0; i < plan.extend_len(row); ++i) {
      const int64_t place = plan.kv_len[at] - plan.extend_len(row) + i;
      TokenExtras right = known == extras_.end()
                              ? TokenExtras()
                              : ExtrasAt(*known->second, place, plan.prompt_len[at]);
      if (limits_.makes_drafts) {  // CheckFed
        right.is_hidden = found[static_cast<size_t>(plan.row_begin[at] + i)].is_hidden;
      }
      if (found[static_cast<size_t>(plan.row_begin[at] + i)] == right) continue;
      Violate(fmt::format("step {}: row {} has wrong extras at {}", plan.step, row, place));
    }
  }
}

void SimEngine::Encode(const BatchPlan& plan, bool fails) {
  for (const EmbeddingSource source : plan.extras.dropped) {
    if (embeddings_.erase(source) == 1) continue;
    Violate(fmt::format("step {}: drops unknown embeddings {}", plan.step, source));
  }
  for (const EncoderRun& run : plan.extras.encoded) EncodePiece(plan, run, fails);
  int64_t count = 0;
  for (const auto& [source, embeddings] : embeddings_) count += embeddings.count;
  if (count > embedding_capacity_ && embeddings_.size() > 1) {
    Violate(fmt::format("step {}: {} embeddings in room for {}", plan.step, count,
                        embedding_capacity_));
  }
}

void SimEngine::EncodePiece(const BatchPlan& plan, const EncoderRun& run, bool fails) {
  const auto violate = [&](const char* what) {
    Violate(fmt::format("step {}: {} of input {}", plan.step, what, run.source));
  };
  if (!limits_.encodes_in_pieces && (run.begin > 0 || !run.is_last())) violate("a piece");
  if (run.begin == 0) {
    for (const auto& [source, other] : embeddings_) {
      if (other.is_valid && other.encoded < other.count) violate("begins within another one");
    }
    if (!embeddings_.emplace(run.source, Embeddings{run.hash, run.num_embeddings}).second) {
      violate("encodes the begin twice");
    }
  }
  const auto found = embeddings_.find(run.source);
  if (found == embeddings_.end()) return violate("no begin");
  Embeddings& embeddings = found->second;
  if (embeddings.encoded != run.begin || run.end > embeddings.count) violate("a piece out of turn");
  embeddings.encoded = run.end;
  if (fails) embeddings.is_valid = false;
}

uint64_t SimEngine::ContentOf(const BatchPlan& plan, EmbeddingSource source) {
  const auto found = embeddings_.find(source);
  const bool is_whole = found != embeddings_.end() && found->second.encoded == found->second.count;
  if (is_whole) return Seen(found->second.hash);
  Violate(fmt::format("step {}: reads embeddings {}, which are not there", plan.step, source));
  return 0;
}

// Its part of an input that attends both ways is none or all of it.
void SimEngine::CheckWhole(const BatchPlan& plan, int row, const RowExtras& extras) {
  const int64_t end = plan.kv_len[static_cast<size_t>(row)], begin = end - plan.extend_len(row);
  for (const EncoderInput& input : extras.inputs) {
    if (!input.attends_both_ways || input.end() <= begin || end <= input.token) continue;
    if (begin <= input.token && input.end() <= end) continue;
    Violate(fmt::format("step {}: row {} cuts the input at {}", plan.step, row, input.token));
  }
}

void SimEngine::Pool(const BatchPlan& plan, int row, std::span<const uint64_t> after,
                     RowResult* result) {
  const auto at = static_cast<size_t>(row);
  for (const PoolingSpan& span : plan.extras.pooling) {
    if (span.token < plan.row_begin[at] || span.token >= plan.row_begin[at + 1]) continue;
    uint64_t& pooled = pooled_[plan.table_row[at]];
    if (span.begins) pooled = 1;
    for (int32_t i = 0; i < span.count; ++i) {
      const auto index = static_cast<size_t>(span.token - plan.row_begin[at] + i);
      const bool counts = span.pooling != Pooling::kFirst ||
                          plan.positions[static_cast<size_t>(span.token + i)] == 0;
      if (counts) pooled = ExtendBy(pooled, after[index]);
    }
    if (span.ends) result->vector = VectorOf(pooled);
  }
}

}  // namespace minisgl::sim
