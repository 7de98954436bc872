// The normalisation table of a sentencepiece model in tokenizer.json ("Precompiled"), read as the
// reference reads it: cluster by cluster of characters, which is not what sentencepiece does.
#pragma once

#include <memory>
#include <string>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"
#include "text/tokenizer_json/normalizer.h"

namespace minisgl::text {

Result<std::unique_ptr<const Normalizer>> ReadPrecompiled(const JsonPlace& place);

}  // namespace minisgl::text
