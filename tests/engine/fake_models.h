// Models beside a target, for tests of the list (minisgl/model/model_list.h): one matrix from a
// file, a workspace, and as many layers with a share of the pages as wanted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "minisgl/device_array.h"
#include "minisgl/model/model_list.h"

namespace minisgl {

// A Llama in bf16 of the width of models of a billion parameters, with 8 KV heads of 64.
inline ModelConfig WideConfig(int32_t num_layers) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.dtype = DType::kBF16;
  config.vocab_size = 32000;
  config.hidden_size = 2048;
  config.intermediate_size = 5632;
  config.num_layers = num_layers;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.max_seq_len = 131072;
  config.ropes = {{.dim = config.head_dim}};
  config.layers.resize(static_cast<size_t>(num_layers));
  return config;
}

struct FakeModelParts {
  ModelRole role = ModelRole::kTower;
  std::string name = "FakeTower";
  std::string dir;     // "": the target's files
  std::string tensor;  // [num_out, num_in]
  int64_t num_out = 0, num_in = 0;
  int64_t num_floats = 0;             // of the workspace
  std::optional<ModelConfig> layers;  // in pages
};

// What a rank has loaded of a FakeModel.
class LoadedFake final : public RankModel {
 public:
  LoadedFake(Matrix matrix, DeviceArray<float> space, uint64_t weight_bytes, uint64_t num_bytes,
             DecoderTables shared)
      : matrix_(std::move(matrix)),
        space_(std::move(space)),
        weight_bytes_(weight_bytes),
        num_bytes_(num_bytes),
        shared_(std::move(shared)) {}
  uint64_t weight_bytes() const override { return weight_bytes_; }
  uint64_t workspace_bytes() const override { return num_bytes_; }
  const Matrix& matrix() const { return matrix_; }
  // The target's, which it reads in place of its own.
  const DecoderTables& shared() const { return shared_; }

 private:
  const Matrix matrix_;
  const DeviceArray<float> space_;
  const uint64_t weight_bytes_, num_bytes_;
  const DecoderTables shared_;
};

// Whole on each rank, in bf16 unless another type is asked for.
class FakeModel final : public ListedModel {
 public:
  explicit FakeModel(FakeModelParts parts) : parts_(std::move(parts)) {}

  ModelRole role() const override { return parts_.role; }
  const std::string& name() const override { return parts_.name; }
  const std::string& dir() const override { return parts_.dir; }
  WeightFormat FormatFor(std::optional<DType> dtype, Quantization) const override {
    return dtype.value_or(DType::kBF16);
  }
  bool is_cut() const override { return false; }
  Status CheckDivides(int32_t) const override { return Status(); }
  std::optional<uint64_t> WeightBytes(const DecoderOptions& options) const override {
    return static_cast<uint64_t>(parts_.num_out * parts_.num_in) *
           DTypeBytes(options.weight_format.dtype);
  }
  std::optional<uint64_t> WorkspaceBytes(const DecoderOptions&) const override {
    return static_cast<uint64_t>(parts_.num_floats) * sizeof(float);
  }
  std::optional<uint64_t> ScratchBytes(const DecoderOptions&, int) const override { return 0; }
  const ModelConfig* layers() const override { return parts_.layers ? &*parts_.layers : nullptr; }
  std::string PackKey(const WeightFormat& format) const override {
    return parts_.name + " " + format.Name();
  }
  Result<std::unique_ptr<RankModel>> Load(const Checkpoint& checkpoint,
                                          const DecoderOptions& options, const Decoder* target,
                                          Ops* ops) const override {
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint.Get(parts_.tensor));
    const WeightTensor part(view);
    MINISGL_ASSIGN_OR_RETURN(Matrix matrix, ops->PackMatrix({&part, 1}, options.weight_format));
    MINISGL_ASSIGN_OR_RETURN(
        auto space,
        DeviceArray<float>::Make(ops, {static_cast<uint64_t>(parts_.num_floats), uint64_t{1}}));
    return std::unique_ptr<RankModel>(
        std::make_unique<LoadedFake>(std::move(matrix), std::move(space), *WeightBytes(options),
                                     *WorkspaceBytes(options), target->tables()));
  }

 private:
  const FakeModelParts parts_;
};

inline std::shared_ptr<const ListedModel> MakeFakeModel(FakeModelParts parts) {
  return std::make_shared<FakeModel>(std::move(parts));
}

}  // namespace minisgl
