// Fills in absent settings of a scaling as transformers does, and computes attention_factor, so
// that the decoder only needs the formulas of frequencies.
#include "weights/rope_config.h"

#include <cmath>
#include <utility>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"

namespace minisgl::weights {
namespace {

constexpr NumberRange kShareRange = {0, 1, true};
constexpr NumberRange kFrequencyFactorRange = {0, 1e6, true};
constexpr NumberRange kOptionalNumberRange = {0, 1e6};
constexpr double kDefaultBetaFast = 32;
constexpr double kDefaultBetaSlow = 1;

// YaRN's attention factor for a context `factor` times as long.
double YarnSharpening(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// Reads objects of rotary settings, with defaults from the top level.
class RopeReader {
 public:
  RopeReader(const Architecture& entry, FieldReader* top, ModelConfig* config)
      : entry_(entry),
        config_(*config),
        head_dim_(config->latent.rank > 0 ? config->latent.rotary_dim : config->head_dim) {
    share_ = ReadShare(top, ReadRotaryDim(top));
    // An original length of the whole model overrides lengths in the objects.
    original_ = top->OptionalInt("original_max_position_embeddings", kSeqLenRange);
    if (!original_ && entry.original_max_seq_len > 0) original_ = entry.original_max_seq_len;
  }

  // Without an object.
  RopeConfig Plain(FieldReader* top, double theta) const {
    return {.theta = theta, .dim = RotatedFeatures(top, share_)};
  }

  // `theta` is the value outside of the object. `nested`: the settings are for one kind of layer.
  RopeConfig Read(FieldReader* object, double theta, bool nested) const {
    RopeConfig rope;
    rope.theta = object->Number("rope_theta", kThetaRange, theta);
    rope.dim = RotatedFeatures(object, ReadShare(object, share_));
    ReadSections(object, &rope);
    const std::string type = ReadType(object);
    if (!object->ok() || type == "default") return rope;
    if (type == "proportional") {
      rope.scaling = RopeScaling::kProportional;
      rope.rotated_share = object->Number("partial_rotary_factor", kShareRange, 1);
      rope.factor = object->Number("factor", kFactorRange, 1);
    } else if (type == "longrope") {
      ReadLongRope(object, nested, &rope);
    } else if (type == "dynamic") {
      ReadDynamic(object, &rope);
    } else if (type == "yarn") {
      ReadYarn(object, nested, &rope);
    } else if (type == "llama3") {
      ReadLlama3(object, nested, &rope);
    } else {
      rope.scaling = RopeScaling::kLinear;
      rope.factor = object->Number("factor", kFactorRange);
    }
    if (entry_.latent.rank > 0) {
      const double mscale = object->Number("mscale_all_dim", kOptionalNumberRange, 0);
      const double sharpening = mscale > 0 ? YarnSharpening(rope.factor, mscale) : 1;
      rope.score_factor = sharpening * sharpening;
    }
    return rope;
  }

 private:
  // The parts of positions around pictures, of a multimodal model.
  void ReadSections(FieldReader* object, RopeConfig* rope) const {
    constexpr const char* kKey = "mrope_section";
    const Json* const list = object->Find(kKey);
    if (config_.wrapper.empty() || list == nullptr) return;
    int64_t sum = 0;
    const size_t count = list->is_array() ? list->as_array().size() : 0;
    for (size_t i = 0; i < count && count == rope->sections.size(); ++i) {
      const Json& section = list->as_array()[i];
      const int64_t frequencies = section.is_int() ? section.as_int() : -1;
      if (frequencies < 0 || frequencies > rope->dim / 2) sum = -1;
      if (sum < 0) break;
      rope->sections[i] = static_cast<int32_t>(frequencies);
      sum += frequencies;
    }
    if (sum != rope->dim / 2) {
      return object->Fail(kKey, fmt::format("three numbers are needed, {} together, one for each "
                                            "two rotated features",
                                            rope->dim / 2));
    }
    rope->sections_mixed = object->Bool("mrope_interleaved", entry_.rope_sections_mixed);
  }

  // The share of rotated features that rotary_dim states.
  double ReadRotaryDim(FieldReader* top) const {
    if (!entry_.rotary_dim_key) return entry_.rotary_share;
    const auto dim = top->OptionalInt("rotary_dim", {2, head_dim_});
    return dim ? static_cast<double>(*dim) / head_dim_ : entry_.rotary_share;
  }

  double ReadShare(FieldReader* reader, double fallback) const {
    if (entry_.rotary_partial) {
      return reader->Number("partial_rotary_factor", kShareRange, fallback);
    }
    // A share of frequencies, not of features.
    const Json* type = reader->Find("rope_type");
    if (entry_.rope_proportional && type != nullptr && *type == Json("proportional")) {
      return fallback;
    }
    CheckNeutral(reader, "partial_rotary_factor", Json(1), "only 1 is supported");
    return fallback;
  }

  int32_t RotatedFeatures(FieldReader* reader, double share) const {
    const auto dim = static_cast<int32_t>(head_dim_ * share);
    if (dim < 2 || dim % 2 != 0) {
      reader->FailWith(
          "partial_rotary_factor", fmt::format("{}", share),
          fmt::format("an even number of rotated features of head_dim ({}) is needed", head_dim_));
    }
    return dim;
  }

  // One of "default", "linear", "llama3", "yarn", "longrope", "dynamic".
  std::string ReadType(FieldReader* object) const {
    const char* key = object->Find("rope_type") == nullptr && object->Find("type") != nullptr
                          ? "type"
                          : "rope_type";
    const char* supported =
        entry_.yarn_is_longrope
            ? "\"default\" and \"longrope\" are supported for this model_type"
            : "\"default\", \"linear\", \"llama3\", \"yarn\", \"longrope\" and \"dynamic\" are "
              "supported";
    std::string type = object->OptionalString(key, supported).value_or("default");
    if (type == "default" || type == "none") return "default";
    if (type == "mrope" && !config_.wrapper.empty()) return "default";  // for text they are equal
    if (type == "proportional" && entry_.rope_proportional) return type;
    const bool longrope = type == "longrope";
    if (entry_.yarn_is_longrope) {
      if (longrope || type == "yarn" || type == "su") return "longrope";
    } else if (longrope || type == "linear" || type == "llama3" || type == "yarn" ||
               type == "dynamic") {
      return type;
    }
    object->Fail(key, supported);
    return "default";
  }

  int64_t ReadOriginal(FieldReader* object, bool nested) const {
    const int64_t in_object =
        object->Int("original_max_position_embeddings", kSeqLenRange, config_.max_seq_len);
    return nested ? in_object : original_.value_or(in_object);
  }

  // The ratio of the context to the original length, for files without a factor.
  double Stretch(const RopeConfig& rope) const {
    return static_cast<double>(config_.max_seq_len) /
           static_cast<double>(rope.original_max_seq_len);
  }

  void ReadLlama3(FieldReader* object, bool nested, RopeConfig* rope) const {
    rope->scaling = RopeScaling::kLlama3;
    rope->factor = object->Number("factor", kFactorRange);
    rope->low_freq_factor = object->Number("low_freq_factor", kFrequencyFactorRange);
    rope->high_freq_factor = object->Number("high_freq_factor", kFrequencyFactorRange);
    rope->original_max_seq_len = ReadOriginal(object, nested);
    // The blend between the two divides by their difference.
    if (rope->high_freq_factor <= rope->low_freq_factor) {
      object->Fail("high_freq_factor", "a number above low_freq_factor is supported");
    }
  }

  void ReadYarn(FieldReader* object, bool nested, RopeConfig* rope) const {
    rope->scaling = RopeScaling::kYarn;
    rope->original_max_seq_len = ReadOriginal(object, nested);
    rope->factor = object->OptionalNumber("factor", kFactorRange).value_or(Stretch(*rope));
    if (rope->factor < 1) {
      object->FailWith("factor", "nothing",
                       "a number is needed where original_max_position_embeddings is above "
                       "max_position_embeddings");
    }
    // 0 stands for the default, as null does.
    const double fast = object->Number("beta_fast", kOptionalNumberRange, 0);
    const double slow = object->Number("beta_slow", kOptionalNumberRange, 0);
    rope->beta_fast = fast > 0 ? fast : kDefaultBetaFast;
    rope->beta_slow = slow > 0 ? slow : kDefaultBetaSlow;
    rope->truncate = nested || object->Bool("truncate", true);
    // The bounds of the blend are found by dividing by its logarithm.
    if (rope->theta <= 1) object->Fail("rope_theta", "a number above 1 is needed for yarn");
    const double mscale = object->Number("mscale", kOptionalNumberRange, 0);
    const double mscale_all = object->Number("mscale_all_dim", kOptionalNumberRange, 0);
    const double derived =
        mscale > 0 && mscale_all > 0
            ? YarnSharpening(rope->factor, mscale) / YarnSharpening(rope->factor, mscale_all)
            : YarnSharpening(rope->factor, 1);
    rope->attention_factor = object->Number("attention_factor", kPositiveRange, derived);
  }

  void ReadLongRope(FieldReader* object, bool nested, RopeConfig* rope) const {
    rope->scaling = RopeScaling::kLongRope;
    rope->original_max_seq_len = ReadOriginal(object, nested);
    rope->short_factors = ReadFactors(object, "short_factor", rope->dim / 2);
    rope->long_factors = ReadFactors(object, "long_factor", rope->dim / 2);
    rope->factor = object->OptionalNumber("factor", kFactorRange).value_or(Stretch(*rope));
    const double derived =
        rope->factor <= 1
            ? 1.0
            : std::sqrt(1 + std::log(rope->factor) /
                                std::log(static_cast<double>(rope->original_max_seq_len)));
    rope->attention_factor = object->Number("attention_factor", kPositiveRange, derived);
  }

  std::vector<double> ReadFactors(FieldReader* object, const char* key, int32_t count) const {
    const Json* list = object->Find(key);
    if (list == nullptr || !list->is_array() ||
        list->as_array().size() != static_cast<size_t>(count)) {
      const std::string found = list == nullptr ? "nothing"
                                : list->is_array()
                                    ? fmt::format("{} values", list->as_array().size())
                                    : std::string(list->TypeName());
      object->FailWith(key, found,
                       fmt::format("an array of {} numbers is needed, one for each two rotated "
                                   "features",
                                   count));
      return {};
    }
    std::vector<double> factors;
    for (const Json& factor : list->as_array()) {
      const double value = factor.is_number() ? factor.as_double() : 0;
      if (!(value > 0 && value <= kFactorRange.max)) {
        object->FailWith(
            key, Visible(factor.Dump(), 60),
            fmt::format("numbers above 0 and at most {} are supported", kFactorRange.max));
        return {};
      }
      factors.push_back(value);
    }
    return factors;
  }

  void ReadDynamic(FieldReader* object, RopeConfig* rope) const {
    if (rope->dim < 4) {
      return object->Fail("rope_type", "\"dynamic\" needs at least 4 rotated features");
    }
    const double exponent = rope->dim / (rope->dim - 2.0);
    const double alpha = entry_.rope_alpha ? object->Number("alpha", kOptionalNumberRange, 0) : 0.0;
    if (alpha > 0) {
      rope->theta *= std::pow(alpha, exponent);
      if (!(rope->theta >= kThetaRange.min && rope->theta <= kThetaRange.max)) {
        object->Fail("alpha", fmt::format("a base from {} to {} is supported, this gives {}",
                                          kThetaRange.min, kThetaRange.max, rope->theta));
      }
      return;
    }
    rope->scaling = RopeScaling::kDynamic;
    rope->factor = object->Number("factor", kFactorRange);
    rope->original_max_seq_len = config_.max_seq_len;
  }

  const Architecture& entry_;
  const ModelConfig& config_;
  const int32_t head_dim_;  // features of a head that may be rotated
  double share_ = 1;
  std::optional<int64_t> original_;
};

void ReadQueryScale(const Architecture& entry, FieldReader* object, ModelConfig* config) {
  constexpr const char* kKey = "llama_4_scaling_beta";
  if (!entry.query_scale) {
    return CheckNeutral(object, kKey, std::nullopt, "only null is supported for this model_type");
  }
  config->query_scale_beta = object->Number(kKey, kOptionalNumberRange, 0);
  if (config->query_scale_beta == 0) return;
  config->query_scale_length = object->Int("original_max_position_embeddings", kSeqLenRange);
}

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// Rotary settings of a model with separate ones for layers with windows: [full, with windows].
class TwoRopes {
 public:
  TwoRopes(const Architecture& entry, FieldReader* top, const RopeReader& reader)
      : reader_(reader),
        top_(top),
        full_theta_(top->Number("rope_theta", kThetaRange, entry.theta)) {
    window_theta_ = entry.window_theta_key == nullptr
                        ? entry.window_theta
                        : top->Number(entry.window_theta_key, kThetaRange, entry.window_theta);
  }

  static bool AreByKind(const FieldReader& object) {
    return object.Find(kFull) != nullptr || object.Find(kSliding) != nullptr;
  }

  std::vector<RopeConfig> Plain() const {
    return {reader_.Plain(top_, full_theta_), reader_.Plain(top_, window_theta_)};
  }

  // Settings that name no kind of layer apply to layers without a window.
  std::vector<RopeConfig> Read(FieldReader* object) const {
    if (!AreByKind(*object)) {
      return {reader_.Read(object, full_theta_, false), reader_.Plain(top_, window_theta_)};
    }
    std::vector<RopeConfig> ropes = Plain();
    for (size_t i = 0; i < 2; ++i) {
      std::optional<FieldReader> kind = object->Object(i == 0 ? kFull : kSliding);
      if (!kind) continue;
      ropes[i] = reader_.Read(&*kind, ropes[i].theta, true);
      object->Absorb(*kind);
    }
    return ropes;
  }

 private:
  const RopeReader& reader_;
  FieldReader* top_;
  double full_theta_;
  double window_theta_ = 0;
};

}  // namespace

void ReadRopes(const Architecture& architecture, FieldReader* reader, ModelConfig* config) {
  const RopeReader ropes(architecture, reader, config);
  const bool two = architecture.window_theta > 0;
  const TwoRopes pair(architecture, reader, ropes);
  const double theta = reader->Number("rope_theta", kThetaRange, architecture.theta);
  const auto read = [&](FieldReader* object) -> std::vector<RopeConfig> {
    ReadQueryScale(architecture, object, config);
    if (two) return pair.Read(object);
    for (const char* kind : {kFull, kSliding}) {
      CheckNeutral(object, kind, std::nullopt,
                   "one rotary for all layers is supported for this model_type");
    }
    return {ropes.Read(object, theta, false)};
  };

  // Settings under the older name apply to layers without a window, in a model with both kinds.
  constexpr std::string_view kNewer = "rope_parameters", kOlder = "rope_scaling";
  bool stated = false;
  for (const std::string_view key : {kNewer, kOlder}) {
    std::optional<FieldReader> object = reader->Object(key);
    if (!object) continue;
    if (two && key == kNewer && !TwoRopes::AreByKind(*object)) {
      object->Fail(kFull, "settings for \"full_attention\" and \"sliding_attention\" are needed");
    }
    std::vector<RopeConfig> found = read(&*object);
    reader->Absorb(*object);
    if (stated && found != config->ropes) {
      reader->Fail(key, "the same settings as in rope_parameters are needed, or neither");
    }
    config->ropes = std::move(found);
    stated = true;
  }
  if (stated) return;
  if (architecture.rope_default == nullptr) {
    config->ropes = two ? pair.Plain() : std::vector<RopeConfig>{ropes.Plain(reader, theta)};
    return;
  }
  const Result<Json> json = ParseJson(architecture.rope_default);
  MINISGL_CHECK(json.ok(), "the rotary default of {} is no JSON", architecture.name);
  FieldReader object(*json, "default", "rope_parameters.");
  config->ropes = read(&object);
  reader->Absorb(object);
}

}  // namespace minisgl::weights
