// A weight matrix [out, in] as a file holds it: dense, quantized, or rows of blocks
// (block_format.h). Engines pack their matrices from it.
//
// A quantized matrix is codes, and scales that groups of them share. Its weights are
//   w[o][i] = (number(code[o][i]) - zero[o][g]) * scale[o][g]
// in f32, in this order, where g is the group of input i, `number` is a table of the codes' values,
// and zero is 0 in most formats. Under a global scale, scale[o][g] is itself the f32 product, or
// quotient, of a stored scale and the global one. Groups of rows of blocks may have an offset:
//   w[o][i] = number(code[o][i]) * scale[o][g] + offset[o][g]
//
// Shares the memory of the file; copies are cheap. Immutable, readable from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/tensor/block_format.h"
#include "minisgl/tensor/code_kinds.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/tensor/tensor_view.h"

namespace minisgl {

// Unsigned codes of 4 or 8 bits, several in a word of 32 or 8 bits (little endian), neighbours in
// the lowest bits first, unless `order` says otherwise. Bytes one after another are words of 32
// bits, too.
struct CodePlane {
  enum class Packed : uint8_t { kAlongInputs, kAlongOutputs };  // neighbours that share a word

  const std::byte* data = nullptr;
  int32_t bits = 8;
  int32_t word_bits = 32;
  Packed packed = Packed::kAlongInputs;
  int64_t word_step = 4;   // bytes from a word to the next one in the packed direction
  int64_t other_step = 0;  // bytes from a code to the next one in the other direction
  // The place in a word of each of its codes; the first word_bits / bits entries are used.
  std::array<uint8_t, 8> order = {0, 1, 2, 3, 4, 5, 6, 7};

  int64_t codes_per_word() const { return word_bits / bits; }
  uint8_t At(int64_t out, int64_t in) const;
  // Codes (out, first) to (out, first + count - 1).
  void ReadRow(int64_t out, int64_t first, int64_t count, uint8_t* codes) const;
};

// The scales of groups: numbers of any type.
struct ScalePlane {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t group_outputs = 1;  // outputs that share a scale
  int64_t output_step = 0;    // bytes between neighbouring groups of outputs
  int64_t group_step = 0;     // bytes between neighbouring groups of inputs

  // The address of the scale of (out, group of inputs).
  const std::byte* Place(int64_t out, int64_t group) const;
  // That scale as f32.
  float At(int64_t out, int64_t group) const;
};

struct QuantizedWeights {
  CodePlane codes;
  const float* numbers = nullptr;  // [1 << codes.bits] the value of each code; static
  ScalePlane scales;
  // The scale is a stored one * global_scale, or / global_scale.
  float global_scale = 1;
  bool divides_by_global = false;
  // Zero points: the zero of a group is `zeros` of it, plus zero_offset, modulo 2^bits, as a number
  // of the table. Null data: all are 0.
  CodePlane zeros;
  int32_t zero_offset = 0;
  int64_t num_groups = 0;    // of inputs
  int64_t group_inputs = 0;  // neighbouring inputs in a group; the last group may have fewer
  // The format asks that inputs of products are rounded to int8, with one scale a row. Engines may
  // do so.
  bool int8_inputs = false;
  // Or to e4m3, and of kTensor their scale. Engines may do so.
  InputRounding e4m3_inputs = InputRounding::kNone;
  float input_scale = 1;
  // Or the group of each input, [in] i32 at any address; null: input i is in i / group_inputs.
  const std::byte* group_index = nullptr;

  int64_t GroupOf(int64_t in) const;
  float ScaleOf(int64_t out, int64_t group) const;
  float ZeroOf(int64_t out, int64_t group) const;
};

class WeightTensor {
 public:
  WeightTensor() = default;
  // A dense matrix. REQUIRES two axes and a type that engines compute in.
  WeightTensor(const TensorView& matrix);  // NOLINT: a dense view is a weight tensor
  WeightTensor(int64_t num_out, int64_t num_in, QuantizedWeights quantized);
  // Rows of blocks, one after another from `data` on. REQUIRES whole blocks in a row.
  WeightTensor(int64_t num_out, int64_t num_in, const BlockFormat* format, const std::byte* data);

  int64_t num_out() const { return num_out_; }
  int64_t num_in() const { return num_in_; }

  bool is_dense() const { return quantized_ == nullptr && blocks_ == nullptr; }
  // Null unless the matrix is rows of blocks.
  const BlockFormat* blocks() const { return blocks_; }
  // The same rows of blocks, whose codes and scales can also be read apart: quantized() describes
  // them. Multiplies all weights by `factor`, which is 1 unless scales
  // are of type e4m3. REQUIRES blocks().
  WeightTensor WithCodes(float factor = 1) const;
  // Null unless the matrix is codes and scales. For rows of blocks it has no data; the functions
  // below read both.
  const QuantizedWeights* quantized() const { return quantized_.get(); }
  // The type of a dense matrix; f32 for others.
  DType dtype() const { return dtype_; }

