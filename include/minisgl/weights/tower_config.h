// The configuration of a multimodal model's tower, read from config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl {

struct TowerConfig {
  std::string name;              // the family, as reports name it
  int32_t text_hidden_size = 0;  // floats of an embedding
  int32_t num_deepstack = 0;     // further vectors of each embedding
};

// The tower in the contents of config.json; nullopt: the model has none. kBadInput: a key has a
// wrong type or value, with its name. kUnavailable: this program has no such tower, with the
// family's name; the text of the model may run all the same.
Result<std::optional<TowerConfig>> ReadTowerConfig(const Json& config);

}  // namespace minisgl
