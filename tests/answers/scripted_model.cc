// One head sees by its rotary phase how far <|go|> is behind, and the gated layer makes of that
// number one step of the script. <|pre|> stands one token before it: attention is divided between
// the two, so that the weight of <|go|> falls with the distance.
#include "answers/scripted_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/json.h"

namespace minisgl::answers {
namespace {

constexpr double kEpsilon = 1e-6, kTheta = 10000, kConstant = 8, kMark = 4;
constexpr double kFastSlope = 3, kSlowSlope = 40;
constexpr size_t kHead = 64, kFast = 16, kSlow = 31;  // rotary pairs

// How a vocabulary of bytes spells a byte.
std::string ByteName(unsigned byte) {
  unsigned spare = 0;
  for (unsigned at = 0; at <= byte; ++at) {
    const bool kept = (at >= 33 && at < 127) || (at >= 161 && at < 173) || at >= 174;
    if (at == byte) {
      const unsigned code = kept ? byte : 256 + spare;
      if (code < 128) return std::string(1, static_cast<char>(code));
      return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    }
    spare += kept ? 0 : 1;
  }
  return "";
}

struct Vocabulary {
  std::map<std::string, size_t> words, added;
  std::vector<size_t> script;  // ids, with that of the end
  size_t size() const { return words.size() + added.size(); }
};

Vocabulary VocabularyOf(const Script& script, const std::vector<std::string>& names) {
  Vocabulary vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte) vocabulary.words.emplace(ByteName(byte), byte);
  const auto is_added = [&names](const std::string& token) {
    return std::find(names.begin(), names.end(), token) != names.end();
  };
  const auto spelled = [](const std::string& token) {
    std::string name;
    for (const char byte : token) name += ByteName(static_cast<uint8_t>(byte));
    return name;
  };
  for (const std::string& token : script.tokens) {
    if (!is_added(token)) vocabulary.words.emplace(spelled(token), vocabulary.words.size());
  }
  for (const std::string& name : names) vocabulary.added.emplace(name, vocabulary.size());
  for (const std::string& token : script.tokens) {
    vocabulary.script.push_back(is_added(token) ? vocabulary.added.at(token)
                                                : vocabulary.words.at(spelled(token)));
  }
  vocabulary.script.push_back(vocabulary.added.at(script.end));
  return vocabulary;
}

struct Matrix {
  size_t rows, columns;
  std::vector<double> values;
  Matrix(size_t height, size_t width) : rows(height), columns(width), values(height * width) {}
  double& operator()(size_t row, size_t column) { return values[row * columns + column]; }
  FileTensor Named(const std::string& name) const {
    const std::vector<float> data(values.begin(), values.end());
    return FileTensor::F32(name, {static_cast<int64_t>(rows), static_cast<int64_t>(columns)}, data);
  }
};

// The root of the mean square of a row with these values and zeros.
double Rms(double a, double b, size_t width) {
  return std::sqrt((a * a + b * b) / static_cast<double>(width) + kEpsilon);
}

// The weight of <|go|> in the attention `distance` tokens behind it; it grows with the distance.
double WeightOfGo(double distance, double scale) {
  const double fast = std::pow(kTheta, -2.0 * kFast / kHead);
  const double slow = std::pow(kTheta, -2.0 * kSlow / kHead);
  const double on_go =
      scale * (kFastSlope * std::sin(distance * fast) + kSlowSlope * std::cos(distance * slow));
  const double on_pre = scale * kSlowSlope * std::cos((distance + 1) * slow);
  return 1 / (1 + std::exp(on_pre - on_go));
}

// Rows j of the gated layer turn on step j where the weight passes from that of the step before.
void AddSteps(const std::vector<double>& weights, size_t width, Matrix* gate, Matrix* up,
              Matrix* down) {
  constexpr double kSteep = 3e6;
  const size_t steps = weights.size() - 2;
  for (size_t j = 0; j <= steps; ++j) {
    const double low = j > 0 ? weights[j - 1] : 2 * weights[0] - weights[1];
    const double high = j > 0 ? weights[j] : weights[0];
    const double first = low + (high - low) * 0.3, second = low + (high - low) * 0.7;
    for (const auto& [row, threshold] : {std::pair(2 * j, first), std::pair(2 * j + 1, second)}) {
      (*gate)(row, 3) = kSteep;
      (*gate)(row, 0) = -kSteep * threshold / kConstant;
      (*up)(row, 0) = 1;
    }
    const double rms = Rms(kConstant, weights[j], width);
    const double unit = 10 / (kSteep * (second - first) / rms * (kConstant / rms));
    for (const double sign : {1.0, -1.0}) {
      const size_t column = 2 * j + (sign > 0 ? 0 : 1);
      if (j < steps) (*down)(4 + j, column) += sign * unit;
      if (j > 0) (*down)(3 + j, column) -= sign * unit;
    }
  }
}

std::vector<FileTensor> TensorsOf(const Vocabulary& vocabulary, size_t width, size_t inner) {
  const size_t go = vocabulary.added.at("<|go|>"), pre = vocabulary.added.at("<|pre|>");
  const size_t steps = vocabulary.script.size();
  Matrix table(vocabulary.size(), width), logits(vocabulary.size(), width);
  for (size_t id = 0; id < vocabulary.size(); ++id) table(id, 0) = kConstant;
  table(go, 1) = table(pre, 2) = kMark;
  const double plain = kConstant / Rms(kConstant, 0, width);
  const double marked = Rms(kConstant, kMark, width), root = std::sqrt(kHead);
  Matrix q(width, width), k(width, width), v(width, width), o(width, width);
  q(kFast, 0) = kFastSlope / plain;
  q(kSlow, 0) = kSlowSlope / plain;
  k(kFast + kHead / 2, 1) = k(kSlow, 1) = k(kSlow, 2) = root * marked / kMark;
  v(0, 1) = marked / kMark;
  o(3, 0) = 1;
  std::vector<double> weights;
  for (size_t distance = 0; distance < steps + 2; ++distance) {
    const double scale = distance == 0 ? kConstant / marked / plain : 1;
    weights.push_back(WeightOfGo(static_cast<double>(distance), scale));
  }
  Matrix gate(inner, width), up(inner, width), down(width, inner);
  AddSteps(weights, width, &gate, &up, &down);
  for (size_t j = 0; j < steps; ++j) logits(vocabulary.script[j], 4 + j) += 5;
  const std::string layer = "model.layers.0.";
  std::vector<FileTensor> tensors = {
      table.Named("model.embed_tokens.weight"),   logits.Named("lm_head.weight"),
      q.Named(layer + "self_attn.q_proj.weight"), k.Named(layer + "self_attn.k_proj.weight"),
      v.Named(layer + "self_attn.v_proj.weight"), o.Named(layer + "self_attn.o_proj.weight"),
      gate.Named(layer + "mlp.gate_proj.weight"), up.Named(layer + "mlp.up_proj.weight"),
      down.Named(layer + "mlp.down_proj.weight")};
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    tensors.push_back(FileTensor::F32(layer + norm + ".weight", {static_cast<int64_t>(width)},
                                      std::vector<float>(width, 1)));
  }
  tensors.push_back(FileTensor::F32("model.norm.weight", {static_cast<int64_t>(width)},
                                    std::vector<float>(width, 1)));
  return tensors;
}

