// The architecture and sampling defaults of a model: config.json and generation_config.json,
// parsed and checked.
//
// Both spellings of keys are read: torch_dtype, rope_theta and rope_scaling{type|rope_type} of
// older files, dtype and rope_parameters of transformers 5. An unsupported feature is an error that
// names its key. A GGUF file in place of a model directory has all of it in its metadata.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/model_kinds.h"
#include "minisgl/sampling_params.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/weights/quantization_config.h"

namespace minisgl {

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,
  kLlama3,
  kYarn,
  kLongRope,
  kDynamic,
  kProportional,
};

// A rotary position embedding. Formulas are in src/model/rotary.cc.
struct RopeConfig {
  double theta = 10000.0;
  int32_t dim = 0;  // rotated features of a head: even, at most head_dim
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;               // linear, llama3, yarn, dynamic, proportional
  double rotated_share = 1.0;        // proportional: of the pairs, the first ones
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  double beta_fast = 32.0;           // yarn
  double beta_slow = 1.0;            // yarn
  bool truncate = true;              // yarn: round the bounds of the blend to integers
  int64_t original_max_seq_len = 0;  // llama3, yarn, longrope, dynamic
  double attention_factor = 1.0;     // yarn, longrope: factor of cosines and sines
  double score_factor = 1.0;         // of scores, in models with latent attention alone
  std::vector<double> short_factors, long_factors;  // longrope: [dim / 2]
  // Around pictures: how many frequencies turn by a token's time, height and width, dim / 2
  // together. All 0: every position is one number.
  std::array<int32_t, 3> sections = {};
  bool sections_mixed = false;  // RotaryPartOf of tower_params.h

  bool has_sections() const { return sections[0] + sections[1] + sections[2] > 0; }

  bool operator==(const RopeConfig&) const = default;
};

// Latent attention (DeepSeek V2). A token's keys and values are products with its latent, and one
// rotated part of the key serves all heads. It runs in its absorbed form, whose formulas are in
// src/model/latent_attention.h: ModelConfig and LayerShape have one KV head, whose key is [rotated
// part, latent] and whose value is the latent, and queries as wide as that key.
struct LatentConfig {
  int32_t rank = 0;  // features of a latent; 0: the model has none
  // Features of the latent that queries are products with; 0: the hidden state itself.
  int32_t query_rank = 0;
  // A stored head has plain_dim features of queries and keys that are not rotated, rotary_dim that
  // are, and value_dim features of values.
  int32_t plain_dim = 0, rotary_dim = 0, value_dim = 0;
  // The expansion of latents is stored as two tensors: for keys, transposed, and for values.
  bool split = false;

  bool operator==(const LatentConfig&) const = default;
};

// Order of norms and residual additions in a block; f is attention or the feed-forward part.
enum class NormPlacement : uint8_t {
  kBefore,    // x + f(norm(x))
  kAfter,     // x + norm(f(x))
  kAround,    // x + norm(f(norm(x)))
  kParallel,  // n = norm(x): x + attention(n) + feed_forward(n)
  kAfterSum,  // norm(x + f(x)), which is the x of the next part
};

// Properties that differ from layer to layer.
struct LayerConfig {
  int32_t sliding_window = 0;  // w: a query attends to the last w keys, its own included; 0: all
  int32_t rope = 0;            // index into ModelConfig::ropes; -1: no rotation
  bool has_experts = false;
  // Sizes; 0: as in ModelConfig.
  int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0, value_dim = 0;
  int64_t intermediate_size = 0;
  // The layer whose keys and values it reads: an earlier layer with keys and values of its own, and
  // the same window, num_kv_heads, head_dim and value_dim. -1: its own.
  int32_t kv_layer = -1;
  bool keys_as_values = false;  // values are the keys, before their norm and rotation
  Mixer mixer = Mixer::kAttention;
  bool has_feed_forward = true;
  bool lacks_attention_norm = false;  // the norm before attention is the identity

  bool operator==(const LayerConfig&) const = default;
};

// The feed-forward part of layers with a mixture of experts.
struct ExpertsConfig {
  int32_t num_experts = 0;               // 0: the model has none
  int32_t num_chosen = 0;                // experts that run for each token
  int64_t intermediate_size = 0;         // of one expert
  int64_t shared_intermediate_size = 0;  // of the expert that runs for every token; 0: none
  // Experts but the shared one work on a projection of the input to so many features, and their sum
  // is projected back; 0: on the input itself.
  int64_t latent_size = 0;
  bool shared_gate = false;  // its output is multiplied by a sigmoid gate
  bool shared_half = false;  // or by 1/2
  Routing routing;
  bool choice_bias = false;  // a stored bias is added to the scores that experts are chosen by
  // The files have [out, in] matrices, where others of the architecture have [in, out].
  bool outputs_first = false;
  bool separate = false;  // and one matrix for each expert, where others have one for all
  // Shares multiply what experts read, and not what they return.
  bool scales_input = false;
  // Layers with experts have a dense part beside them: each has a norm after it, the sum another.
  // Experts and their router have norms of their own before them, and experts a stored factor.
  bool beside_dense = false;
};

