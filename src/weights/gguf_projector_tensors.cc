// The tensors of a projector file under the names of a model directory. See gguf_projector.h.
#include <fmt/core.h>

#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/tensor/block_format.h"
#include "weights/gguf_projector.h"

namespace minisgl::weights {
namespace {

// A tensor, or with `is_stem` all whose names begin with it and a dot: the name in a directory, and
// that in the file.
struct NamePair {
  std::string directory, file;
  bool is_stem = true;
};

std::string Joined(const TowerConfig& tower, const std::string& name) {
  return name.starts_with('/') ? name.substr(1) : tower.names.prefix + name;
}

// The names within a layer, "v.blk.N." in the file.
void AddLayers(const TowerConfig& tower, std::vector<NamePair>* pairs) {
  const TowerNames& names = tower.names;
  const std::pair<const std::string*, const char*> stems[] = {
      {&names.norm1, "ln1"},
      {&names.norm2, "ln2"},
      {&names.qkv, "attn_qkv"},
      {&names.query, "attn_q"},
      {&names.key, "attn_k"},
      {&names.value, "attn_v"},
      {&names.query_norm, "attn_q_norm"},
      {&names.key_norm, "attn_k_norm"},
      {&names.output, "attn_out"},
      {&names.post_norm1, "attn_post_norm"},
      {&names.post_norm2, "ffn_post_norm"},
      {&names.gate, "ffn_gate"},
      {&names.up, "ffn_up"},
      {&names.down, "ffn_down"},
  };
  for (int32_t i = 0; i < tower.num_layers; ++i) {
    const std::string in_directory = fmt::format("{}{}{}.", names.prefix, names.layers, i);
    const std::string in_file = fmt::format("v.blk.{}.", i);
    for (const auto& [name, stem] : stems) {
      if (!name->empty()) pairs->push_back({in_directory + *name, in_file + stem});
    }
    for (const auto& [name, whole] :
         {std::pair(&names.factor1, "ls1.weight"), std::pair(&names.factor2, "ls2.weight")}) {
      if (!name->empty()) pairs->push_back({in_directory + *name, in_file + whole, false});
    }
  }
}

// Names of projectors' tensors, which no two families share.
constexpr std::pair<const char*, const char*> kStepNames[] = {
    {"merger.ln_q", "v.post_ln"},
    {"merger.mlp.0", "mm.0"},
    {"merger.mlp.2", "mm.2"},
    {"merger.norm", "v.post_ln"},
    {"merger.linear_fc1", "mm.0"},
    {"merger.linear_fc2", "mm.2"},
    {"/multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"},
    {"/embed_vision.embedding_projection", "mm.input_projection"},
    {"/multi_modal_projector.norm", "mm.input_norm"},
    {"/multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"},
    {"/connector.modality_projection.proj", "mm.model.fc"},
};
constexpr std::pair<const char*, const char*> kWholeStepNames[] = {
    {"/multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"},
};

void AddSteps(const TowerConfig& tower, std::vector<NamePair>* pairs) {
  const bool is_intern = tower.name == "internvl";
  for (const TowerStep& step : tower.steps) {
    for (const auto& [name, file] : kStepNames) {
      if (step.name == name) pairs->push_back({Joined(tower, name), file});
    }
    for (const auto& [name, file] : kWholeStepNames) {
      if (step.name == name) pairs->push_back({Joined(tower, name), file, false});
    }
    if (step.kind == TowerStepKind::kScale) {
      for (const char* end : {"_bias", "_scale"}) {
        pairs->push_back({Joined(tower, step.name) + end, "v." + step.name + end, false});
      }
    }
  }
  // Two products whose names in the file count differently.
  const std::string stem = "multi_modal_projector.";
  if (is_intern) pairs->push_back({stem + "layer_norm", "mm.model.mlp.0"});
  pairs->push_back({stem + "linear_1", is_intern ? "mm.model.mlp.1" : "mm.1"});
  pairs->push_back({stem + "linear_2", is_intern ? "mm.model.mlp.3" : "mm.2"});
  for (size_t i = 0; i < tower.deepstack_layers.size(); ++i) {
    const std::string in_directory =
        fmt::format("{}deepstack_merger_list.{}.", tower.names.prefix, i);
    const std::string in_file = fmt::format("v.deepstack.{}.", tower.deepstack_layers[i]);
    for (const auto& [name, file] :
         {std::pair("norm", "norm"), {"linear_fc1", "fc1"}, {"linear_fc2", "fc2"}}) {
      pairs->push_back({in_directory + name, in_file + file});
    }
  }
}

std::vector<NamePair> PairsOf(const TowerConfig& tower) {
  const TowerNames& names = tower.names;
  std::vector<NamePair> pairs;
  AddLayers(tower, &pairs);
  AddSteps(tower, &pairs);
  for (const auto& [name, file] :
       {std::pair(&names.patch, "v.patch_embd"), std::pair(&names.first_norm, "v.pre_ln"),
        std::pair(&names.last_norm, "v.post_ln")}) {
    if (!name->empty()) pairs.push_back({names.prefix + *name, file});
  }
  for (const auto& [name, file] : {std::pair(&names.class_token, "v.class_embd"),
                                   std::pair(&names.places, "v.position_embd.weight")}) {
    if (!name->empty()) pairs.push_back({names.prefix + *name, file, false});
  }
  return pairs;
}

std::optional<DType> PlainTypeOf(const GgufTensor& tensor) {
  const std::string_view name = tensor.type->name;
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

// Tensors that no tower reads: of sounds, and a copy of a row of the text's embeddings.
bool IsOther(std::string_view name) {
  return name.starts_with("a.") || name.starts_with("mm.a.") || name == "v.token_embd.img_break";
}

class Finder {
 public:
  Finder(const GgufHeader& header, const TowerConfig& tower) : tower_(tower) {
    for (const GgufTensor& tensor : header.tensors) by_name_[tensor.name] = &tensor;
    const auto up = by_name_.find("v.blk.0.ffn_up.weight");
    // Older files have the names of the two matrices the other way round.
    up_is_down_ = !tower.gated && up != by_name_.end() && up->second->shape.size() == 2 &&
                  tower.hidden_size != tower.intermediate_size &&
                  up->second->shape[0] == tower.hidden_size;
  }

  Result<std::vector<GgufModelTensor>> Find() {
    for (const NamePair& pair : PairsOf(tower_)) {
      const std::string file = up_is_down_ ? Swapped(pair.file) : pair.file;
      if (!pair.is_stem) {
        const auto place = by_name_.find(file);
        if (place != by_name_.end()) MINISGL_RETURN_IF_ERROR(Add(pair.directory, *place->second));
        continue;
      }
      for (auto place = by_name_.lower_bound(file + ".");
           place != by_name_.end() && place->first.starts_with(file + "."); ++place) {
        const std::string end = place->first.substr(file.size());
        MINISGL_RETURN_IF_ERROR(Add(NameOf(pair.directory, end), *place->second));
      }
    }
    for (const auto& [name, tensor] : by_name_) {
      if (used_.contains(tensor) || IsOther(name)) continue;
      return BadInput("tensor \"{}\": the tower of {} has no use for it", Visible(name, 200),
                      tower_.name);
    }
    return std::move(found_);
  }

 private:
  static std::string Swapped(const std::string& name) {
    for (const auto& [from, to] : {std::pair(".ffn_up", ".ffn_down"), {".ffn_down", ".ffn_up"}}) {
      const size_t at = name.find(from);
      if (at != std::string::npos) return name.substr(0, at) + to;
    }
    return name;
  }

  // Bounds of a matrix NAME.linear are beside it.
  static std::string NameOf(const std::string& stem, const std::string& end) {
    constexpr std::string_view kLinear = ".linear";
    const bool is_bound = end.starts_with(".input_") || end.starts_with(".output_");
    if (!is_bound || !stem.ends_with(kLinear)) return stem + end;
    return stem.substr(0, stem.size() - kLinear.size()) + end;
  }

  Status Add(const std::string& name, const GgufTensor& tensor) {
    used_.insert(&tensor);
    if (tensor.name == "v.patch_embd.weight.1") return Status();  // is read with the other
    if (tensor.name == "v.patch_embd.weight") return AddPatch(name, tensor);
    const std::optional<DType> dtype = PlainTypeOf(tensor);
    if (dtype && !IsTurned(tensor)) {
      found_.push_back(
          {name, std::nullopt, {tensor.data.data(), *dtype, tensor.shape}, nullptr, tensor.part});
      return Status();
    }
    if (tensor.shape.size() != 2) return NotRead(tensor);
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    WeightTensor matrix;
    if (dtype) {
      matrix = TensorView{tensor.data.data(), *dtype, tensor.shape};
    } else {
      const BlockFormat* const format = FindBlockFormat(tensor.type->name);
      if (format == nullptr || columns % format->block_elements != 0) return NotRead(tensor);
      matrix = WeightTensor(rows, columns, format, tensor.data.data()).WithCodes();
    }
    if (IsTurned(tensor)) {
      if (rows != tower_.attention_width()) return NotRead(tensor);
      matrix = matrix.TakeRows(HalvesOfHeads(rows));
    }
    found_.push_back({name, std::move(matrix), {}, nullptr, tensor.part});
    return Status();
  }

  // Queries and keys of Pixtral are stored with the two features of a rotated pair side by side.
  bool IsTurned(const GgufTensor& tensor) const {
    return tower_.rotation == TowerRotation::kAlternating &&
           (tensor.name.ends_with(".attn_q.weight") || tensor.name.ends_with(".attn_k.weight"));
  }

  std::vector<int64_t> HalvesOfHeads(int64_t count) const {
    const int64_t half = tower_.head_dim / 2;
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < count; ++row) {
      const int64_t in_head = row % tower_.head_dim;
      rows.push_back(row - in_head + in_head % half * 2 + in_head / half);
    }
    return rows;
  }

  static Status NotRead(const GgufTensor& tensor) {
    return BadInput("tensor \"{}\": its type or shape is not read there (found type {}, {})",
                    Visible(tensor.name, 200), tensor.type->name, ShapeToString(tensor.shape));
  }

  // A directory has the frames of a patch in one tensor, and Gemma 4's values by pixel.
  Status AddPatch(const std::string& name, const GgufTensor& tensor) {
    const int64_t side = tower_.patch_size, pixels = side * side;
    const std::vector<int64_t> shape = {tower_.hidden_size, 3, side, side};
    std::vector<const GgufTensor*> frames = {&tensor};
    const auto second = by_name_.find("v.patch_embd.weight.1");
    if (second != by_name_.end()) frames.push_back(second->second);
    if (std::ssize(frames) != tower_.num_frames) {
      return BadInput("tensor \"{}\": {} frames are needed (found {})", tensor.name,
                      tower_.num_frames, frames.size());
    }
    const std::optional<DType> dtype = PlainTypeOf(tensor);
    for (const GgufTensor* const frame : frames) {
      if (!dtype || PlainTypeOf(*frame) != dtype || frame->shape != shape) return NotRead(*frame);
    }
    const bool by_pixel = tower_.patches == TowerPatches::kRows;
    if (frames.size() == 1 && !by_pixel) {
      found_.push_back(
          {name, std::nullopt, {tensor.data.data(), *dtype, shape}, nullptr, tensor.part});
      return Status();
    }
    const size_t width = DTypeBytes(*dtype);
    const auto memory =
        std::make_shared<std::vector<std::byte>>(tensor.data.size() * frames.size());
    std::byte* out = memory->data();
    for (int64_t i = 0; i < tower_.hidden_size * 3 * pixels * tower_.num_frames; ++i) {
      // `i` counts values in the order of the directory: [D, 3, frame, y, x], or [D, y, x, 3].
      const int64_t frame = i / pixels % tower_.num_frames;
      const int64_t row = i / (3 * pixels * tower_.num_frames);
      const int64_t in_row = i % (3 * pixels * tower_.num_frames);
      const int64_t channel = by_pixel ? in_row % 3 : in_row / (pixels * tower_.num_frames);
      const int64_t pixel = by_pixel ? in_row / 3 : in_row % pixels;
      const auto from = static_cast<size_t>((row * 3 + channel) * pixels + pixel);
      std::memcpy(out,
                  frames[by_pixel ? 0 : static_cast<size_t>(frame)]->data.data() + from * width,
                  width);
      out += width;
    }
    const std::vector<int64_t> stored = {tower_.hidden_size, 3 * pixels * tower_.num_frames};
    found_.push_back({name, std::nullopt, {memory->data(), *dtype, stored}, memory, tensor.part});
    return Status();
  }

  const TowerConfig& tower_;
  std::map<std::string, const GgufTensor*, std::less<>> by_name_;
  bool up_is_down_ = false;
  std::set<const GgufTensor*> used_;
  std::vector<GgufModelTensor> found_;
};

}  // namespace

Result<std::vector<GgufModelTensor>> FindProjectorTensors(const GgufHeader& header,
                                                          const TowerConfig& tower) {
  return Finder(header, tower).Find();
}

}  // namespace minisgl::weights
