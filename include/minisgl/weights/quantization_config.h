// How a checkpoint's matrices are quantized: `quantization_config` of config.json or
// hf_quant_config.json, parsed and checked, or the types of a GGUF file's tensors.
//
// The tensors decide which matrices are quantized: a matrix with codes and scales is, one with
// plain weights is not, whatever lists of exceptions say. The configuration says how codes are
// read, and a matrix that is stored in none of its ways is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/tensor/code_form.h"

namespace minisgl {

// The tensors of a quantized matrix, by their suffixes. Layouts and formulas are at the reader of
// each, src/weights/stored_matrix.cc.
enum class QuantLayout : uint8_t {
  kFp8,          // weight (e4m3), weight_scale_inv or weight_scale
  kInt8,         // weight (i8), weight_scale
  kPackedInt,    // weight_packed (i32), weight_scale, weight_zero_point, weight_g_idx
  kGptq,         // qweight, qzeros, scales, g_idx
  kAwq,          // qweight, qzeros, scales
  kNvfp4Packed,  // weight_packed (u8), weight_scale (e4m3), weight_global_scale: divides
  kNvfp4,        // weight (u8), weight_scale (e4m3), weight_scale_2: multiplies
  kMxfp4Packed,  // weight_packed (u8), weight_scale (e8m0)
  kMxfp8,        // weight (e4m3), weight_scale (e8m0)
  kMxfp4Blocks,  // _blocks, _scales: of all experts
  kRowBlocks,    // of a GGUF file (tensor/block_format.h), which says itself which matrices are
};

// One way in which matrices of a checkpoint are stored.
struct QuantScheme {
  QuantLayout layout = QuantLayout::kFp8;
  int32_t bits = 8;
  // A scale is of group_outputs x group_inputs weights; 0: of all outputs, or of all inputs.
  int64_t group_outputs = 1, group_inputs = 0;
  bool has_zeros = false;     // zero points beside the scales
  bool has_offsets = false;   // offsets beside the scales (weight_tensor.h)
  int64_t factor_inputs = 0;  // whose scales share a factor (block_format.h); 0: none do
  // The CPU keeps the file's blocks, of so many inputs and bytes (BlockFormat::is_compact); 0: not.
  int64_t block_inputs = 0, block_bytes = 0;
  bool zeros_minus_one = false;     // GPTQ: a stored zero point is one less than the zero
  bool has_order = false;           // the group of each input is stored
  bool rounds_activations = false;  // the publisher computes with activations of 8 bits or fewer
  bool int8_inputs = false;  // these are of int8, with a scale for each token, found as it runs
  InputRounding e4m3_inputs = InputRounding::kNone;  // or of e4m3
  // The form of kRowBlocks on a device.
  CodeForm block_form = {};

  bool operator==(const QuantScheme&) const = default;
  // "int4, groups of 128", "fp8, blocks of 128 x 128"
  std::string Name() const;
  // The form that a device keeps such a matrix of `num_in` inputs in, with scales in f32 where the
  // scheme does not say their type; nullopt if it expands it.
  std::optional<CodeForm> DeviceForm(int64_t num_in) const;
};

// How each matrix of a checkpoint is stored. A mixture has tens of thousands of them, and a
// configuration many copies, which share one such list.
struct StoredMatrices {
  std::vector<std::string> dense;  // sorted names
  // The scheme of each quantized matrix, if the files say it; empty: any of them.
  std::map<std::string, QuantScheme, std::less<>> scheme_of;
  // The experts of a layer are stored alike, and each matrix is listed for the first one only.
  bool experts_alike = false;
};

struct QuantizationConfig {
  std::string method;                // quant_method: "compressed-tensors"; "": not quantized
  std::vector<QuantScheme> schemes;  // at least one if quantized
  std::string text;                  // the whole configuration, for keys of stored files
  // Null unless the checkpoint's files were looked at: all matrices of layers are taken to be
  // quantized by the first scheme.
  std::shared_ptr<const StoredMatrices> matrices;

  bool empty() const { return schemes.empty(); }
};

}  // namespace minisgl
