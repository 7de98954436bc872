// The transformer, written once over Ops: embedding, layers, final norm, output head.
//
// Owns the packed weights and the workspace for at most `max_step_tokens` tokens. The KV cache and
// the states of layers are the caller's. No state is kept between calls. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/model/ranks.h"
#include "minisgl/ops.h"
#include "minisgl/plan/adapter_slot.h"
#include "minisgl/plan/given_positions.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// The states of one layer, in slots: [slots, StateConvFloats] and [slots, StateMatrixFloats]. Null
// for a layer without them.
struct StateLayer {
  float* conv = nullptr;
  float* matrices = nullptr;
};
int64_t StateConvFloats(const StateConfig& states);
int64_t StateMatrixFloats(const StateConfig& states);

// Tokens [token, token + count) of a pass have embeddings from a tower (tower.h) in place of those
// of their ids.
struct PlacedEmbeddings {
  int32_t token = 0;
  int32_t count = 0;
  const float* embeddings = nullptr;  // [count, width], in device memory
  int64_t width = 0;                  // a multiple of the hidden size
};

// Input of one forward pass. Arrays are in device memory (host memory for the CPU), in the layout
// of BatchPlan.
struct ForwardInput {
  int32_t num_tokens = 0;       // T
  int32_t num_rows = 0;         // R
  int32_t num_decode_rows = 0;  // the first rows, with one token each: a hint
  RowsKnown rows_known = RowsKnown::kExactly;
  const int32_t* token_ids = nullptr;   // [T]
  const int32_t* positions = nullptr;   // [T]
  const int64_t* slots = nullptr;       // [T]
  const int32_t* table_row = nullptr;   // [R]
  const int32_t* row_begin = nullptr;   // [R + 1]
  const int32_t* kv_len = nullptr;      // [R]
  const int32_t* page_table = nullptr;  // [*, page_table_stride]
  int64_t page_table_stride = 0;
  // For layers with a sliding window, if their KV is in separate window pages (EngineLimits). Null:
  // it is in the same pages as that of all other layers.
  const int32_t* window_page_table = nullptr;  // like page_table
  const int64_t* window_slots = nullptr;       // [T]
  // [layers], on the host. A layer that reads the keys and values of another has that one's.
  std::span<const KvLayer> kv;
  // If layers have a state: [layers], on the host, and the slots that are read and written.
  std::span<const StateLayer> states;
  StateSegments state_segments;
  // Pictures, if implementations of PlaceRows and MixRotary run:
  std::span<const PlacedEmbeddings> placed;      // in order; on the host
  const RopePosition* rope_positions = nullptr;  // [T]; null: all are `positions`, three times
  // [T] AttentionParams::key_end, of models whose pictures or texts attend both ways. Null: causal.
  const int32_t* key_end = nullptr;
  // [T] The same in layers with a sliding window, of models whose texts attend both ways.
  const int32_t* window_key_end = nullptr;
  // [T] 0, or 1 for tokens of the second of two texts, of encoders with types. Null: all 0.
  const int32_t* token_types = nullptr;
  // [T] the ids that per-layer embeddings are looked up with; null: token_ids.
  const int32_t* per_layer_ids = nullptr;
  // [T, D] of Ops::activation_dtype(): the target's state, as States returns it, at the place
  // before each token. For a prediction layer (ModelConfig::prediction) alone; a head reads what
  // MixTargetStates or States of its own returned for that place, and in WriteKeys for the token's.
  ConstActivationPtr states_before = nullptr;
  // [1] The tokens of the step that are no padding, the first ones, for experts on the host; null:
  // all.
  const int32_t* num_real_tokens = nullptr;
  int32_t first_key = 0;  // AttentionParams::first_key
  // Rows that go through an adapter, in order; on the host. With slots of adapters instead [T]
  // AdapterSlots::slot_of, also for Logits; null: no row has one.
  std::span<const AdapterSpan> adapters;
  const int32_t* slot_of = nullptr;
  // [N] indices of the tokens that need logits. Null: the first N of the step, and this is the last
  // call of Logits for it.
  const int32_t* logit_tokens = nullptr;
  int32_t num_logit_tokens = 0;  // N
  // A number unique to this pass among all passes over these Ops, if all arrays are on the host;
  // else 0 (see AttentionParams::step).
  uint64_t step = 0;
};