// The layers whose mixer has a state. All of a model are alike.
struct StateConfig {
  int32_t conv_length = 0;  // weights of a channel's convolution; 0: the model has no such layers
  int64_t conv_width = 0;   // channels of the convolution
  bool conv_bias = false;
  bool input_bias = false, output_bias = false;  // of the products around the mixer
  // Recurrences (RecurrenceParams); 0 without one:
  int32_t num_heads = 0, num_groups = 0, key_dim = 0, value_dim = 0;
  bool separate = false;  // queries, keys and values have products and convolutions of their own
  // Stored products are ordered by group: q, k, v and gate of the first, then of the next.
  bool by_group = false;
  double gain_factor = 1;
  double step_min = 0, step_max = 3e38;
  int64_t norm_group = 0;         // features of the output that are normalised together; 0: no norm
  bool gate_before_norm = false;  // the output is gated, then normalised; else the other way round
  double norm_eps = 1e-6;
  // Factors of the parts of the product before the mixer: the gate, the decays, and the inputs of
  // the convolution that become values, keys and queries.
  double gate_factor = 1, decay_factor = 1;
  double value_factor = 1, key_factor = 1, query_factor = 1;

  // Width of the output of a recurrence.
  int64_t inner_width() const { return int64_t{num_heads} * value_dim; }
  bool operator==(const StateConfig&) const = default;
};

// Layers that draft tokens from states of a target. One for multi-token prediction (kApart,
// kBehind) reads the embedding of a token and the target's state before that token, and predicts
// the token after it:
//   x = input [norm(embedding), norm(state)], then a layer, a norm and the target's output head.
// The formulas of the others are at DraftHeadConfig.
enum class PredictionLayer : uint8_t {
  kNone,
  kApart,      // tensors "mtp.fc", "mtp.layers.0...." (Qwen3-Next, Qwen3.5 and later)
  kBehind,     // "model.layers.N.eh_proj" and so on, N the target's layers (DeepSeek V3, GLM 4.5)
  kEagle,      // an EAGLE-3 head
  kBlock,      // a DFlash head
  kAssistant,  // an assistant of Gemma 4
};

// A head that drafts from states of several layers of its target, in files of its own. c(i) is the
// product of its matrix "fc" and the states that enter those layers at token i, one behind the
// other.
//
// kEagle (arXiv 2503.01840): one layer, whose row of token i reads the embedding of the token and
// g = c(i - 1), or in place of c the output y of the row before:
//   r = g + attention([norm(embedding), norm(g)]), y = r + feed_forward(norm(r)),
// and predicts the token after i: head norm(y).
//
// kBlock (DFlash, arXiv 2602.06036): a block of the last token and of mask tokens runs through all
// layers at once, and predicts the token at the place of each mask. It attends to itself, and to
// keys and values that each layer's matrices make of norm(c(i)), for all tokens before the block.
//
// kAssistant (transformers' Gemma4AssistantForCausalLM): layers without keys and values of their
// own. With the last token at place p they read
//   x = input [embedding of the token, state at p - 1],
// both the target's, at position p, and attend to the keys that the target's last layer of the same
// kind has of the tokens before p. The next draft reads the draft before it, at the same position
// and over the same keys, and in place of the state a product of its own last one. If there are
// clusters, only the tokens of the best ones are candidates.
struct DraftHeadConfig {
  std::vector<int32_t> target_layers;  // in the order of the inputs of "fc"
  int64_t target_width = 0;            // of each state
  int64_t num_ids = 0;                 // rows of the embedding
  bool has_embedding = false;          // else it is the target's
  bool has_head = false;               // likewise
  std::string layer_prefix;            // of the tensors of its only layer; "": as other models
  std::string input_name;              // of its product and norm of states: "fc", "hidden_norm"
  std::string norm_name;
  // kEagle: r = norm(g) + ..., and norm(y) in place of y as the next g.
  bool adds_norm = false, recycles_norm = false;
  // [vocab_size] the target's id of each row of the head; null: they are the ids.
  std::shared_ptr<const std::vector<TokenId>> row_ids;
  int32_t block_size = 0;  // kBlock: of the last token and its masks
  // kBlock: a token of the block predicts the one behind it (DSpark); else a mask its own token.
  bool predicts_next = false;
  // kBlock: the width of the matrices that add to the logits of a draft what the token before it
  // makes likely; 0: there are none.
  int32_t transition_rank = 0;
  TokenId mask_id = 0;  // kBlock
  // kBlock: layers with a window, and all others, in which a token of the block does not attend to
  // later ones of it.
  bool windows_are_causal = true, others_are_causal = false;
  std::vector<int32_t> kv_layers;  // kAssistant: [layers] the target's layer whose keys each reads
  // kAssistant: clusters of tokens, of which the best `num_best` have candidates; 0: no clusters.
  int32_t num_clusters = 0, num_best = 0;
  // [num_clusters, vocab_size / num_clusters] the ids of each.
  std::shared_ptr<const std::vector<TokenId>> clusters;
};

