// What a model directory says about vectors of texts, in the files of sentence-transformers:
// modules.json, and the files that it names. Files are untrusted.
//
//   modules.json                        the modules, one after another
//   sentence_bert_config.json           the longest text, and whether texts are in lower case
//   config_sentence_transformers.json   texts to put before others, by their names
//   N_Pooling/config.json, N_Dense/config.json and N_Dense/model.safetensors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/plan/pooling.h"

namespace minisgl {

// out = activation(weight x + bias)
struct DenseModule {
  int64_t in = 0, out = 0;
  std::vector<float> weight;  // [out, in]
  std::vector<float> bias;    // [out] or empty
  bool has_tanh = false;      // else there is no activation
};

// What a pooled state passes through; one of both. Normalised: divided by its length.
struct VectorModule {
  std::optional<DenseModule> dense;  // nullopt: normalised
};

struct VectorPipeline {
  bool is_stated = false;  // the directory has modules.json
  Pooling pooling = Pooling::kMean;
  // The tokens of the prompt before a text count (include_prompt); else they are left out of the
  // vector, with those that the tokenizer puts before them.
  bool pools_prompt = true;
  std::vector<VectorModule> modules;
  std::optional<int64_t> max_tokens;  // of a text, those that the tokenizer adds included
  bool lowercases = false;            // texts are in lower case before they are encoded
  std::optional<int64_t> dimensions;  // vectors are cut to these
  std::vector<std::pair<std::string, std::string>> prompts;  // by name
  std::string default_prompt;  // the text of the prompt that is used if none is named

  // True if the last module normalises: then vectors that are cut are normalised again.
  bool normalizes() const { return !modules.empty() && !modules.back().dense; }
  // The text of a prompt; null if there is none of that name.
  const std::string* FindPrompt(const std::string& name) const;
};

// Reads the pipeline of `model_dir`, for states of `hidden_size` elements. Without modules.json
// (and of a GGUF file that names no pooling) the vector is the mean of the states, as
// sentence-transformers makes it. kBadInput: a module that is not built, by name; files that
// contradict each other.
Result<VectorPipeline> LoadVectorPipeline(const std::string& model_dir, int64_t hidden_size);

// True if the directory, or the GGUF file, says that it has a pipeline with a pooling.
bool HasVectorModules(const std::string& model_dir);

// Sets what the directory says of texts, beside modules: max_tokens, lowercases and prompts. For
// heads of encoders.
Status LoadTextBounds(const std::string& model_dir, VectorPipeline* pipeline);

// The vector of a pooled state: what the modules make of it, cut to `dimensions` if they are given
// and fewer. `normalizes`: the vector is normalised whatever the modules are.
std::vector<float> FinishVector(const VectorPipeline& pipeline, std::vector<float> state,
                                std::optional<int64_t> dimensions, bool normalizes);

}  // namespace minisgl
