// See weight_tensor.h.
#include "minisgl/tensor/weight_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/load_bytes.h"

namespace minisgl {
namespace {

float WidenAt(const std::byte* from, DType dtype) { return TensorView{from, dtype, {}}.At(0); }

// Elements of a dense row, `step` bytes apart.
template <typename T, typename Widen>
void ReadElements(const std::byte* from, int64_t step, int64_t count, const Widen& widen,
                  float* row) {
  if (step == static_cast<int64_t>(sizeof(T))) {  // a constant step is several times as fast
    for (int64_t i = 0; i < count; ++i) {
      row[i] = widen(LoadBytes<T>(from + i * static_cast<int64_t>(sizeof(T))));
    }
  } else {
    for (int64_t i = 0; i < count; ++i) row[i] = widen(LoadBytes<T>(from + i * step));
  }
}

template <size_t kSize, typename Number>
std::array<float, kSize> MakeTable(const Number& number) {
  std::array<float, kSize> table;
  for (size_t code = 0; code < kSize; ++code) table[code] = number(static_cast<int>(code));
  return table;
}

}  // namespace

// --- codes and scales ----------------------------------------------------------------------------

uint8_t CodePlane::At(int64_t out, int64_t in) const {
  uint8_t code;
  ReadRow(out, in, 1, &code);
  return code;
}

void CodePlane::ReadRow(int64_t out, int64_t first, int64_t count, uint8_t* codes) const {
  const int64_t per_word = codes_per_word();
  const auto mask = static_cast<uint8_t>((1 << bits) - 1);
  // The byte of each code of a word, and its shift there.
  int64_t byte[8];
  int shift[8];
  bool in_order = word_step * 8 == word_bits;
  for (int64_t k = 0; k < per_word; ++k) {
    const int bit = order[static_cast<size_t>(k)] * bits;
    byte[k] = bit / 8;
    shift[k] = bit % 8;
    in_order = in_order && order[static_cast<size_t>(k)] == k;
  }
  if (packed == Packed::kAlongOutputs) {
    const int64_t k = out % per_word;
    const std::byte* const from = data + out / per_word * word_step + byte[k] + first * other_step;
    for (int64_t i = 0; i < count; ++i) {
      codes[i] = static_cast<uint8_t>(from[i * other_step]) >> shift[k] & mask;
    }
    return;
  }
  const std::byte* const row = data + out * other_step;
  if (in_order && bits == 8) {
    std::memcpy(codes, row + first, static_cast<size_t>(count));
    return;
  }
  if (in_order && first % 2 == 0) {
    for (int64_t i = 0; i < count; ++i) {
      codes[i] = static_cast<uint8_t>(row[(first + i) / 2]) >> (i % 2 * 4) & 0xF;
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t in = first + i, k = in % per_word;
    codes[i] = static_cast<uint8_t>(row[in / per_word * word_step + byte[k]]) >> shift[k] & mask;
  }
}

const std::byte* ScalePlane::Place(int64_t out, int64_t group) const {
  return data + out / group_outputs * output_step + group * group_step;
}

float ScalePlane::At(int64_t out, int64_t group) const { return WidenAt(Place(out, group), dtype); }

int64_t QuantizedWeights::GroupOf(int64_t in) const {
  if (group_index == nullptr) return in / group_inputs;
  return LoadBytes<int32_t>(group_index + in * static_cast<int64_t>(sizeof(int32_t)));
}

float QuantizedWeights::ScaleOf(int64_t out, int64_t group) const {
  const float stored = scales.At(out, group);
  return divides_by_global ? stored / global_scale : stored * global_scale;
}

float QuantizedWeights::ZeroOf(int64_t out, int64_t group) const {
  if (zeros.data == nullptr) return 0;
  const int code = zeros.At(out, group) + zero_offset;
  return numbers[code & ((1 << zeros.bits) - 1)];
}

const float* E4M3Numbers() {
  static const auto kTable =
      MakeTable<256>([](int code) { return E4M3ToFloat(static_cast<uint8_t>(code)); });
  return kTable.data();
}

const float* E2M1Numbers() {
  static constexpr std::array<float, 16> kTable = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                   -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return kTable.data();
}

const float* SignedNumbers() {
  static const auto kTable =
      MakeTable<256>([](int code) { return static_cast<float>(static_cast<int8_t>(code)); });
  return kTable.data();
}

const float* OffsetNumbers(int32_t bits) {
  static const auto kOf4 = MakeTable<16>([](int code) { return static_cast<float>(code - 8); });
  static const auto kOf8 = MakeTable<256>([](int code) { return static_cast<float>(code - 128); });
  MINISGL_CHECK(bits == 4 || bits == 8, "codes of {} bits", bits);
  return bits == 4 ? kOf4.data() : kOf8.data();
}

const float* UnsignedNumbers() {
  static const auto kTable = MakeTable<256>([](int code) { return static_cast<float>(code); });
  return kTable.data();
}

// --- matrices ------------------------------------------------------------------------------------

WeightTensor::WeightTensor(const TensorView& matrix) : data_(matrix.data), dtype_(matrix.dtype) {
  MINISGL_CHECK(matrix.shape.size() == 2 && IsComputed(matrix.dtype), "a matrix of shape {} in {}",
                ShapeToString(matrix.shape), DTypeName(matrix.dtype));
  num_out_ = matrix.shape[0];
  num_in_ = matrix.shape[1];
  input_step_ = static_cast<int64_t>(DTypeBytes(matrix.dtype));
  output_step_ = num_in_ * input_step_;
}

WeightTensor::WeightTensor(int64_t num_out, int64_t num_in, QuantizedWeights quantized)
    : num_out_(num_out),
      num_in_(num_in),
      quantized_(std::make_shared<const QuantizedWeights>(quantized)) {}

WeightTensor::WeightTensor(int64_t num_out, int64_t num_in, const BlockFormat* format,
                           const std::byte* data)
    : num_out_(num_out), num_in_(num_in), data_(data), blocks_(format) {
  MINISGL_CHECK(num_in % format->block_elements == 0, "rows of {} in blocks of {}", num_in,
                format->block_elements);
  output_step_ = num_in / format->block_elements * format->block_bytes;
}

int64_t WeightTensor::StoredRow(int64_t out) const {
  return first_output_ + (rows_ == nullptr ? out : (*rows_)[static_cast<size_t>(out)]);
}

bool WeightTensor::HasWholeGroups() const {
  const int64_t group = quantized_->group_inputs;
  const int64_t last = first_input_ + num_in_ - 1;
  if (last / group == first_input_ / group) return true;
  const bool has_steps = blocks_ != nullptr && blocks_->codes.read_steps != nullptr;
  return first_input_ % (has_steps ? blocks_->block_elements : group) == 0;
}

const std::byte* WeightTensor::DenseRow(int64_t out) const {
  if (!is_dense() || inputs_ != nullptr ||
      input_step_ != static_cast<int64_t>(DTypeBytes(dtype_))) {
    return nullptr;
  }
  return data_ + StoredRow(out) * output_step_;
}

void WeightTensor::ReadDense(int64_t out, float* row) const {
  const std::byte* const from = data_ + StoredRow(out) * output_step_;
  if (dtype_ == DType::kF32) {
    ReadElements<float>(
        from, input_step_, num_in_, [](float value) { return value; }, row);
  } else if (dtype_ == DType::kBF16) {
    ReadElements<uint16_t>(from, input_step_, num_in_, Bf16ToFloat, row);
  } else {
    ReadElements<uint16_t>(from, input_step_, num_in_, F16ToFloat, row);
  }
}

// Reads elements of `num_in_` inputs block by block to `row`.
template <typename Element, typename Read>
void WeightTensor::ForBlocks(int64_t out, Element* row, const Read& read) const {
  const int64_t width = blocks_->block_elements;
  const std::byte* const from = data_ + StoredRow(out) * output_step_;
  for (int64_t done = 0; done < num_in_;) {
    const int64_t in = first_input_ + done, skipped = in % width;
    const std::byte* const block = from + in / width * blocks_->block_bytes;
    const int64_t count = std::min(width - skipped, num_in_ - done);
    if (count == width) {
      read(block, row + done);
    } else {  // a cut begins or ends within a block
      Element elements[kBlockElementsMax];
      read(block, elements);
      std::copy_n(elements + skipped, count, row + done);
    }
    done += count;
  }
}

WeightTensor WeightTensor::WithCodes(float factor) const {
  MINISGL_CHECK(blocks_ != nullptr, "a matrix without codes");
  QuantizedWeights its;
  its.codes.bits = blocks_->codes.bits;
  its.numbers = blocks_->codes.numbers();
  its.group_inputs = blocks_->codes.group_elements;
  its.num_groups = output_step_ / blocks_->block_bytes * blocks_->block_elements / its.group_inputs;
  its.global_scale = factor;
  WeightTensor coded = *this;
  coded.block_factor_ = factor;
  coded.quantized_ = std::make_shared<const QuantizedWeights>(its);
  return coded;
}

WeightTensor WeightTensor::Following(int64_t num_bytes) const {
  MINISGL_CHECK(data_ != nullptr && rows_ == nullptr && inputs_ == nullptr,
                "a matrix that is not in its stored order");
  WeightTensor other = *this;
  other.data_ += num_bytes;
  return other;
}

void WeightTensor::ReadOrdered(int64_t out, float* row) const {
  WeightTensor stored = *this;
  stored.inputs_ = nullptr;
  stored.first_input_ = 0;
  stored.num_in_ = std::ssize(*inputs_);
  std::vector<float> whole(inputs_->size());
  stored.ReadRow(out, whole.data());
  for (int64_t i = 0; i < num_in_; ++i) {
    row[i] = whole[static_cast<size_t>((*inputs_)[static_cast<size_t>(first_input_ + i)])];
  }
}

void WeightTensor::ReadRow(int64_t out, float* row) const {
  if (inputs_ != nullptr) return ReadOrdered(out, row);
  if (blocks_ != nullptr) {
    return ForBlocks(out, row, [this](const std::byte* block, float* values) {
      blocks_->Unpack(block, values, block_factor_);
    });
  }
  return quantized_ == nullptr ? ReadDense(out, row) : ReadQuantized(out, row);
}

void WeightTensor::ReadQuantized(int64_t out, float* row) const {
  const QuantizedWeights& q = *quantized_;
  const int64_t stored = StoredRow(out);
  constexpr int64_t kPart = 256;
  uint8_t codes[kPart];
  for (int64_t first = 0; first < num_in_;) {
    // Inputs of one group, at most kPart.
    const int64_t in = first_input_ + first, group = q.GroupOf(in);
    int64_t count = std::min(kPart, num_in_ - first);
    if (q.group_index == nullptr) {
      count = std::min(count, (group + 1) * q.group_inputs - in);
    } else {
      int64_t same = 1;
      while (same < count && q.GroupOf(in + same) == group) ++same;
      count = same;
    }
    q.codes.ReadRow(stored, in, count, codes);
    const float scale = q.ScaleOf(stored, group), zero = q.ZeroOf(stored, group);
    for (int64_t i = 0; i < count; ++i) row[first + i] = (q.numbers[codes[i]] - zero) * scale;
    first += count;
  }
}

void WeightTensor::ReadCodes(int64_t out, uint8_t* codes) const {
  if (blocks_ == nullptr) {
    return quantized_->codes.ReadRow(StoredRow(out), first_input_, num_in_, codes);
  }
  ForBlocks(out, codes, blocks_->codes.read);
}

const std::byte* WeightTensor::BlockOf(int64_t out, int64_t group) const {
  return data_ + StoredRow(out) * output_step_ +
         group / blocks_->num_groups() * blocks_->block_bytes;
}

// The steps of a group: of its scale and of its offset.
std::array<float, 2> WeightTensor::StepsOf(const std::byte* block, int64_t group) const {
  if (blocks_->codes.read_steps == nullptr) return {1, 1};
  int8_t scales[kBlockGroupsMax], offsets[kBlockGroupsMax] = {};
  blocks_->codes.read_steps(block, scales, offsets);
  const int64_t at = group % blocks_->num_groups();
  return {blocks_->StepNumber(scales[at]), static_cast<float>(offsets[at])};
}

float WeightTensor::ScaleOf(int64_t out, int64_t group) const {
  if (blocks_ == nullptr) return quantized_->ScaleOf(StoredRow(out), group);
  const std::byte* const block = BlockOf(out, group);
  return blocks_->ScaleOf(block) * block_factor_ * StepsOf(block, group)[0];
}

const std::byte* WeightTensor::StoredScale(int64_t out, int64_t group) const {
  return quantized_->scales.Place(StoredRow(out), group);
}

float WeightTensor::ZeroOf(int64_t out, int64_t group) const {
  return quantized_->ZeroOf(StoredRow(out), group);
}

float WeightTensor::OffsetOf(int64_t out, int64_t group) const {
  if (!has_offsets()) return 0;
  const std::byte* const block = BlockOf(out, group);
  return blocks_->OffsetOf(block) * StepsOf(block, group)[1];
}

WeightTensor WeightTensor::TakeRows(std::vector<int64_t> rows) const {
  WeightTensor taken = *this;
  taken.num_out_ = static_cast<int64_t>(rows.size());
  if (rows_ != nullptr) {
    for (int64_t& row : rows) row = (*rows_)[static_cast<size_t>(row)];
  }
  taken.rows_ = std::make_shared<const std::vector<int64_t>>(std::move(rows));
  return taken;
}

WeightTensor WeightTensor::OrderInputs(std::vector<int64_t> order) const {
  MINISGL_CHECK((quantized_ == nullptr || blocks_ != nullptr) && inputs_ == nullptr &&
                    first_input_ == 0 && std::ssize(order) == num_in_,
                "an order of {} inputs for a matrix of {}", order.size(), num_in_);
  WeightTensor ordered = *this;
  ordered.quantized_ = nullptr;
  ordered.inputs_ = std::make_shared<const std::vector<int64_t>>(std::move(order));
  return ordered;
}

WeightTensor WeightTensor::TakeOutputs(int64_t first, int64_t count) const {
  MINISGL_CHECK(first >= 0 && count >= 0 && first + count <= num_out_,
                "outputs {} to {} of a matrix of {}", first, first + count, num_out_);
  if (rows_ != nullptr) {
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), first);
    return TakeRows(std::move(rows));
  }
  WeightTensor taken = *this;
  taken.num_out_ = count;
  taken.first_output_ += first;
  return taken;
}

