// Finds the tensors of a tower in a checkpoint, under either spelling of their names, and packs
// them; or only looks at their shapes; or counts their bytes without a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/tower_config.h"
#include "model/tower_weights.h"

namespace minisgl::model {

// A matrix as it is stored, and the order in which it is packed.
struct TowerMatrixSpec {
  std::string name;  // whole, without the ending ".weight" unless `is_transposed`
  int64_t num_out = 0, num_in = 0;
  bool has_bias = false;
  std::vector<int64_t> rows;    // stored rows in their packed order; empty: all, in order
  std::vector<int64_t> inputs;  // likewise of inputs
  int64_t stored_rows = 0;      // 0: num_out
  bool is_transposed = false;   // stored [in, out] under the name as it is
  bool is_quantized = true;     // packed in the engine's format; else in its dtype
  bool clips = false;
};

class TowerTensors {
 public:
  // Tensors come from `checkpoint` and are packed with `ops`. Without `ops` results have no data:
  // names and shapes are checked, or, if `checkpoint` is null, too, bytes are counted alone.
  TowerTensors(const TowerConfig& config, const Checkpoint* checkpoint, const WeightFormat& format,
               Ops* ops)
      : config_(config), checkpoint_(checkpoint), format_(format), ops_(ops) {}

  // The whole name of a tensor that the configuration names `name` (TowerNames).
  std::string NameOf(const std::string& name) const;

  Result<TowerMatrix> Pack(const TowerMatrixSpec& spec);
  // True if results have no data.
  bool counts() const { return ops_ == nullptr; }
  // The values of the tensor `name` (whole), of `shape`; axes of 1 before it are ignored. Empty if
  // results have no data.
  Result<std::vector<float>> Values(const std::string& name, const std::vector<int64_t>& shape);
  // `values`, which have `count` elements if results have data.
  Result<DeviceArray<float>> Upload(const std::vector<float>& values, int64_t count);
  Result<DeviceArray<float>> Vector(const std::string& name, int64_t size);

  // The sum over all results; nullopt if 2^64 or more.
  std::optional<uint64_t> num_bytes() const { return num_bytes_; }

 private:
  void Add(std::optional<uint64_t> bytes);
  std::string StoredName(const std::string& name) const;
  Status InFile(const std::string& stored, const Status& status) const;
  Status CheckFinite(const std::string& stored, const std::vector<float>& values) const;
  Result<std::optional<WeightTensor>> FindCodes(const TowerMatrixSpec& spec,
                                                const std::string& stored) const;
  Result<WeightTensor> FindMatrix(const TowerMatrixSpec& spec);
  Result<std::optional<TowerBounds>> Bounds(const std::string& name);

  const TowerConfig& config_;
  const Checkpoint* const checkpoint_;
  const WeightFormat format_;
  Ops* const ops_;
  std::optional<uint64_t> num_bytes_ = 0;
};

}  // namespace minisgl::model
