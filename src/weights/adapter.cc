// See minisgl/weights/adapter.h. Tensors are sorted to the modules that they change; what the
// config says of those is then checked against them. The tensors decide: a module is changed if the
// file has a tensor of it.
#include "minisgl/weights/adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "weights/adapter_changes.h"
#include "weights/adapter_config.h"
#include "weights/gguf_adapter.h"
#include "weights/model_dir.h"

namespace minisgl {
namespace weights {
namespace {

constexpr uint64_t kAdapterConfigBytesMax = 16 << 20;
constexpr const char* kAdapterConfigName = "adapter_config.json";
constexpr const char* kAdapterTensorsName = "adapter_model.safetensors";
constexpr std::string_view kPeftPrefix = "base_model.model.";

// What a tensor is of its module.
enum class AdapterPart : uint8_t {
  kA,
  kB,
  kBBias,
  kEmbeddingA,
  kEmbeddingB,
  kMagnitude,
  kBias,
  kBaseWeight,  // a copy of the base's
  kTokenRows,
  kWeight,
};

struct AdapterEnding {
  std::string_view text;
  AdapterPart part;
};
// The longer of two that fit comes first.
constexpr AdapterEnding kAdapterEndings[] = {
    {".lora_A.weight", AdapterPart::kA},
    {".lora_B.weight", AdapterPart::kB},
    {".lora_B.bias", AdapterPart::kBBias},
    {".lora_embedding_A", AdapterPart::kEmbeddingA},
    {".lora_embedding_B", AdapterPart::kEmbeddingB},
    {".lora_magnitude_vector.weight", AdapterPart::kMagnitude},
    {".lora_magnitude_vector", AdapterPart::kMagnitude},
    {".token_adapter.trainable_tokens_delta", AdapterPart::kTokenRows},
    {".base_layer.bias", AdapterPart::kBias},
    {".base_layer.weight", AdapterPart::kBaseWeight},
    {".bias", AdapterPart::kBias},
    {".weight", AdapterPart::kWeight},
};

struct ModuleTensors {
  std::map<AdapterPart, TensorView> parts;
  std::map<AdapterPart, std::string> names;

  bool Has(AdapterPart part) const { return parts.contains(part); }
};

class AdapterReader {
 public:
  AdapterReader(const AdapterConfig& config, const std::string& file, const Checkpoint& tensors)
      : config_(config), file_(Visible(file, 400)), tensors_(tensors) {}

  Result<std::vector<AdapterChange>> Run() {
    MINISGL_RETURN_IF_ERROR(Sort());
    std::vector<AdapterChange> changes;
    for (const auto& [module, found] : modules_) {
      MINISGL_ASSIGN_OR_RETURN(std::optional<AdapterChange> change, ReadChange(module, found));
      if (change) changes.push_back(*std::move(change));
    }
    if (changes.empty()) {
      return BadInput("{}: has no tensor of an adapter", tensors_.FileOf(AnyName()));
    }
    MINISGL_RETURN_IF_ERROR(CheckTargets(changes));
    return changes;
  }

 private:
  std::string AnyName() const {
    const std::vector<std::string> names = tensors_.Names();
    return names.empty() ? "" : names[0];
  }
  // "FILE: tensor "NAME""
  std::string Title(const std::string& name) const {
    return fmt::format("{}: tensor \"{}\"", Visible(tensors_.FileOf(name), 400),
                       Visible(name, 200));
  }

  Status Sort() {
    for (const std::string& name : tensors_.Names()) {
      const AdapterEnding* ending = nullptr;
      for (const AdapterEnding& one : kAdapterEndings) {
        if (ending == nullptr && name.ends_with(one.text)) ending = &one;
      }
      if (!name.starts_with(kPeftPrefix) || ending == nullptr ||
          name.size() <= kPeftPrefix.size() + ending->text.size()) {
        return BadInput(
            "{} is of no adapter of PEFT: names begin with \"{}\" and end with "
            "\".lora_A.weight\" or the like",
            Title(name), kPeftPrefix);
      }
      const size_t length = name.size() - kPeftPrefix.size() - ending->text.size();
      ModuleTensors& found = modules_[name.substr(kPeftPrefix.size(), length)];
      auto view = tensors_.Get(name);
      if (!view.ok()) return view.status();
      if (!found.names.emplace(ending->part, name).second) {
        return BadInput("{} and \"{}\" are the same of one module", Title(name),
                        Visible(found.names[ending->part], 200));
      }
      found.parts.emplace(ending->part, std::move(view).value());
    }
    return Status();
  }