WeightTensor WeightTensor::TakeInputs(int64_t first, int64_t count) const {
  MINISGL_CHECK(first >= 0 && count >= 0 && first + count <= num_in_,
                "inputs {} to {} of a matrix of {}", first, first + count, num_in_);
  WeightTensor taken = *this;
  taken.num_in_ = count;
  taken.first_input_ += first;
  if (is_dense() && inputs_ == nullptr) taken.data_ += first * input_step_;
  return taken;
}

WeightTensor WeightTensor::Transposed() const {
  MINISGL_CHECK(is_dense() && rows_ == nullptr && inputs_ == nullptr,
                "only dense matrices are transposed");
  WeightTensor turned = *this;
  turned.data_ += first_output_ * output_step_;
  turned.first_output_ = turned.first_input_ = 0;
  std::swap(turned.num_out_, turned.num_in_);
  std::swap(turned.output_step_, turned.input_step_);
  return turned;
}

bool WeightTensor::IsSame(const WeightTensor& other) const {
  const bool has_planes =
      blocks_ == nullptr && (quantized_ != nullptr || other.quantized_ != nullptr);
  return !has_planes && data_ == other.data_ && blocks_ == other.blocks_ &&
         block_factor_ == other.block_factor_ && first_input_ == other.first_input_ &&
         dtype_ == other.dtype_ && num_out_ == other.num_out_ && num_in_ == other.num_in_ &&
         output_step_ == other.output_step_ && input_step_ == other.input_step_ &&
         first_output_ == other.first_output_ && rows_ == other.rows_ && inputs_ == other.inputs_;
}