void WriteJson(const std::string& path, const Json& json) { std::ofstream(path) << json.Dump(); }

Json TokenizerJson(const Vocabulary& vocabulary, const Script& script) {
  Json words = Json(Json::Object()), added = Json(Json::Array());
  for (const auto& [word, id] : vocabulary.words) words.Set(word, static_cast<int64_t>(id));
  for (const auto& [name, id] : vocabulary.added) {
    const bool is_plain =
        std::find(script.added.begin(), script.added.end(), name) != script.added.end();
    Json token = Json(Json::Object());
    token.Set("id", static_cast<int64_t>(id)).Set("content", name).Set("special", !is_plain);
    for (const char* rule : {"single_word", "lstrip", "rstrip", "normalized"}) {
      token.Set(rule, false);
    }
    added.Append(std::move(token));
  }
  Json level = Json(Json::Object());
  level.Set("type", "ByteLevel").Set("add_prefix_space", false).Set("trim_offsets", true);
  level.Set("use_regex", true);
  Json model = Json(Json::Object());
  model.Set("type", "BPE").Set("vocab", std::move(words)).Set("merges", Json(Json::Array()));
  Json tokenizer = Json(Json::Object());
  tokenizer.Set("version", "1.0").Set("pre_tokenizer", level).Set("decoder", level);
  tokenizer.Set("added_tokens", std::move(added)).Set("model", std::move(model));
  return tokenizer;
}

Json ConfigJson(const Vocabulary& vocabulary, size_t width, size_t inner, size_t end) {
  const auto heads = static_cast<int64_t>(width / kHead);
  Json config = Json(Json::Object());
  config.Set("architectures", Json(Json::Array{Json("LlamaForCausalLM")}));
  config.Set("model_type", "llama").Set("hidden_act", "silu").Set("torch_dtype", "float32");
  config.Set("hidden_size", static_cast<int64_t>(width)).Set("num_hidden_layers", 1);
  config.Set("intermediate_size", static_cast<int64_t>(inner)).Set("num_attention_heads", heads);
  config.Set("num_key_value_heads", heads).Set("head_dim", static_cast<int64_t>(kHead));
  config.Set("max_position_embeddings", 4096).Set("rms_norm_eps", kEpsilon);
  config.Set("rope_theta", kTheta).Set("tie_word_embeddings", false).Set("bos_token_id", Json());
  config.Set("vocab_size", static_cast<int64_t>(vocabulary.size()));
  config.Set("eos_token_id", static_cast<int64_t>(end));
  return config;
}

}  // namespace

std::string ScriptTemplate(const std::string& tags, const std::string& behind) {
  return "{# " + tags + " #}{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}" +
         "{% if add_generation_prompt %}" + kScriptBegin + behind + "{% endif %}";
}

ScriptedModel::ScriptedModel(const Script& script) {
  std::vector<std::string> names = {"<|pre|>", "<|go|>", script.end};
  names.insert(names.end(), script.special.begin(), script.special.end());
  names.insert(names.end(), script.added.begin(), script.added.end());
  const Vocabulary vocabulary = VocabularyOf(script, names);
  const size_t steps = vocabulary.script.size();
  MINISGL_CHECK(steps < 120, "a script of {} tokens is too long", steps);
  const size_t width = 128, inner = (2 * (steps + 1) + 63) / 64 * 64;
  WriteCheckpoint(dir_, TensorsOf(vocabulary, width, inner));
  WriteJson(path() + "/config.json",
            ConfigJson(vocabulary, width, inner, vocabulary.added.at(script.end)));
  WriteJson(path() + "/tokenizer.json", TokenizerJson(vocabulary, script));
  Json settings = Json(Json::Object());
  settings.Set("chat_template", script.chat_template).Set("eos_token", script.end);
  WriteJson(path() + "/tokenizer_config.json", settings);
}

}  // namespace minisgl::answers
