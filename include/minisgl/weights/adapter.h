// Adapters of a model (LoRA), as PEFT writes them: a folder with adapter_config.json and
// adapter_model.safetensors; or as llama.cpp does: a GGUF file. Hostile input.
//
// The scale s is alpha / r, or alpha / sqrt(r) with use_rslora; rank_pattern and alpha_pattern give
// a module its own r and alpha. An adapted module computes (PEFT 0.21):
//   a product:    y = W x + b + s (B (A x) + c), c the bias of B
//   with DoRA:    y = m / n * (W x + s B (A x)) + b, n[j] the length of row j of W + s B A
//   an embedding: e = E[t] + s B A[:, t]
// Biases, whole modules and rows of single tokens that were trained replace the base's.
//
// What is known and not done is refused by its name. Values are immutable and readable from any
// thread; they share the memory of the files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/prefix_key.h"
#include "minisgl/base/status.h"
#include "minisgl/tensor/tensor_view.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl {

// What an adapter changes of one module. A tensor without data is absent. Tensors are f32, f16 or
// bf16, and finite.
struct AdapterChange {
  // Its name, without PEFT's "base_model.model."; of a GGUF file that of its tensor, without
  // ".weight".
  std::string module;
  // The low-rank part, if rank > 0: a [rank, in], b [out, rank]. Of an embedding: a [rank, V],
  // b [D, rank]. Of a parameter of E experts (target_parameters): a [E * rank, in] with the rank as
  // the faster index, b [out, rank * E] with the expert as the faster one; `rank` is then E * r.
  int64_t rank = 0;
  double scale = 0;  // s
  bool is_embedding = false;
  // The config's r, by which the rank of a parameter of several experts counts for each; 0 for any
  // other module.
  int64_t rank_of_expert = 0;
  TensorView a, b;
  TensorView b_bias;     // [out] c
  TensorView magnitude;  // [out] m
  TensorView bias;       // [out] in place of the base's
  TensorView weight;     // [out, in] in place of the base's
  // [tokens, D] rows of an embedding in place of the base's, of these ids, none of them twice.
  TensorView token_rows;
  std::vector<TokenId> tokens;

  bool is_low_rank() const { return rank > 0; }
};

struct Adapter {
  std::string dir;
  std::string base;                    // the model it was trained on: a hint
  std::string gguf_architecture;       // of a GGUF file, whose tensors name modules; else ""
  std::vector<AdapterChange> changes;  // sorted by module
  // Names of modules that its configuration has it change wherever the model has them.
  std::vector<std::string> targets;
  // A hash of whatever decides answers: modules, scales, tensors. Equal adapters in two folders
  // have one.
  ContentHash hash{};
  uint64_t num_bytes = 0;              // of its tensors
  std::shared_ptr<const void> memory;  // keeps the tensors
};

// True if `dir` has a file adapter_config.json, or is a file with the name of a GGUF file.
bool IsAdapterDir(const std::string& dir);

// Reads and checks an adapter's files, but not whether it fits a model (minisgl/model/adapters.h).
// kBadInput with the file and the key or tensor; kNoInput.
// `dir`: the folder, or a GGUF file.
Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& dir);

// The same from a config's text and tensors; `file` and the checkpoint's source are their names in
// errors. For tests.
Result<std::shared_ptr<const Adapter>> ReadAdapter(const std::string& config,
                                                   const std::string& file,
                                                   std::shared_ptr<const Checkpoint> tensors);

// 32 hexadecimal digits.
std::string HashText(const ContentHash& hash);

}  // namespace minisgl
