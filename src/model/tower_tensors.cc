// See tower_tensors.h.
#include "model/tower_tensors.h"

#include <fmt/core.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"
#include "minisgl/tensor/tensor_view.h"
#include "weights/stored_matrix.h"

namespace minisgl::model {
namespace {

// The shape without the axes of size 1 before its last `num_axes`.
std::vector<int64_t> WithoutLeadingOnes(std::vector<int64_t> shape, size_t num_axes) {
  while (shape.size() > num_axes && shape.front() == 1) shape.erase(shape.begin());
  return shape;
}

// The view as a matrix of `num_out` rows, if its axes say that; a convolution's weights are one.
bool IsMatrixOf(const TensorView& view, int64_t num_out, int64_t num_in) {
  if (view.shape.size() < 2 || view.shape[0] != num_out) return false;
  std::optional<uint64_t> inputs = 1;
  for (size_t axis = 1; axis < view.shape.size() && inputs; ++axis) {
    inputs = CheckedMul(*inputs, static_cast<uint64_t>(view.shape[axis]));
  }
  return inputs == static_cast<uint64_t>(num_in);
}

// Files have names with and without "model.", and towers with and without the inner model.
std::vector<std::string> Spellings(const std::string& name) {
  constexpr std::string_view kInner = "vision_tower.vision_model.";
  std::vector<std::string> spellings = {name, "model." + name};
  if (name.starts_with(kInner)) {
    const std::string plain = "vision_tower." + name.substr(kInner.size());
    spellings.insert(spellings.end(), {plain, "model." + plain});
  }
  return spellings;
}

}  // namespace

void TowerTensors::Add(std::optional<uint64_t> bytes) {
  num_bytes_ = num_bytes_ && bytes ? CheckedAdd(*num_bytes_, *bytes) : std::nullopt;
}

std::string TowerTensors::NameOf(const std::string& name) const {
  return name.starts_with('/') ? name.substr(1) : config_.names.prefix + name;
}

std::string TowerTensors::StoredName(const std::string& name) const {
  for (std::string& spelling : Spellings(name)) {
    if (checkpoint_->Has(spelling)) return std::move(spelling);
  }
  return name;
}

Status TowerTensors::InFile(const std::string& stored, const Status& status) const {
  const std::string file = checkpoint_->FileOf(stored);
  return file.empty() ? status : status.WithPrefix(Visible(file, 400));
}

Status TowerTensors::CheckFinite(const std::string& stored,
                                 const std::vector<float>& values) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return InFile(stored, BadInput("tensor \"{}\": element {} is {}; weights must be finite",
                                   Visible(stored, 200), i, values[i]));
  }
  return Status();
}

// The matrix as codes, of a GGUF file or of a quantized tower; nullopt if it is dense.
Result<std::optional<WeightTensor>> TowerTensors::FindCodes(const TowerMatrixSpec& spec,
                                                            const std::string& stored) const {
  if (const WeightTensor* const matrix = checkpoint_->FindMatrix(stored)) return {*matrix};
  if (config_.quantization.empty() || spec.is_transposed) return {std::nullopt};
  const int64_t rows = spec.stored_rows == 0 ? spec.num_out : spec.stored_rows;
  for (const std::string& base : Spellings(spec.name)) {
    MINISGL_ASSIGN_OR_RETURN(auto found, weights::FindCodes(config_.quantization, *checkpoint_,
                                                            base, rows, spec.num_in));
    if (found) return {std::move(found->weights)};
  }
  return {std::nullopt};
}

Result<WeightTensor> TowerTensors::FindMatrix(const TowerMatrixSpec& spec) {
  const std::string stored = StoredName(spec.is_transposed ? spec.name : spec.name + ".weight");
  MINISGL_ASSIGN_OR_RETURN(const std::optional<WeightTensor> codes, FindCodes(spec, stored));
  TensorView view;
  if (codes) {
    view.shape = {codes->num_out(), codes->num_in()};
  } else {
    MINISGL_ASSIGN_OR_RETURN(view, checkpoint_->Get(stored));
  }
  const int64_t rows = spec.is_transposed      ? spec.num_in
                       : spec.stored_rows == 0 ? spec.num_out
                                               : spec.stored_rows;
  const int64_t columns = spec.is_transposed ? spec.num_out : spec.num_in;
  if (!IsMatrixOf(view, rows, columns)) {
    return InFile(stored, BadInput("tensor \"{}\": its shape does not fit (found {}); wanted {}",
                                   Visible(stored, 200), ShapeToString(view.shape),
                                   ShapeToString({rows, columns})));
  }
  view.shape = {rows, columns};
  WeightTensor weights = codes ? *codes : WeightTensor(view);
  // Rows of GGUF's blocks can be ordered along the inputs, other codes cannot.
  const bool is_ordered = spec.is_transposed || (!spec.inputs.empty() && codes && !codes->blocks());
  if (is_ordered && !weights.is_dense()) {
    return InFile(stored, BadInput("tensor \"{}\" is codes, which are not read there; F32, F16 and "
                                   "BF16 are",
                                   Visible(stored, 200)));
  }
  if (counts()) return weights;
  if (spec.is_transposed) weights = weights.Transposed();
  if (!spec.inputs.empty()) weights = weights.OrderInputs(spec.inputs);
  if (!spec.rows.empty()) weights = weights.TakeRows(spec.rows);
  const Status numbers = ops_->CheckNumbers(weights);
  if (numbers.ok()) return weights;
  return InFile(stored, numbers.WithPrefix(fmt::format("tensor \"{}\"", Visible(stored, 200))));
}

