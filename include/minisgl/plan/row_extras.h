// What a request brings beside its token ids, and what it wants beside tokens and scores.
//
// Each part is empty in most requests, and most requests have none at all. What an engine does not
// implement is refused before it runs (EngineLimits::extras).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/base/prefix_key.h"
#include "minisgl/base/status.h"
#include "minisgl/plan/adapter_slot.h"
#include "minisgl/plan/encoder_input.h"
#include "minisgl/plan/given_positions.h"
#include "minisgl/plan/hidden_states.h"
#include "minisgl/plan/pooling.h"
#include "minisgl/plan/replaced_embeddings.h"

namespace minisgl {

// The parts, as bits.
enum RowExtra : uint8_t {
  kReplacesEmbeddings = 1,
  kGivesPositions = 2,
  kHasAdapter = 4,
  kWantsHidden = 8,
  kWantsPooling = 16,
  kHasInputs = 32,
};
using RowExtraSet = uint8_t;

struct RowExtras {
  std::vector<ReplacedEmbeddings> embeddings;  // by token, none in two
  // By token, none in two. If there are any, ReplacedEmbeddings::source of the request is the index
  // of an input, and the scheduler decides when it is encoded.
  std::vector<EncoderInput> inputs;
  GivenPositions positions;
  AdapterSlot adapter = kNoAdapter;
  std::optional<HiddenWanted> hidden;
  std::optional<Pooling> pooling;
  // The vector of a pooled prompt leaves out the tokens before this place.
  int64_t pooled_from = 0;
  // The place from which tokens of a pooled prompt are of the second of two texts, for models with
  // token types (not kLast). No mark stands there: it is for models whose texts attend both ways,
  // which share no keys.
  std::optional<int64_t> second_text;

  RowExtraSet parts() const;
};

// The extras of a plan's rows, row by row.
struct PlanExtras {
  // Applied in this order, before the rows run: embeddings that no later plan reads, and inputs to
  // encode.
  std::vector<EmbeddingSource> dropped;
  std::vector<EncoderRun> encoded;
  std::vector<ReplacedEmbeddings> embeddings;
  std::vector<PositionSpan> positions;
  std::vector<RopePosition> rope_positions;  // indexed by PositionSpan::offset
  std::vector<AdapterSpan> adapters;
  std::vector<HiddenSpan> hidden;
  std::vector<PoolingSpan> pooling;

  RowExtraSet parts() const;
};

// The name of the first part in `parts`, as an error calls it; "" if there is none.
const char* NameOfFirst(RowExtraSet parts);

// What is wrong with the extras of a request of `prompt_len` tokens with `marks`. Whatever changes
// keys and values stands behind a mark, so that no cache shares it with other content: an adapter
// has a mark at place 0, each source of embeddings one where its first run begins, each input one
// at its first token, and no position before the first mark differs from its place. An input that
// attends both ways ends before the prompt's last token. kBadInput.
Status CheckExtras(const RowExtras& extras, int64_t prompt_len, std::span<const KeyMark> marks);

// What is wrong with the extras of a plan whose rows begin at tokens `row_begin` [R + 1]; "" if
// nothing is. Spans of a kind are in order and do not overlap, each within one row. Of positions
// and adapters a row has one span, of all its tokens; of hidden states and pooling at most one.
std::string PlanExtrasFault(const PlanExtras& extras, std::span<const int32_t> row_begin);

}  // namespace minisgl
