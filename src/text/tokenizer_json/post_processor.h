// The ids that are added before and after a text ("post_processor" of tokenizer.json). Pairs of
// texts are not supported.
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

// Reads a post-processor from null or an object with "type". `has_id` returns true if an id exists.
Result<Surroundings> ReadPostProcessor(const JsonPlace& place,
                                       const std::function<bool(int64_t)>& has_id);

}  // namespace minisgl::text
