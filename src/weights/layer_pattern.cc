// Decides first which layers have windows, then which are rotated and how.
#include "weights/layer_pattern.h"

#include <optional>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kPeriodRange = {1, 1 << 20};

bool IsSwitched(Windows windows) {
  return windows == Windows::kSwitched || windows == Windows::kFromLayer ||
         windows == Windows::kOddUpToLayer || windows == Windows::kUnrotated;
}

// The width of windows; 0: none.
int32_t ReadWidth(const Architecture& entry, FieldReader* reader) {
  if (entry.windows == Windows::kNone) {
    CheckNeutral(reader, "sliding_window", std::nullopt,
                 "only full attention (null) is supported for this model_type");
    return 0;
  }
  if (IsSwitched(entry.windows) && !reader->Bool("use_sliding_window", false)) return 0;
  const int64_t fallback = reader->Has("sliding_window") ? 0 : entry.window;
  return static_cast<int32_t>(
      reader->OptionalInt("sliding_window", kWindowRange).value_or(fallback));
}

// For each layer, what layer_types says.
struct LayerTypes {
  std::vector<bool> has_window, has_state;
};

// Nothing if the file has no such key.
std::optional<LayerTypes> ReadTypes(const Architecture& entry, FieldReader* reader,
                                    int32_t num_layers) {
  constexpr const char* kKey = "layer_types";
  const Json* types = reader->Find(kKey);
  if (types == nullptr) return std::nullopt;
  if (!types->is_array() || types->as_array().size() != static_cast<size_t>(num_layers)) {
    reader->FailWith(
        kKey,
        types->is_array() ? fmt::format("{} values", types->as_array().size())
                          : Visible(types->Dump(), kQuotedBytesMax),
        fmt::format("an array of {} strings (num_hidden_layers) is needed", num_layers));
    return std::nullopt;
  }
  const bool has_states = entry.state_type != nullptr;
  const auto is = [](const Json& type, const char* name) { return type == Json(name); };
  LayerTypes found;
  for (const Json& type : types->as_array()) {
    const bool has_state =
        has_states && (is(type, entry.state_type) || is(type, "linear_attention"));
    const bool has_window = !has_states && is(type, "sliding_attention");
    found.has_state.push_back(has_state);
    found.has_window.push_back(has_window);
    const bool is_full = is(type, entry.full_type) || is(type, "full_attention");
    if (has_state || has_window || is_full) continue;
    reader->FailWith(kKey, Visible(type.Dump(), kQuotedBytesMax),
                     fmt::format("\"{}\" and \"{}\" are supported", entry.full_type,
                                 has_states ? entry.state_type : "sliding_attention"));
    return std::nullopt;
  }
  return found;
}

// For each layer, true if it is rotated, for models that list these layers.
std::vector<bool> ReadRotated(FieldReader* reader, int32_t num_layers) {
  const int64_t interval = reader->Int("no_rope_layer_interval", kPeriodRange, 4);
  std::vector<bool> rotated;
  const Json* list = reader->Find("no_rope_layers");
  if (list == nullptr) {
    for (int32_t i = 0; i < num_layers; ++i) rotated.push_back((i + 1) % interval != 0);
    return rotated;
  }
  const std::string needed =
      fmt::format("an array of {} values 0 or 1 (num_hidden_layers) is needed", num_layers);
  if (!list->is_array() || list->as_array().size() != static_cast<size_t>(num_layers)) {
    reader->Fail("no_rope_layers", needed);
    return std::vector<bool>(static_cast<size_t>(num_layers));
  }
  for (const Json& value : list->as_array()) {
    if (value != Json(0) && value != Json(1)) {
      reader->FailWith("no_rope_layers", Visible(value.Dump(), kQuotedBytesMax), needed);
    }
    rotated.push_back(value == Json(1));
  }
  return rotated;
}

