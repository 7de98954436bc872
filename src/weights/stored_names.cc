#include "weights/stored_names.h"

#include <set>
#include <vector>

#include "weights/architectures.h"
#include "weights/stored_matrix.h"

namespace minisgl::weights {

std::string StoredName(const ModelConfig& config, const Checkpoint& checkpoint,
                       const std::string& name) {
  if (!config.tie_word_embeddings || checkpoint.Holds(name)) return name;
  const HeadNames names = HeadNamesOf(config);
  return name == names.embedding && checkpoint.Holds(names.head) ? names.head : name;
}

Status CheckNothingAbsent(const ModelConfig& config, const Checkpoint& checkpoint) {
  const std::vector<std::string> absent = checkpoint.Absent();
  if (absent.empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(const auto required, RequiredTensors(config));
  std::set<std::string> needed, modules;
  for (const RequiredTensor& tensor : required) {
    const std::string name = StoredName(config, checkpoint, tensor.name);
    needed.insert(name);
    modules.insert(name.substr(0, name.rfind('.')));
  }
  for (const std::string& name : absent) {
    // Codes and scales stand in place of a quantized matrix.
    const bool is_part = !config.quantization.empty() && !name.ends_with(".bias") &&
                         !IsActivationScale(name) &&
                         modules.contains(name.substr(0, name.rfind('.')));
    if (needed.contains(name) || is_part) return checkpoint.GetStored(name).status();
  }
  return Status();
}

bool IsActivationScale(std::string_view name) {
  for (const std::string_view suffix :
       {".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale",
        ".activation_scale", ".k_scale", ".v_scale", ".q_scale"}) {
    if (name.ends_with(suffix)) return true;
  }
  // The suffix that stacks have.
  return name.ends_with("_proj_input_scale");
}

}  // namespace minisgl::weights
