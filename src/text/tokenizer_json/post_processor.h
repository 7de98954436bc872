// What is put around a text ("post_processor" of tokenizer.json): here, the ids before and after a
// single one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {

struct Surroundings {
  std::vector<TokenId> prefix, suffix;
};

// `place` holds null or an object with "type"; `has_id` says which ids exist.
Result<Surroundings> ReadPostProcessor(const JsonPlace& place,
                                       const std::function<bool(int64_t)>& has_id);

}  // namespace minisgl::text
