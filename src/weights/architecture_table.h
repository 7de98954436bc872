// The table of architectures. An entry lists differences from llama, whose values are the defaults
// below:
//   defaults of keys that config.json may omit
//   properties that no configuration states (kinds and places of norms, which biases exist)
//   names of stored tensors that differ from llama's
//   a function that reads the keys of its family
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

// True if a bias exists: the value of the file's `key`, or `fallback` if the key is absent. Without
// a key, always `fallback`.
struct BiasSwitch {
  std::string_view key = "";
  bool fallback = false;
};

inline constexpr BiasSwitch kAttentionBias = {"attention_bias"};
inline constexpr BiasSwitch kAlways = {"", true};

// The layers with sliding-window attention (sliding_window is the width). If a file has
// layer_types, that decides instead.
enum class Windows : uint8_t {
  kNone,
  kEvery,           // all, if the width is not null
  kSwitched,        // all, if use_sliding_window
  kFromLayer,       // from max_window_layers on, if use_sliding_window
  kOddUpToLayer,    // the 1st, 3rd, ... below max_window_layers, if use_sliding_window
  kUnrotated,       // those without rotary, if use_sliding_window
  kAllButEach,      // all but the last of each `window_period`
  kAllButEachKey,   // likewise, but the file's sliding_window_pattern is the period
  kAllButEachNull,  // likewise; a width of null turns windows off
};

// Which layers rotate queries and keys.
enum class Rotated : uint8_t {
  kAll,
  kNone,          // the model has no rotary
  kWindows,       // those with a window
  kWindowsIfAny,  // likewise, but all of a model without any
  kListed,  // those that no_rope_layers gives a 1; else all but each no_rope_layer_interval-th
};

struct NamedRole {
  TensorRole role;
  const char* name;  // within "model.layers.N." or whole; "{}" stands for the expert or head
};

struct Architecture {
  const char* name;                           // of config.json's `architectures`
  const char* model_type;                     // and of its `model_type`
  const char* old_name = "";                  // that some files have for `name`
  std::vector<const char*> other_names = {};  // classes around the same layers

  // Defaults of absent keys. A number of heads or a head_dim that is null is derived.
  int64_t max_seq_len = 2048;
  int64_t num_kv_heads = 0;  // 0: the number of query heads
  int64_t head_dim = 0;      // 0: hidden_size / num_attention_heads
  bool tied = false;
  int64_t intermediate_size = 0;    // 0: the key is required
  const char* width_key = nullptr;  // a name of intermediate_size that comes first
  LatentConfig latent;              // of a family with latent attention

  NormKind norm_kind = NormKind::kRms;
  NormPlacement norm_placement = NormPlacement::kBefore;
  bool norm_bias = false, norm_plus_one = false;
  const char* eps_key = "rms_norm_eps";
  double eps = 1e-6;
  QkNorm qk_norm = QkNorm::kNone;
  BiasSwitch qkv_bias, output_bias, feed_forward_bias;
  BiasSwitch state_bias;  // read by `read`

  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  bool gelu_is_tanh = false;  // "gelu" was written for the tanh form
  bool gated = true;
  bool has_xielu = false;  // "xielu" is supported, with numbers of each layer

  Rotated rotated = Rotated::kAll;
  bool rotary_interleaved = false;
  bool rotary_partial = false;  // partial_rotary_factor is read; else it must be 1
  double rotary_share = 1;
  bool rotary_dim_key = false;  // rotary_dim, a number of features, is read too
  double theta = 10000;
  // Theta of a separate rotary embedding for layers with windows; 0: there is none.
  double window_theta = 0;
  const char* window_theta_key = nullptr;
  int64_t original_max_seq_len = 0;    // default of scalings; 0: max_seq_len
  bool yarn_is_longrope = false;       // and "su" too: names that longrope had
  bool rope_proportional = false;      // "proportional" is read, with partial_rotary_factor
  bool rope_alpha = false;             // "dynamic" with "alpha" is a theta fixed once for all
  bool query_scale = false;            // "llama_4_scaling_beta" is read; else it must be null
  bool rope_sections_mixed = false;    // default of "mrope_interleaved"
  const char* rope_default = nullptr;  // JSON for rope_parameters

  Windows windows = Windows::kNone;
  int64_t window = 0;  // default of sliding_window; 0: null
  int64_t window_period = 0;
  int64_t max_window_layers = 28;  // default of the key of that name

  Mixer state_mixer = Mixer::kAttention;     // of the layers that layer_types calls state_type
  const char* state_type = nullptr;          // null: all layers have attention
  const char* full_type = "full_attention";  // of the others

  std::vector<NamedRole> names;  // naming a fused role here means that its tensors are fused
  std::vector<NamedRole> second_names = {};  // of ModelConfig::second_names, before the others
  const char* layers = "layers";             // what layers are called behind text_prefix
  bool experts_inputs_first = false;         // matrices of experts are [in, out]
  bool experts_interleaved = false;          // and their gate and up alternate
  bool has_forms = false;                    // files may name tensors as multimodal models do
  bool choice_bias_row = false;              // the bias that experts are chosen by is [1, X]
  bool softcaps = false;  // `read` knows keys of soft-capping; else they must be null
  // Where experts that are stored one by one stand within a layer.
  const char* experts_prefix = "mlp.experts.";
  // Finds the number of layers, within kLayersRange, if num_hidden_layers does not state it.
  int32_t (*count_layers)(FieldReader* reader) = nullptr;
  // The prefixes that an encoder's files have, the usual one first; none: it is no encoder.
  std::vector<const char*> encoder_prefixes = {};
  // Gives the keys of older files the names that are read, before all others.
  void (*rename)(Json* config) = nullptr;
  // Reads keys that only this family has, after all others.
  void (*read)(FieldReader* reader, ModelConfig* config) = nullptr;
};

// Entries of architecture_table_encoders.cc, _multimodal.cc and _states.cc.
std::vector<Architecture> EncoderFamilies();
std::vector<Architecture> MultimodalFamilies();
std::vector<Architecture> StateFamilies();

const std::vector<Architecture>& Architectures();
// The entry for a name in `architectures` of config.json, old names included; null if unknown.
const Architecture* FindArchitecture(std::string_view name);

}  // namespace minisgl::weights