// The bounds NAME_min and NAME_max.
Result<std::optional<TowerBounds>> TowerTensors::Bounds(const std::string& name) {
  TowerBounds bounds;
  for (const auto& [ending, bound] :
       {std::pair{"_min", &bounds.low}, std::pair{"_max", &bounds.high}}) {
    const std::string stored = StoredName(name + ending);
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint_->Get(stored));
    if (view.num_elements() != 1 || std::isnan(view.At(0))) {
      return InFile(stored, BadInput("tensor \"{}\": one number is needed", Visible(stored, 200)));
    }
    *bound = view.At(0);
  }
  return std::optional(bounds);
}

Result<TowerMatrix> TowerTensors::Pack(const TowerMatrixSpec& spec) {
  const WeightFormat format = spec.is_quantized ? format_ : WeightFormat(format_.dtype);
  TowerMatrix matrix;
  Add(WeightBytes(format, static_cast<uint64_t>(spec.num_out), static_cast<uint64_t>(spec.num_in)));
  if (checkpoint_ != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(const WeightTensor weights, FindMatrix(spec));
    if (!counts()) {
      MINISGL_ASSIGN_OR_RETURN(matrix.weight, ops_->PackMatrix({&weights, 1}, format));
    }
  }
  if (spec.has_bias) {
    const int64_t stored = spec.stored_rows == 0 ? spec.num_out : spec.stored_rows;
    MINISGL_ASSIGN_OR_RETURN(const auto all, Values(spec.name + ".bias", {stored}));
    std::vector<float> own;
    for (const int64_t row : spec.rows) {
      if (!counts()) own.push_back(all[static_cast<size_t>(row)]);
    }
    MINISGL_ASSIGN_OR_RETURN(matrix.bias, Upload(spec.rows.empty() ? all : own, spec.num_out));
  }
  if (spec.clips && checkpoint_ != nullptr) {
    // The matrix is NAME.linear.
    const std::string base = spec.name.substr(0, spec.name.rfind('.') + 1);
    MINISGL_ASSIGN_OR_RETURN(matrix.of_inputs, Bounds(base + "input"));
    MINISGL_ASSIGN_OR_RETURN(matrix.of_outputs, Bounds(base + "output"));
  }
  return matrix;
}

Result<std::vector<float>> TowerTensors::Values(const std::string& name,
                                                const std::vector<int64_t>& shape) {
  int64_t count = 1;  // of sizes that the configuration's reader has bounded
  for (const int64_t size : shape) count *= size;
  std::vector<float> values;
  if (checkpoint_ == nullptr) return values;
  const std::string stored = StoredName(name);
  MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint_->Get(stored));
  if (WithoutLeadingOnes(view.shape, shape.size()) != shape) {
    return InFile(stored,
                  BadInput("tensor \"{}\": its shape does not fit (found {}); wanted {}",
                           Visible(stored, 200), ShapeToString(view.shape), ShapeToString(shape)));
  }
  if (counts()) return values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values.push_back(view.At(i));
  MINISGL_RETURN_IF_ERROR(CheckFinite(stored, values));
  return values;
}

Result<DeviceArray<float>> TowerTensors::Upload(const std::vector<float>& values, int64_t count) {
  Add(CheckedMul(static_cast<uint64_t>(count), uint64_t{sizeof(float)}));
  if (counts()) return DeviceArray<float>();
  MINISGL_CHECK(std::ssize(values) == count, "{} values of {}", values.size(), count);
  return minisgl::Upload<float>(ops_, values);
}

Result<DeviceArray<float>> TowerTensors::Vector(const std::string& name, int64_t size) {
  MINISGL_ASSIGN_OR_RETURN(const std::vector<float> values, Values(name, {size}));
  return Upload(values, size);
}

}  // namespace minisgl::model