// Sets the layers with windows if there is no layer_types.
class Pattern {
 public:
  Pattern(const Architecture& entry, bool types_given, FieldReader* reader)
      : windows_(entry.windows), period_(entry.window_period) {
    if (types_given) return;  // layer_types overrides the keys below
    if (windows_ == Windows::kFromLayer || windows_ == Windows::kOddUpToLayer) {
      bound_ = reader->Int("max_window_layers", kLayerRange, entry.max_window_layers);
    } else if (windows_ == Windows::kAllButEachKey || windows_ == Windows::kAllButEachNull) {
      period_ = reader->Int("sliding_window_pattern", kPeriodRange, period_);
    }
  }

  bool Holds(int64_t layer, bool rotated) const {
    switch (windows_) {
      case Windows::kNone:
        return false;
      case Windows::kEvery:
      case Windows::kSwitched:
        return true;
      case Windows::kFromLayer:
        return layer >= bound_;
      case Windows::kOddUpToLayer:
        return layer % 2 == 0 && layer < bound_;
      case Windows::kUnrotated:
        return !rotated;
      case Windows::kAllButEach:
      case Windows::kAllButEachKey:
      case Windows::kAllButEachNull:
        return (layer + 1) % period_ != 0;
    }
    return false;
  }

  // Models without such windows are not of this pattern.
  bool needs_width() const {
    return windows_ == Windows::kAllButEach || windows_ == Windows::kAllButEachKey;
  }
  // Only the pattern counts: the reference ignores layer_types.
  bool is_all() const { return windows_ == Windows::kEvery || windows_ == Windows::kSwitched; }

 private:
  Windows windows_;
  int64_t period_;
  int64_t bound_ = 0;
};

bool IsRotated(Rotated rotated, bool listed, bool has_window, bool any_window) {
  switch (rotated) {
    case Rotated::kAll:
      return true;
    case Rotated::kNone:
      return false;
    case Rotated::kWindows:
      return has_window;
    case Rotated::kWindowsIfAny:
      return has_window || !any_window;
    case Rotated::kListed:
      return listed;
  }
  return true;
}

}  // namespace

void SetStateMixer(Mixer mixer, LayerConfig* layer) {
  layer->mixer = mixer;
  layer->rope = -1;
}

void ReadLayers(const Architecture& architecture, FieldReader* reader, ModelConfig* config) {
  const int32_t width = ReadWidth(architecture, reader);
  const auto types = ReadTypes(architecture, reader, config->num_layers);
  const Pattern pattern(architecture, types.has_value(), reader);
  std::vector<bool> listed(static_cast<size_t>(config->num_layers));
  if (architecture.rotated == Rotated::kListed) listed = ReadRotated(reader, config->num_layers);
  if (!reader->ok()) return;

  config->layers.assign(static_cast<size_t>(config->num_layers), LayerConfig());
  for (size_t i = 0; i < config->layers.size(); ++i) {
    const bool by_pattern = pattern.Holds(static_cast<int64_t>(i), listed[i]);
    const bool has_window =
        types ? types->has_window[i] : by_pattern && (width > 0 || pattern.needs_width());
    if (has_window && width == 0) {
      const char* key = types ? "layer_types" : "sliding_window";
      return reader->FailWith(key, types ? "\"sliding_attention\"" : "null",
                              types ? "\"full_attention\" for every layer is supported where "
                                      "sliding_window is null or off"
                                    : "an integer is needed for the layers with windows");
    }
    if (!has_window && width > 0 && pattern.is_all()) {
      return reader->FailWith("layer_types", "\"full_attention\"",
                              "windows in every layer are supported for this model_type");
    }
    LayerConfig& layer = config->layers[i];
    layer.sliding_window = has_window ? width : 0;
    const bool rotated = IsRotated(architecture.rotated, listed[i], has_window, width > 0);
    layer.rope = !rotated ? -1 : has_window && config->ropes.size() > 1 ? 1 : 0;
    if (types && types->has_state[i]) SetStateMixer(architecture.state_mixer, &layer);
  }
}

}  // namespace minisgl::weights