std::vector<WeightTensor> ToWeightTensors(std::span<const TensorView> views) {
  return {views.begin(), views.end()};
}

// --- checks --------------------------------------------------------------------------------------

namespace {

// Above the magnitude of a number less a zero point: 448 of e4m3, 383 of integers.
constexpr float kLargestNumber = 512;

constexpr int64_t kBytesAhead = 4096;

bool IsFiniteF16(uint16_t bits) {
  constexpr uint16_t kExponent = 0x7C00;
  return (bits & kExponent) != kExponent;
}

Status CheckGroups(const QuantizedWeights& q, int64_t first, int64_t count) {
  if (q.group_index == nullptr) return Status();
  for (int64_t in = first; in < first + count; ++in) {
    const int64_t group = q.GroupOf(in);
    if (group < 0 || group >= q.num_groups) {
      return BadInput("input {} is in group {}; it has {} groups", in, group, q.num_groups);
    }
  }
  return Status();
}

}  // namespace

// With finite scales every weight is finite: codes and second scales have 8 bits at most.
// A row at a time; the place of a fault is sought after it was found.
Status WeightTensor::CheckBlocks() const {
  const int64_t width = blocks_->block_elements, step = blocks_->block_bytes;
  const int64_t first = first_input_ / width, end = CeilDiv(first_input_ + num_in_, width);
  const auto [scale_at, offset_at] = blocks_->scale_at;
  const auto is_finite = [=, this](const std::byte* block) {
    if (blocks_->is_finite != nullptr) return blocks_->is_finite(block);
    return std::to_integer<uint8_t>(block[0]) <= blocks_->first_byte_max &&
           (scale_at < 0 || IsFiniteF16(LoadBytes<uint16_t>(block + scale_at))) &&
           (offset_at < 0 || IsFiniteF16(LoadBytes<uint16_t>(block + offset_at)));
  };
  // The processor fetches lines that follow each other, but not the few of them that are read.
  const int64_t ahead = kBytesAhead / step * step;
  for (int64_t out = 0; out < num_out_; ++out) {
    const std::byte* const row = data_ + StoredRow(out) * output_step_;
    bool are_finite = true;
    for (int64_t block = first; block < end; ++block) {
      __builtin_prefetch(row + block * step + ahead);
      are_finite &= is_finite(row + block * step);
    }
    for (int64_t block = first; block < end && !are_finite; ++block) {
      if (is_finite(row + block * step)) continue;
      return BadInput("a scale of output {}, block {} is infinite or no number", StoredRow(out),
                      block);
    }
  }
  return Status();
}