  // The tensor `part`, of a shape in which a negative size may be any that is positive.
  Result<TensorView> Take(const ModuleTensors& found, AdapterPart part,
                          const std::vector<int64_t>& shape) const {
    const std::string& name = found.names.at(part);
    const TensorView& view = found.parts.at(part);
    bool fits = view.shape.size() == shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) {
      fits = view.shape[i] > 0 && (shape[i] < 0 || view.shape[i] == shape[i]);
    }
    if (!fits) {
      std::string wanted = ShapeToString(shape);
      for (size_t at = wanted.find("-1"); at != std::string::npos; at = wanted.find("-1")) {
        wanted.replace(at, 2, "*");
      }
      return BadInput("{} has shape {}; {} is needed", Title(name), ShapeToString(view.shape),
                      wanted);
    }
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      const float value = view.At(i);
      if (!std::isfinite(value)) {
        return BadInput("{}: element {} is {}; weights must be finite", Title(name), i, value);
      }
    }
    return view;
  }

  Status Missing(const ModuleTensors& found, AdapterPart has, std::string_view lacks) const {
    return BadInput("{} has no \"{}\" beside it", Title(found.names.at(has)), lacks);
  }

  Result<std::optional<AdapterChange>> ReadChange(const std::string& module,
                                                  const ModuleTensors& found) {
    AdapterChange change;
    change.module = module;
    MINISGL_RETURN_IF_ERROR(ReadLowRank(found, &change));
    if (found.Has(AdapterPart::kBias)) {
      MINISGL_ASSIGN_OR_RETURN(change.bias, Take(found, AdapterPart::kBias, {-1}));
    }
    if (found.Has(AdapterPart::kTokenRows)) MINISGL_RETURN_IF_ERROR(ReadTokenRows(found, &change));
    if (found.Has(AdapterPart::kWeight)) {
      const auto is_of = [&](const std::string& name) { return IsNamed(module, name); };
      const auto& saved = config_.modules_to_save;
      if (std::none_of(saved.begin(), saved.end(), is_of)) {
        return BadInput("{} is not of a module that modules_to_save of {} names",
                        Title(found.names.at(AdapterPart::kWeight)), file_);
      }
      MINISGL_ASSIGN_OR_RETURN(change.weight, Take(found, AdapterPart::kWeight, {-1, -1}));
    }
    const bool is_copy = found.Has(AdapterPart::kBaseWeight) && found.parts.size() == 1;
    if (is_copy) return std::optional<AdapterChange>();  // changes nothing
    return std::optional<AdapterChange>(std::move(change));
  }