// The matrices of a decoder's vocabulary, [V, D] of the rank's share of V. Copies share the memory.
struct DecoderTables {
  Matrix embedding;  // made by Ops::PackEmbedding
  Matrix head;
  int64_t first_id = 0;                    // of the rank's rows of the embedding
  std::vector<int64_t> vocabulary_bounds;  // [ranks + 1] of all ranks' rows of the head
};

struct DecoderOptions {
  WeightFormat weight_format;
  DType activation_dtype = DType::kF32;  // Ops::activation_dtype()
  int64_t max_step_tokens = 0;
  int64_t max_logit_rows = 0;
  int64_t max_seq_len = 0;           // length of the rotary tables
  Rank rank;                         // whose part of the model the decoder has
  bool logits_on_all_ranks = false;  // Ops::GathersOnAllRanks()
  bool packs_6_bits = false;         // CpuPacks6Bits; only counts of bytes read it
  // The target's tables, of the same rank, for a prediction layer; null for any other model.
  const DecoderTables* tables = nullptr;
  // The target's layers whose input a head reads (DraftHeadConfig::target_layers).
  std::vector<int32_t> kept_layers;
  bool takes_adapters = false;  // REQUIRES Ops with LowRank or slots of adapters
  // The adapters that slots may hold (Ops::HasAdapterSlots), read while the decoder is loaded.
  std::span<const std::shared_ptr<const Adapter>> adapters = {};
  // The layers of a device whose experts are on the host (HostExpertLayers), the CPU's operations,
  // which compute them and outlive the decoder, and the format of these experts.
  int32_t num_host_layers = 0;
  Ops* host_ops = nullptr;
  WeightFormat host_format = {};
};

namespace model {
struct PackedAdapter;
}

// Adapters of one decoder. Its rows go through those that slots hold.
class DecoderAdapters {
 public:
  virtual ~DecoderAdapters() = default;
  // What the decoder's rank keeps of `adapter`. Any thread, also while passes run. Errors of
  // CheckAdapterFits (adapters.h), kOutOfMemory. `checkpoint`: the model's files.
  virtual Result<std::shared_ptr<const model::PackedAdapter>> Pack(
      std::shared_ptr<const Adapter> adapter, const Checkpoint& checkpoint) const = 0;
  // Between passes. Null empties the slot.
  virtual void Set(AdapterSlot slot, std::shared_ptr<const model::PackedAdapter> adapter) {
    static_cast<void>(slot), static_cast<void>(adapter);
  }
  // With slots of adapters, in place of Set: the size of a slot; where slots are, called once
  // before the first pass (kOutOfMemory, and the errors of Pack); and the bytes of an adapter in a
  // slot, from its begin on.
  virtual int64_t slot_bytes() const { return 0; }
  virtual Status UseSlots(const std::byte* memory) {
    static_cast<void>(memory);
    return Status();
  }
  virtual std::span<const std::byte> SlotImage(const model::PackedAdapter& adapter) const {
    static_cast<void>(adapter);
    return {};
  }
};

// What a rank has loaded of one model (model_list.h).
class RankModel {
 public:
  virtual ~RankModel() = default;
  // Bytes of packed weights (not counting the padding of a matrix's last rows) and of workspace.
  virtual uint64_t weight_bytes() const = 0;
  virtual uint64_t workspace_bytes() const = 0;
};

class Decoder : public RankModel {
 public:
  // Checks that `checkpoint` has every tensor of the architecture in the shape given by `config`
  // and no unknown one, and packs the weights with `ops`, which must outlive the decoder. Reports
  // progress through base/log.h. kBadInput, kOutOfMemory. `config` is that of the whole model.
  //
  // With several ranks each has a decoder, over operations that know its rank. All run the same
  // passes at the same time, each with keys, values and states of its own (RankConfig), and meet in
  // Ops::AllReduce after the embedding and after each part of a block, and in GatherColumns.
  static Result<std::unique_ptr<Decoder>> Load(const ModelConfig& config,
                                               const Checkpoint& checkpoint,
                                               const DecoderOptions& options, Ops* ops);