  // The weights of output `out` as f32, to row[num_in].
  void ReadRow(int64_t out, float* row) const;
  // The codes, the scale and the zero of a quantized matrix. Groups are counted in the stored
  // matrix: input i of a cut is in group quantized()->GroupOf(first_input() + i).
  void ReadCodes(int64_t out, uint8_t* codes) const;  // [num_in]
  float ScaleOf(int64_t out, int64_t group) const;
  // The address of that scale as stored, without the global scale. REQUIRES quantized() and no
  // blocks().
  const std::byte* StoredScale(int64_t out, int64_t group) const;
  float ZeroOf(int64_t out, int64_t group) const;
  bool has_offsets() const {
    return blocks_ != nullptr && blocks_->codes.offset != BlockOffset::kNone;
  }
  float OffsetOf(int64_t out, int64_t group) const;
  // The block of a group. REQUIRES blocks().
  const std::byte* BlockOf(int64_t out, int64_t group) const;
  int64_t first_input() const { return first_input_; }
  // True if a cut begins with a group of the stored matrix, and with one of groups that share a
  // factor, or is within one group. REQUIRES quantized().
  bool HasWholeGroups() const;

  // The stored weights of output `out`, one after another; null if they are not dense or not
  // neighbours.
  const std::byte* DenseRow(int64_t out) const;

  // The same weights in another order, or some of them. The results share the memory of this
  // matrix.
  WeightTensor TakeRows(std::vector<int64_t> rows) const;  // outputs rows[0], rows[1], ...
  // Inputs order[0], order[1], ... Codes are no longer read apart from their scales. REQUIRES a
  // whole matrix, dense or of blocks, and an order of all its inputs.
  WeightTensor OrderInputs(std::vector<int64_t> order) const;
  // The matrix of the same form that is num_bytes after this one in the file. REQUIRES a whole
  // dense matrix, or one of blocks, in its stored order.
  WeightTensor Following(int64_t num_bytes) const;
  // The cut for one of several ranks. REQUIRES a range within the matrix.
  WeightTensor TakeOutputs(int64_t first, int64_t count) const;
  WeightTensor TakeInputs(int64_t first, int64_t count) const;
  WeightTensor Transposed() const;  // REQUIRES a dense matrix in its stored order

  // True if both are dense or rows of blocks, and the same memory in the same order.
  bool IsSame(const WeightTensor& other) const;

  // kBadInput with the place and the value of the first number that is wrong: a scale or a code
  // that is NaN, an infinite scale, a group that does not exist. Reads the whole matrix.
  Status CheckNumbers() const;

 private:
  int64_t StoredRow(int64_t out) const;
  void ReadDense(int64_t out, float* row) const;
  // Calls read(block, elements) for each block of an output.
  template <typename Element, typename Read>
  void ForBlocks(int64_t out, Element* row, const Read& read) const;
  std::array<float, 2> StepsOf(const std::byte* block, int64_t group) const;
  void ReadQuantized(int64_t out, float* row) const;
  void ReadOrdered(int64_t out, float* row) const;
  Status CheckBlocks() const;

  int64_t num_out_ = 0, num_in_ = 0;
  // Dense:
  const std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int64_t output_step_ = 0, input_step_ = 0;  // bytes
  // Rows of blocks, from data_ on, output_step_ apart:
  const BlockFormat* blocks_ = nullptr;
  float block_factor_ = 1;
  // Quantized:
  std::shared_ptr<const QuantizedWeights> quantized_;
  int64_t first_output_ = 0, first_input_ = 0;
  // The stored row of each output; null: in order.
  std::shared_ptr<const std::vector<int64_t>> rows_;
  // The stored input of each input; null: in order.
  std::shared_ptr<const std::vector<int64_t>> inputs_;
};

// The matrices of `views`, dense.
std::vector<WeightTensor> ToWeightTensors(std::span<const TensorView> views);

// Tables of codes' values, for QuantizedWeights::numbers.
const float* E4M3Numbers();                // [256]
const float* E2M1Numbers();                // [16] 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
const float* SignedNumbers();              // [256] two's complement
const float* OffsetNumbers(int32_t bits);  // [1 << bits] code - 2^(bits - 1)
const float* UnsignedNumbers();            // [256] code; for 4 bits, its first 16

}  // namespace minisgl