Status WeightTensor::CheckNumbers() const {
  if (blocks_ != nullptr) return CheckBlocks();
  if (quantized_ == nullptr) return Status();
  const QuantizedWeights& q = *quantized_;
  MINISGL_RETURN_IF_ERROR(CheckGroups(q, first_input_, num_in_));
  for (int64_t out = 0; out < num_out_; ++out) {
    const int64_t stored = StoredRow(out);
    const bool has_scales_of_last = stored % q.scales.group_outputs != 0 && rows_ == nullptr;
    if (out > 0 && has_scales_of_last) continue;
    for (int64_t group = 0; group < q.num_groups; ++group) {
      const float scale = q.ScaleOf(stored, group);
      // With a finite product every weight, and every step to it, is finite.
      if (!std::isfinite(scale * kLargestNumber)) {
        return BadInput("the scale of output {}, group {} is {}; weights must be finite", stored,
                        group, scale);
      }
    }
  }
  if (q.numbers != E4M3Numbers()) return Status();  // every code of the others is a number
  std::vector<uint8_t> codes(static_cast<size_t>(num_in_));
  for (int64_t out = 0; out < num_out_; ++out) {
    q.codes.ReadRow(StoredRow(out), first_input_, num_in_, codes.data());
    bool has_nan = false;
    for (const uint8_t code : codes) has_nan |= (code & 0x7Fu) == 0x7F;
    if (!has_nan) continue;
    for (int64_t in = 0; in < num_in_; ++in) {
      if ((codes[static_cast<size_t>(in)] & 0x7Fu) != 0x7F) continue;
      return BadInput("the weight of output {}, input {} is NaN (code {:#x})", StoredRow(out),
                      first_input_ + in, codes[static_cast<size_t>(in)]);
    }
  }
  return Status();
}

}  // namespace minisgl