// Layers in which the tokens of a picture attend to all tokens of it, not only to earlier ones.
enum class PictureAttention : uint8_t { kCausal, kAllLayers, kWindowLayers };

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string model_type;    // "llama"
  // The multimodal model whose text model this is: "Gemma3ForConditionalGeneration"; "": none.
  std::string wrapper;
  // Prefixes of tensor names in the files: in place of "model.", and before "lm_head".
  std::string text_prefix = "model.", head_prefix;
  // Each token attends to all tokens of its text, also to later ones; with a window w to those less
  // than w away. Such a model gives vectors of texts, each of which is computed in one step.
  bool attends_both_ways = false;
  // The class has no output head, or none is stored: the model gives vectors of texts.
  bool lacks_head = false;
  // An encoder (BERT and its kin): attends_both_ways, lacks_head, and no head is loaded.
  bool is_encoder = false;
  bool old_norm_names = false;  // norms are stored as "gamma" and "beta"
  bool second_names = false;    // tensors are stored under the names of the class's second form
  DType dtype = DType::kF32;    // as stated in the file; f32 if it is not
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of layers without experts
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;     // of queries and keys
  int32_t value_dim = 0;    // of values; 0: head_dim
  int64_t max_seq_len = 0;  // max_position_embeddings
  bool tie_word_embeddings = false;
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  // one number or a list in the file; each < vocab_size

  NormKind norm_kind = NormKind::kRms;
  double norm_eps = 1e-6;
  bool norm_plus_one = false;  // stored norm weights are w - 1
  NormPlacement norm_placement = NormPlacement::kBefore;
  // kAfterSum: behind attention x = norm(x + f(x)), and then norm(x + what entered the layer).
  bool adds_input_again = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool qk_norm_bias = false;  // kWhole with biases
  bool qkv_bias = false, attention_output_bias = false;
  bool feed_forward_bias = false;  // all its matrices have a bias
  bool down_bias = false;          // or the last one alone
  bool up_before_gate = false;     // the tensor of gate and up has up first
  bool norm_bias = false;          // norms over hidden_size have a bias
  bool attention_sinks = false;
  LatentConfig latent;
  bool rotary_interleaved = false;  // rotates pairs (2 i, 2 i + 1) instead of (i, i + dim / 2)
  Activation activation = Activation::kSilu;
  bool gated = true;  // act(gate) * up; else act(up)
  // Gate and up of dense and shared parts are stored as two matrices, where others of the
  // architecture have one of both.
  bool gate_apart = false;
  double activation_limit = 0;  // kClampedSwiglu

  double embedding_scale = 1;
  // The reference rounds embedding_scale and per_layer_scale to the type that embeddings have in
  // memory, whatever type the files have.
  bool rounds_embedding_scales = false;
  double attention_scale = 0;    // scores are q.k * attention_scale; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // 0: none
  double residual_scale = 1;     // factor of what a block adds to the residual stream
  double logit_scale = 1;
  double logit_softcap = 0;  // 0: none
  // Queries at position p are multiplied by 1 + beta ln(1 + floor((p + first) / length)); beta 0:
  // no scaling.
  double query_scale_beta = 0;
  int64_t query_scale_length = 0, query_scale_first = 0;
  bool query_scale_unrotated = false;  // in layers without rotary alone

  std::vector<RopeConfig> ropes;    // at least one if any layer is rotated
  std::vector<LayerConfig> layers;  // [num_layers]
  // Layers stored after these that draft tokens (multi-token prediction). The target does not load
  // them.
  int32_t num_prediction_layers = 0;
  // Not kNone: this is the configuration of such a layer (prediction_layer.h), whose embedding and
  // output head are the target's, or of a head (draft_head.h).
  PredictionLayer prediction = PredictionLayer::kNone;
  int32_t prediction_layer = 0;  // the number that its tensors have as a layer
  // The stored name of the target's output head, of which a prediction layer reads a copy in 4
  // bits; "": it reads the target's own. Reading the head is most of the cost of a draft, and what
  // is drafted is verified anyhow.
  std::string copied_head;
  DraftHeadConfig draft_head;  // of kEagle and kBlock
  bool is_prediction_layer() const { return prediction != PredictionLayer::kNone; }
  bool is_draft_head() const {
    return prediction == PredictionLayer::kEagle || prediction == PredictionLayer::kBlock ||
           prediction == PredictionLayer::kAssistant;
  }
  ExpertsConfig experts;
  StateConfig states;
  bool embedding_norm = false;  // embeddings are normalised, without weights
  // An encoder adds to the embedding of an id that of its position and that of text type 0, and
  // normalises the sum with stored weights. The counts are rows of tables; 0: there is no table.
  int64_t num_positions = 0;
  int64_t first_position = 0;  // the row of a text's first token
  int64_t num_token_types = 0;
  // Not 0: scores have a number added, of their head and the distance of their key, of which there
  // are so many kinds: DistanceKind (weights/distance_kinds.h).
  int64_t num_distances = 0;
  // Or the distance times a slope of the head is taken away: ALiBi, both ways (LinearSlopes there).
  bool linear_distances = false;
  bool adds_distances() const { return num_distances > 0 || linear_distances; }
  bool stored_embedding_norm = false;
  bool lacks_final_norm = false;
  bool gate_in_query = false;    // the gate of attention is stored behind each head's query
  bool attention_gate = false;   // attention's output is multiplied by a sigmoid of a product
  bool qk_norm_plain = false;    // kHead without stored weights; query_factor scales queries
  bool qk_norm_rotated = false;  // it is in layers with rotary alone; REQUIRES qk_norm_plain
  double query_factor = 1;
  double post_norm_eps = 0;  // of norms after a part; 0: norm_eps
  // kAttentionAndMamba2: factors of the two outputs.
  double attention_output_factor = 1, state_output_factor = 1;
  double feed_forward_gate_factor = 1;  // factor of the gate, before its activation
  bool norms_before_states = false;  // layers with a state are kBefore, whatever norm_placement is
  bool final_norm_is_plain = false;  // stored as it is, whatever norm_plus_one says
  bool value_norm = false;           // values are normalised head by head, without weights
  bool layer_factors = false;  // the residual stream is multiplied by a stored factor after a layer
  // Per-layer embeddings: the width that each layer takes from a second table, and the table's rows
  // (at least vocab_size). 0: none. Formulas are at OpsDecoder in src/model/decoder.cc.
  int32_t per_layer_width = 0;
  int64_t per_layer_vocab = 0;
  double per_layer_scale = 1;        // of the table
  TokenId per_layer_picture_id = 0;  // whose row the tokens of a picture take from it
  PictureAttention picture_attention = PictureAttention::kCausal;
  QuantizationConfig quantization;  // empty: all weights are dense
};