  // Runs one pass, which writes K and V of its tokens. Returns logits (of several ranks that do not
  // all have them null on all but the first) [N, V], f32, in the decoder's
  // workspace, valid until the next call.
  float* Forward(const ForwardInput& input) {
    RunLayers(input);
    return Logits(input);
  }
  // The two parts of a pass. Logits reads logit_tokens and num_logit_tokens alone, and what the
  // last RunLayers left in the workspace.
  virtual void RunLayers(const ForwardInput& input) = 0;
  virtual float* Logits(const ForwardInput& input) = 0;
  // The states of the same tokens behind the final norm, [N, D] of Ops::activation_dtype(), in the
  // workspace until the next call of either; of an EAGLE-3 head what its next row reads. REQUIRES
  // logit_tokens. Ranks do not meet in it.
  virtual ConstActivationPtr States(const ForwardInput& input) = 0;

  // [T, D] of Ops::activation_dtype(): the residual stream that entered layer kept_layers[part] in
  // the last RunLayers.
  virtual ConstActivationPtr Entering(size_t part) const = 0;
  // Returns what a head makes of states of its target [count, target_width], for each of
  // target_layers, as its rows read them: [count, D], both of Ops::activation_dtype(), in the
  // workspace until the next pass.
  virtual ConstActivationPtr MixTargetStates(std::span<const ConstActivationPtr> parts,
                                             int64_t count) = 0;
  // Returns an assistant's score of each cluster [N, num_clusters] for the same tokens as States,
  // in the workspace until the next pass.
  virtual const float* ClusterScores(const ForwardInput& input) = 0;
  // Adds to `logits` [count, V], of drafts, what the tokens before them, `ids` [count] in device
  // memory, make likely. For a head with DraftHeadConfig::transition_rank; ranks do not meet in it.
  virtual void AddTransitions(const int32_t* ids, int64_t count, float* logits) = 0;
  // Writes a kBlock head's keys and values for the tokens of `input` from their states.
  virtual void WriteKeys(const ForwardInput& input) = 0;

  virtual const ModelConfig& config() const = 0;
  virtual DecoderTables tables() const = 0;
  // Null unless DecoderOptions::takes_adapters.
  virtual DecoderAdapters* adapters() = 0;
};

// Memory of a decoder, computed from its configuration alone: equal to weight_bytes() and
// workspace_bytes(). nullopt if 2^64 or more.
struct DecoderBytes {
  std::optional<uint64_t> weights;
  std::optional<uint64_t> workspace;
};
DecoderBytes CountDecoderBytes(const ModelConfig& config, const DecoderOptions& options);
// Each by itself. Weights, whose count takes longer, do not depend on the maxima of `options`.
std::optional<uint64_t> CountDecoderWeights(const ModelConfig& config,
                                            const DecoderOptions& options);
std::optional<uint64_t> CountDecoderWorkspace(const ModelConfig& config,
                                              const DecoderOptions& options);

// The layers of `config` that have experts.
int32_t CountExpertLayers(const ModelConfig& config);
// Returns for each layer whether its experts are on the host: true for the last `num_host_layers`
// layers with experts.
std::vector<bool> HostExpertLayers(const ModelConfig& config, int32_t num_host_layers);
// Bytes on the host of the rank's cuts of the experts of options.num_host_layers layers as
// options.host_format, and of the workspace to compute them; nullopt if 2^64 or more.
std::optional<uint64_t> CountHostExpertWeights(const ModelConfig& config,
                                               const DecoderOptions& options);
std::optional<uint64_t> CountHostExpertWorkspace(const ModelConfig& config,
                                                 const DecoderOptions& options);
// The tokens of a step that the host computes at once: longer steps run in pieces.
inline constexpr int64_t kHostExpertTokens = 1024;

// Computes the cosine and sine tables [max_seq_len, rope.dim / 2] of `rope` in double precision,
// multiplied by its attention_factor. Scalings that depend on the sequence length use
// `max_seq_len`.
void MakeRotaryTables(const RopeConfig& rope, int64_t max_seq_len, std::vector<float>* cos,
                      std::vector<float>* sin);

// [max_seq_len] the factor of queries at each position (ModelConfig::query_scale_beta).
std::vector<float> MakeQueryScales(double beta, int64_t length, int64_t max_seq_len,
                                   int64_t first = 0);

}  // namespace minisgl
