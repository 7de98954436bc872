// Rows of an OpenAI Batch file, answered as that service answers them: the body of the row's URL
// inside `response`, failures as a status code and the service's error object.
//
// What the service draws or reads off a clock is a function of the row here, so that a run gives
// the same bytes again: ids come from the custom_id and the row's place, `created` is 0.
#pragma once

#include <string>
#include <vector>

#include "batch/row.h"
#include "batch/row_output.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::batch {

// One line each. REQUIRES row.format to be of a Batch file.
std::string FormatBatchAnswer(const Row& row, const std::vector<RowAnswer>& answers,
                              const Tokenizer& tokenizer);
std::string FormatBatchError(const Row& row, const RowError& error);

}  // namespace minisgl::batch