// The sizes of one layer. None is 0 in a model that was read.
struct LayerShape {
  int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0, value_dim = 0;
  int64_t intermediate_size = 0;  // of a dense feed-forward part
  // The last value_dim features of a key are its value (KvLayer::values_in_keys).
  bool values_in_keys = false;

  bool operator==(const LayerShape&) const = default;
};
// The sizes of layer `layer`; the sizes of ModelConfig if there is no such layer.
LayerShape LayerShapeOf(const ModelConfig& config, int32_t layer);
// The different shapes of a model's layers, at least one.
std::vector<LayerShape> LayerShapes(const ModelConfig& config);
// True if the attention of all layers has one shape, and each layer has keys and values of its own.
bool HasUniformAttention(const ModelConfig& config);
// True if a layer's mixer has a state.
bool HasStates(const ModelConfig& config);

struct GenerationConfig : SamplingOverrides {
  std::vector<TokenId> eos_token_ids;
  std::optional<bool> do_sample;
  std::optional<int64_t> max_new_tokens;
};

// `file` is its name in errors. Every parse error is kBadInput with the key, the value found and
// the supported values.
Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& file);
Result<ModelConfig> LoadModelConfig(const std::string& model_dir);
Result<ModelConfig> LoadModelConfigFile(const std::string& path);
// The text of config.json; for a GGUF file, its metadata as such a text.
Result<std::string> ModelConfigText(const std::string& model_dir);

// A missing generation_config.json gives an empty GenerationConfig; an invalid one is an error.
Result<GenerationConfig> ParseGenerationConfig(const std::string& text, const std::string& file,
                                               int64_t vocab_size);
Result<GenerationConfig> LoadGenerationConfig(const std::string& model_dir, int64_t vocab_size);

}  // namespace minisgl