  Status ReadLowRank(const ModuleTensors& found, AdapterChange* change) {
    const bool is_embedding =
        found.Has(AdapterPart::kEmbeddingA) || found.Has(AdapterPart::kEmbeddingB);
    const AdapterPart a = is_embedding ? AdapterPart::kEmbeddingA : AdapterPart::kA;
    const AdapterPart b = is_embedding ? AdapterPart::kEmbeddingB : AdapterPart::kB;
    if (is_embedding && (found.Has(AdapterPart::kA) || found.Has(AdapterPart::kB))) {
      return BadInput("{} is of a module that has a product's low-rank matrices, too",
                      Title(found.names.begin()->second));
    }
    for (const AdapterPart part : {AdapterPart::kBBias, AdapterPart::kMagnitude}) {
      if (found.Has(part) && !found.Has(AdapterPart::kA) && !is_embedding) {
        return Missing(found, part, "lora_A.weight");
      }
    }
    if (!found.Has(a) && !found.Has(b)) return Status();
    if (!found.Has(a)) return Missing(found, b, "lora_A");
    if (!found.Has(b)) return Missing(found, a, "lora_B");
    MINISGL_ASSIGN_OR_RETURN(change->a, Take(found, a, {-1, -1}));
    const int64_t rank = change->a.shape[0];
    MINISGL_ASSIGN_OR_RETURN(change->b, Take(found, b, {-1, rank}));
    const int64_t num_out = change->b.shape[0];
    change->rank = rank;
    change->is_embedding = is_embedding;
    MINISGL_RETURN_IF_ERROR(SetScale(found.names.at(a), change));
    if (found.Has(AdapterPart::kBBias)) {
      MINISGL_ASSIGN_OR_RETURN(change->b_bias, Take(found, AdapterPart::kBBias, {num_out}));
    }
    if (found.Has(AdapterPart::kMagnitude)) {
      MINISGL_ASSIGN_OR_RETURN(change->magnitude, Take(found, AdapterPart::kMagnitude, {num_out}));
      if (is_embedding) {
        return BadInput("{}: DoRA of an embedding is not supported",
                        Title(found.names.at(AdapterPart::kMagnitude)));
      }
    }
    const bool is_dora = found.Has(AdapterPart::kMagnitude);
    if (is_dora != (config_.use_dora && !is_embedding && change->rank_of_expert == 0)) {
      if (!is_dora) return Missing(found, a, "lora_magnitude_vector");
      return BadInput("{} is of DoRA, and use_dora of {} is false",
                      Title(found.names.at(AdapterPart::kMagnitude)), file_);
    }
    return Status();
  }

  // The rank and alpha of the config; a parameter of E experts has E * r rows.
  Status SetScale(const std::string& name, AdapterChange* change) const {
    std::string module = change->module;
    constexpr std::string_view kNested = ".base_layer";
    while (module.ends_with(kNested)) module.resize(module.size() - kNested.size());
    const int64_t r = config_.RankOf(module);
    const bool of_experts = IsNamed(module, "experts") && !change->is_embedding;
    if (change->rank != r && !(of_experts && change->rank % r == 0)) {
      return BadInput("{} has {} rows, and the rank of its module by {} is {}", Title(name),
                      change->rank, file_, r);
    }
    if (of_experts) change->rank_of_expert = r;
    const double alpha = config_.AlphaOf(module);
    const auto rank = static_cast<double>(r);
    change->scale = alpha / (config_.use_rslora ? std::sqrt(rank) : rank);
    return Status();
  }

  Status ReadTokenRows(const ModuleTensors& found, AdapterChange* change) const {
    for (const auto& [name, ids] : config_.tokens) {
      if (IsNamed(change->module, name)) change->tokens = ids;
    }
    if (change->tokens.empty()) {
      return BadInput("{} is of a module that trainable_token_indices of {} does not name",
                      Title(found.names.at(AdapterPart::kTokenRows)), file_);
    }
    MINISGL_ASSIGN_OR_RETURN(
        change->token_rows, Take(found, AdapterPart::kTokenRows, {std::ssize(change->tokens), -1}));
    return Status();
  }

  // What the config names must be in the file: an adapter of which nothing fits would answer as the
  // base.
  Status CheckTargets(const std::vector<AdapterChange>& changes) const {
    const auto lacks = [&](const char* key, const std::string& name) {
      return BadInput("{}: {} names \"{}\", of which {} has no tensor", file_, key,
                      Visible(name, 200), Visible(tensors_.FileOf(AnyName()), 400));
    };
    const auto has = [&](const auto& is_it) {
      return std::any_of(changes.begin(), changes.end(), is_it);
    };
    for (const std::string& name : config_.targets) {
      const auto is_it = [&](const AdapterChange& change) {
        return change.is_low_rank() && IsNamed(change.module, name);
      };
      if (!has(is_it)) return lacks("target_modules", name);
    }
    if (config_.target_pattern) {
      const auto is_it = [&](const AdapterChange& change) {
        return change.is_low_rank() && config_.target_pattern->Matches(change.module);
      };
      if (!has(is_it)) return lacks("target_modules", config_.target_text);
    }
    for (const std::string& name : config_.modules_to_save) {
      const auto is_it = [&](const AdapterChange& change) {
        return change.weight.data != nullptr && IsNamed(change.module, name);
      };
      if (!has(is_it)) return lacks("modules_to_save", name);
    }
    for (const auto& [name, ids] : config_.tokens) {
      const auto is_it = [&](const AdapterChange& change) {
        return change.token_rows.data != nullptr && IsNamed(change.module, name);
      };
      if (!has(is_it)) return lacks("trainable_token_indices", name);
    }
    const auto is_of_experts = [](const AdapterChange& change) {
      return change.rank_of_expert > 0;
    };
    if (!config_.target_parameters.empty() && !has(is_of_experts)) {
      return lacks("target_parameters", config_.target_parameters[0]);
    }
    return Status();
  }

