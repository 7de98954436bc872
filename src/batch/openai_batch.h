// Formats output rows for an OpenAI Batch file: `response` holds the body that the row's URL
// returns; failures become a status code and the service's error object.
//
// Values that the service takes from a random generator or a clock are functions of the row here,
// so that a repeated run writes the same bytes: ids derive from the custom_id and the row's index;
// `created` is 0.
#pragma once

#include <string>
#include <vector>

#include "batch/row.h"
#include "batch/row_output.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::batch {

// Each returns one line. REQUIRES row.format to be one of an OpenAI Batch file.
std::string FormatBatchAnswer(const Row& row, const std::vector<RowAnswer>& answers,
                              const Tokenizer& tokenizer);
std::string FormatBatchError(const Row& row, const RowError& error);

}  // namespace minisgl::batch
