// adapter_config.json of PEFT. Keys that change answers are read, or refused by name if they ask
// for what is not done; keys for training alone are skipped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "weights/name_pattern.h"

namespace minisgl::weights {

// Values by the first pattern that fits a module, in the order of the file.
template <typename Value>
using ByPattern = std::vector<std::pair<NamePattern, Value>>;

struct AdapterConfig {
  std::string base;  // base_model_name_or_path
  int64_t r = 8;
  double alpha = 8;
  bool use_rslora = false, use_dora = false;
  ByPattern<int64_t> ranks;
  ByPattern<double> alphas;
  // Names, as PEFT takes them: all of a module's, or its last parts. Or one expression.
  std::vector<std::string> targets, target_parameters, modules_to_save;
  std::optional<NamePattern> target_pattern;
  std::string target_text;  // of it
  bool targets_all = true;  // no key takes layers or modules out of what the names above fit
  // The ids of tokens whose rows were trained, by the name of the embedding.
  std::map<std::string, std::vector<TokenId>, std::less<>> tokens;
  bool ties_embeddings = false;  // ensure_weight_tying

  int64_t RankOf(std::string_view module) const;
  double AlphaOf(std::string_view module) const;
};

// `file`: its name in errors. kBadInput with the key, what was found and what is supported.
Result<AdapterConfig> ReadAdapterConfig(const std::string& text, const std::string& file);

// True if `module` is `name` or ends with "." and it.
bool IsNamed(std::string_view module, std::string_view name);

}  // namespace minisgl::weights