  const AdapterConfig& config_;
  const std::string file_;
  const Checkpoint& tensors_;
  std::map<std::string, ModuleTensors> modules_;
};

}  // namespace
}  // namespace weights

std::string HashText(const ContentHash& hash) {
  return fmt::format("{:016x}{:016x}", hash[0], hash[1]);
}

bool IsAdapterDir(const std::string& dir) {
  if (IsGgufFile(dir)) return true;
  return weights::IsListed(dir, weights::kAdapterConfigName);
}

Result<std::shared_ptr<const Adapter>> ReadAdapter(const std::string& config,
                                                   const std::string& file,
                                                   std::shared_ptr<const Checkpoint> tensors) {
  MINISGL_ASSIGN_OR_RETURN(const weights::AdapterConfig read,
                           weights::ReadAdapterConfig(config, file));
  auto adapter = std::make_shared<Adapter>();
  MINISGL_ASSIGN_OR_RETURN(adapter->changes, weights::AdapterReader(read, file, *tensors).Run());
  if (read.ties_embeddings) {
    for (const AdapterChange& change : adapter->changes) {
      if (!weights::IsNamed(change.module, "embed_tokens") &&
          !weights::IsNamed(change.module, "lm_head")) {
        continue;
      }
      return BadInput(
          "{}: key \"ensure_weight_tying\": found true; a changed embedding or head "
          "that is tied to the other is not supported",
          Visible(file, 400));
    }
  }
  adapter->base = read.base;
  if (read.targets_all) adapter->targets = read.targets;
  adapter->hash = weights::HashOfChanges(adapter->changes);
  adapter->num_bytes = weights::BytesOfChanges(adapter->changes);
  adapter->memory = tensors->Keep();
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& dir) {
  using namespace weights;  // NOLINT: the names of files
  if (IsGgufFile(dir)) return LoadGgufAdapter(dir);
  MINISGL_RETURN_IF_ERROR(CheckModelDir(dir));
  const std::string file = JoinPath(dir, kAdapterConfigName);
  if (!IsListed(dir, kAdapterConfigName)) {
    return MakeStatus(StatusCode::kNoInput, "{}: has no {}: it is no adapter of PEFT",
                      Visible(dir, 400), kAdapterConfigName);
  }
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kAdapterConfigBytesMax));
  if (!IsListed(dir, kAdapterTensorsName)) {
    // What the kind lacks is said first.
    MINISGL_RETURN_IF_ERROR(ReadAdapterConfig(text, file).status());
    if (IsListed(dir, "adapter_model.bin")) {
      return BadInput(
          "{}: adapter_model.bin is a pickle, which is not read; save the adapter as "
          "{} (PEFT does since 2024)",
          Visible(dir, 400), kAdapterTensorsName);
    }
    return MissingFile(dir, kAdapterTensorsName);
  }
  MINISGL_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> tensors,
                           Checkpoint::OpenFile(JoinPath(dir, kAdapterTensorsName)));
  MINISGL_ASSIGN_OR_RETURN(auto adapter, ReadAdapter(text, file, std::move(tensors)));
  auto named = std::make_shared<Adapter>(*adapter);
  named->dir = dir;
  return std::shared_ptr<const Adapter>(std::move(named));
}

}  // namespace minisgl
