// Multimodal models whose text model is one of the table of architectures: class names, the
// model_types of text that they hold, and how their files name the text model's tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "weights/architecture_table.h"

namespace minisgl::weights {

// A text model inside a wrapper.
struct InnerModel {
  const char* model_type;    // of text_config
  const char* architecture;  // its entry in the table
  // JSON: values of keys that published files of this wrapper leave out of text_config, as the
  // reference has them.
  const char* defaults = "{}";
};

struct Wrapper {
  const char* name;               // of config.json's `architectures`
  const char* model_type;         // and of its `model_type`
  std::vector<InnerModel> inner;  // a text_config without model_type is the first
  bool may_be_flat = false;       // older files have the keys of text_config at the top
};

const std::vector<Wrapper>& Wrappers();
// The wrapper of a name in `architectures`, or of a model_type; null if unknown.
const Wrapper* FindWrapper(std::string_view name);
const Wrapper* FindWrapperOfType(std::string_view model_type);

// "gemma3, gemma4, ...", for messages.
std::string SupportedWrappers();
// "\"llama\", \"mistral\"": the model_types of text that `wrapper` may hold.
std::string InnerTypes(const Wrapper& wrapper);

// The entry whose layers, without an output head, are the class `name`: "Qwen3Model" of
// "Qwen3ForCausalLM", "Gemma3TextModel" of "Gemma3ForCausalLM". Null if there is none.
const Architecture* FindArchitectureOfBody(std::string_view name);

// Sets how the files of `checkpoint` name the text model's tensors and order its experts' matrices.
// An output head that is stored is used: the reference does not tie two tensors that differ.
// REQUIRES a wrapper, or an entry with forms.
void FindStoredForm(const Checkpoint& checkpoint, ModelConfig* config);

// The same for a model that may be stored as its layers alone, without the output head and without
// "model." before the names of tensors, as models of vectors are. A head that is not stored counts
// as tied to the embedding, so that the model loads; `lacks_head` says that it is none.
void FindBodyNames(const Checkpoint& checkpoint, ModelConfig* config);

inline constexpr std::string_view kPredictionPart = "layers that predict further tokens";

// The part of a wrapper, other than its text model, that a tensor belongs to ("images"), by its
// name; "" if none is known.
std::string_view OtherPartOf(std::string_view name);

}  // namespace minisgl::weights
