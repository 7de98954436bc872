// The architectures of GGUF files that run: their metadata as keys of config.json, and the names of
// their tensors.
//
// Source: the converter of llama.cpp, which defines both, and its changes to tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "weights/architecture_table.h"
#include "weights/gguf_metadata.h"

namespace minisgl::weights {

struct GgufArchitecture {
  const char* name;          // of "general.architecture"
  const char* architecture;  // the entry of the table of architectures
  // Rows of queries and keys are stored with the two features of each rotated pair side by side.
  bool pairs_side_by_side = false;
  bool norms_with_one = false;  // norms that others store as w - 1 are stored as w
  bool partial_rotary = false;  // rope.dimension_count may be less than a head
  // Heads of recurrent values are stored by turns: the first of each group, then the second of
  // each.
  bool values_by_turns = false;
  bool decays_as_powers = false;       // decay rates are stored as -exp(w)
  bool feed_forward_by_layer = false;  // `write` reads a list of widths
  bool own_attention = false;          // `write` reads heads and rotary settings, too
  bool gate_apart = false;  // dense gates are stored apart from what they gate (ModelConfig)
  std::vector<NamedRole> names = {};  // of tensors that differ from llama's
  // Adds keys that only this family has.
  void (*write)(GgufMetadata* metadata, Json* config) = nullptr;
};

// The entry of a file. kBadInput, with the names of those that run, for one that has none.
Result<const GgufArchitecture*> FindGgufArchitecture(const GgufHeader& header);

// The entry of this name; null if there is none.
const GgufArchitecture* GgufArchitectureNamed(std::string_view name);

// Where the rows of queries or keys are if pairs_side_by_side: row (head, half, pair) is stored as
// (head, pair, half).
std::vector<int64_t> RowsOfPairs(int64_t num_rows, int64_t head_dim);

// "llama, qwen2, ..." for messages.
std::string GgufArchitectureNames();

// The name of the tensor of `role` in a GGUF file, within a layer "blk.N."; null if none is known.
const char* GgufNameOf(const GgufArchitecture& entry, TensorRole role);

}  // namespace minisgl::weights
