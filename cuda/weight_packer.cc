// See weight_packer.h.
#include "weight_packer.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {

// Returns the matrix packed from `tensor`, if it is still on the device, otherwise null. The
// address alone does not prove it: a file may have been unmapped and another mapped there. So the
// bytes are compared, which costs time only if there is a candidate.
Result<std::shared_ptr<const void>> WeightPacker::FindPacked(const WeightTensor& tensor) {
  const StackedMatrix matrix({&tensor, 1}, dtype_);
  std::vector<std::byte> wanted;
  for (const PackedTensor& packed : shareable_) {
    if (packed.quantization != Quantization::kNone || !packed.tensor.IsSame(tensor)) continue;
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

// --- codes ---------------------------------------------------------------------------------------

ThreadPool* WeightPacker::pool() {
  constexpr int kThreadsMax = 8;
  if (pool_ == nullptr) {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    pool_ = std::make_unique<ThreadPool>(std::clamp(cores, 1, kThreadsMax));
  }
  return pool_.get();
}

Status WeightPacker::WriteRun(const CodedRun& run, const Rows& rows, int64_t num_in, bool quantizes,
                              void* memory) {
  Status status;
  CodeBatch(run, num_in, run.rows.order, quantizes)
      .ForAll(rows, pool(), [&](size_t offset, std::span<const std::byte> bytes) {
        status = report_(staging_->Write(static_cast<std::byte*>(memory) + offset, bytes.size(),
                                         [&](std::byte* chunk, size_t from, size_t part) {
                                           std::memcpy(chunk, bytes.data() + from, part);
                                         }));
        return status.ok();
      });
  return status;
}

Result<std::shared_ptr<const CodedMatrix>> WeightPacker::PackCodes(
    std::span<const std::span<const WeightTensor>> experts, Quantization quantization) {
  const std::span<const WeightTensor> first = experts[0];
  const bool quantizes = quantization != Quantization::kStored;
  const bool has_codes = std::any_of(first.begin(), first.end(),
                                     [](const WeightTensor& part) { return !part.is_dense(); });
  if (!quantizes && !has_codes) return std::shared_ptr<const CodedMatrix>();

  auto matrix = std::make_shared<CodedMatrix>();
  matrix->num_in = first[0].num_in();
  std::vector<CodedParts> forms;
  if (quantizes) {
    forms.push_back({FormOfQuantized(quantization, matrix->num_in), 0, first.size()});
  } else {
    std::string why;
    for (const std::span<const WeightTensor> parts : experts) {
      auto own = FormsOf(parts, &why);
      if (own && experts.size() > 1) {
        const bool is_one = own->size() == 1 && (forms.empty() || forms[0].form == (*own)[0].form);
        if (!is_one) why = "experts have codes of several forms";
        if (!is_one) own.reset();
      }
      if (!own) {
        ++expanded_[why];
        return std::shared_ptr<const CodedMatrix>();
      }
      forms = *std::move(own);
    }
  }

  std::vector<Rows> rows_of;
  size_t end = 0;
  for (const CodedParts& parts : forms) {
    Rows rows;
    for (const std::span<const WeightTensor> expert : experts) {
      for (const WeightTensor& part : expert.subspan(parts.first, parts.count)) {
        for (int64_t out = 0; out < part.num_out(); ++out) rows.push_back({&part, out});
      }
    }
    CodedRun run = {.first = matrix->num_out,
                    .count = std::ssize(rows),
                    .form = parts.form,
                    .layout = CodeLayout::Make(parts.form, std::ssize(rows), matrix->num_in, end),
                    .rows = {}};
    end = run.layout.end;
    matrix->num_out += run.count;
    matrix->runs.push_back(std::move(run));
    rows_of.push_back(std::move(rows));
  }
  matrix->num_bytes = end;
  MINISGL_ASSIGN_OR_RETURN(matrix->memory, allocate_(end));
  const Matrix shape = {.num_out = matrix->num_out, .num_in = matrix->num_in, .dtype = dtype_};
  for (size_t i = 0; i < rows_of.size(); ++i) {
    CodedRun& run = matrix->runs[i];
    const CodeOrder order = experts.size() == 1 ? order_of_(shape, run.form.codes) : CodeOrder();
    run.rows = MakeCodedRows(run, matrix->num_in, order, matrix->memory.get());
    MINISGL_RETURN_IF_ERROR(
        WriteRun(run, rows_of[i], matrix->num_in, quantizes, matrix->memory.get()));
  }
  if (scales_inputs_ && experts.size() == 1 && !quantizes) {
    MINISGL_RETURN_IF_ERROR(PackScales(first, matrix.get()));
  }
  return std::shared_ptr<const CodedMatrix>(std::move(matrix));
}

Status WeightPacker::PackScales(std::span<const WeightTensor> parts, CodedMatrix* matrix) {
  const std::optional<ScaledForm> form = ScaledFormOf(parts, matrix->runs);
  if (!form) return Status();
  const auto* const bytes = reinterpret_cast<const std::byte*>(form->scales.data());
  const size_t num_bytes = form->scales.size() * sizeof(float);
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> scales, allocate_(num_bytes));
  MINISGL_RETURN_IF_ERROR(report_(
      staging_->Write(scales.get(), num_bytes, [&](std::byte* chunk, size_t from, size_t part) {
        std::memcpy(chunk, bytes + from, part);
      })));
  matrix->scaled = form->matrix;
  matrix->scaled.scales = scales;
  return Status();
}

// True if the device has the codes that `tensor` has now.
Result<bool> WeightPacker::HasCodes(const CodedMatrix& matrix, const WeightTensor& tensor,
                                    Quantization quantization) {
  Rows rows;
  for (int64_t out = 0; out < tensor.num_out(); ++out) rows.push_back({&tensor, out});
  const CodedRun& run = matrix.runs[0];
  Status status;
  bool same = true;
  CodeBatch(run, matrix.num_in, run.rows.order, quantization != Quantization::kStored)
      .ForAll(rows, pool(), [&](size_t offset, std::span<const std::byte> bytes) {
        status = report_(staging_->Read(static_cast<const std::byte*>(matrix.memory.get()) + offset,
                                        bytes.size(),
                                        [&](const std::byte* chunk, size_t from, size_t part) {
                                          same = std::memcmp(chunk, bytes.data() + from, part) == 0;
                                          return same;
                                        }));
        return same && status.ok();
      });
  MINISGL_RETURN_IF_ERROR(status);
  return same;
}

// As FindPacked, among matrices that are kept as codes.
Result<std::shared_ptr<const void>> WeightPacker::FindCodes(const WeightTensor& tensor,
                                                            Quantization quantization) {
  for (const PackedTensor& packed : shareable_) {
    const std::shared_ptr<const void> storage = packed.storage.lock();
    if (storage == nullptr || packed.quantization != quantization ||
        !packed.tensor.IsSame(tensor)) {
      continue;
    }
    MINISGL_ASSIGN_OR_RETURN(
        const bool same,
        HasCodes(*static_cast<const CodedMatrix*>(storage.get()), tensor, quantization));
    if (same) return storage;
  }
  return std::shared_ptr<const void>();
}

// --- matrices ------------------------------------------------------------------------------------

Result<Matrix> WeightPacker::Pack(std::span<const WeightTensor> parts, const WeightFormat& format) {
  std::erase_if(shareable_, [](const PackedTensor& packed) { return packed.storage.expired(); });
  const StackedMatrix matrix(parts, dtype_);
  Matrix packed{.num_out = matrix.num_out(), .num_in = matrix.num_in(), .dtype = matrix.dtype()};
  if (format.quantization != Quantization::kNone) {
    packed.quantization = format.quantization;
    if (parts.size() == 1) {
      MINISGL_ASSIGN_OR_RETURN(packed.storage, FindCodes(parts[0], format.quantization));
      if (packed.storage != nullptr) return packed;
    }
    MINISGL_ASSIGN_OR_RETURN(packed.storage, PackCodes({&parts, 1}, format.quantization));
    if (packed.storage != nullptr) {
      if (parts.size() == 1) shareable_.push_back({parts[0], format.quantization, packed.storage});
      return packed;
    }
    packed.quantization = Quantization::kNone;
  }
  if (parts.size() == 1) {
    MINISGL_ASSIGN_OR_RETURN(packed.storage, FindPacked(parts[0]));
    if (packed.storage != nullptr) return packed;
  }
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> storage, allocate_(matrix.num_bytes()));
  MINISGL_RETURN_IF_ERROR(Write(matrix, storage.get()));
  packed.storage = storage;
  if (parts.size() == 1) {
    shareable_.push_back({parts[0], Quantization::kNone, packed.storage});
  }
  return packed;
}

Result<ExpertMatrices> WeightPacker::PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                                 const WeightFormat& format) {
  MINISGL_CHECK(!experts.empty(), "there are no experts to pack");
  const StackedMatrix first(experts[0], dtype_);
  if (format.quantization != Quantization::kNone) {
    const std::vector<std::span<const WeightTensor>> all(experts.begin(), experts.end());
    MINISGL_ASSIGN_OR_RETURN(const auto codes, PackCodes(all, format.quantization));
    if (codes != nullptr) {
      return ExpertMatrices{.num_experts = static_cast<int64_t>(experts.size()),
                            .num_out = first.num_out(),
                            .num_in = first.num_in(),
                            .dtype = first.dtype(),
                            .storage = codes,
                            .quantization = format.quantization};
    }
  }
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
