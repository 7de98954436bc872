// See weight_packer.h.
#include "weight_packer.h"

#include <cstring>

#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {

// Returns the matrix packed from `tensor`, if it is still on the device, otherwise null. The
// address alone does not prove it: a file may have been unmapped and another mapped there. So the
// bytes are compared, which costs time only if there is a candidate.
Result<std::shared_ptr<const void>> WeightPacker::FindPacked(const WeightTensor& tensor) {
  std::erase_if(shareable_, [](const PackedTensor& packed) { return packed.storage.expired(); });
  const StackedMatrix matrix({&tensor, 1}, dtype_);
  std::vector<std::byte> wanted;
  for (const PackedTensor& packed : shareable_) {
    if (!packed.tensor.IsSame(tensor)) continue;
    const std::shared_ptr<const void> storage = packed.storage.lock();
    bool same = true;
    MINISGL_RETURN_IF_ERROR(report_(staging_->Read(
        storage.get(), matrix.num_bytes(), [&](const std::byte* chunk, size_t offset, size_t part) {
          wanted.resize(part);
          matrix.Read(wanted.data(), offset, part);
          same = std::memcmp(chunk, wanted.data(), part) == 0;
          return same;
        })));
    if (same) return storage;
  }
  return std::shared_ptr<const void>();
}

Status WeightPacker::Write(const StackedMatrix& matrix, void* device) {
  return report_(staging_->Write(
      device, matrix.num_bytes(),
      [&](std::byte* chunk, size_t offset, size_t part) { matrix.Read(chunk, offset, part); }));
}

Result<Matrix> WeightPacker::Pack(std::span<const WeightTensor> parts) {
  const StackedMatrix matrix(parts, dtype_);
  Matrix packed{.num_out = matrix.num_out(), .num_in = matrix.num_in(), .dtype = matrix.dtype()};
  if (parts.size() == 1) {
    MINISGL_ASSIGN_OR_RETURN(packed.storage, FindPacked(parts[0]));
    if (packed.storage != nullptr) return packed;
  }
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> storage, allocate_(matrix.num_bytes()));
  MINISGL_RETURN_IF_ERROR(Write(matrix, storage.get()));
  packed.storage = storage;
  if (parts.size() == 1) {
    shareable_.push_back({parts[0], packed.storage});
  }
  return packed;
}

Result<ExpertMatrices> WeightPacker::PackExperts(
    std::span<const std::vector<WeightTensor>> experts) {
  MINISGL_CHECK(!experts.empty(), "there are no experts to pack");
  const StackedMatrix first(experts[0], dtype_);
  const auto num_bytes = CheckedMul(experts.size(), first.num_bytes());
  if (!num_bytes) return BadInput("{} experts of {} bytes", experts.size(), first.num_bytes());
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> storage, allocate_(*num_bytes));
  auto* next = static_cast<std::byte*>(storage.get());
  for (const std::vector<WeightTensor>& parts : experts) {
    const StackedMatrix matrix(parts, dtype_);
    MINISGL_CHECK(matrix.num_out() == first.num_out() && matrix.num_in() == first.num_in(),
                  "experts have different shapes");
    MINISGL_RETURN_IF_ERROR(Write(matrix, next));
    next += matrix.num_bytes();
  }
  return ExpertMatrices{.num_experts = static_cast<int64_t>(experts.size()),
                        .num_out = first.num_out(),
                        .num_in = first.num_in(),
                        .dtype = first.dtype(),
                        .storage = storage};
}

}  // namespace minisgl::cuda
