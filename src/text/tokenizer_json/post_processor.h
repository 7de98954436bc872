// The ids that are added around a text, or two ("post_processor" of tokenizer.json).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {

struct Surroundings {
  std::vector<TokenId> prefix, suffix;
  // Null if no step says what is added to two texts, or several do, or one in a way that no model
  // is known to want: the texts in another order, or types that change more than once.
  std::shared_ptr<const PairFrame> pair;
  int num_steps = 0;  // that add ids
};

// Reads a post-processor from null or an object with "type". `has_id` returns true if an id exists.
Result<Surroundings> ReadPostProcessor(const JsonPlace& place,
                                       const std::function<bool(int64_t)>& has_id);

}  // namespace minisgl::text
