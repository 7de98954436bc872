// What a run's answers depend on, kept as JSON in OUT.meta beside the output, so that a run that
// resumes is told when it would go on with something else.
//
// The input counts by all its bytes, the model by its small files whole and samples of its weights,
// options by their values. What changes no answer is left out: where it runs, how much at once.
#pragma once

#include <cstdint>
#include <string>

#include "cli/run_input.h"
#include "cli/run_options.h"
#include "cli/shard.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl {

std::string JournalPath(const std::string& output_path);

// REQUIRES reader.regular(). `num_rows` of it. kIoError.
Result<Json> DescribeRun(const RunOptions& options, const LineReader& reader, int64_t num_rows,
                         const Shard& shard, const std::string& model_dir);

// kNoInput where there is none, kBadInput where it is none.
Result<Json> ReadJournal(const std::string& output_path);
Status WriteJournal(const std::string& output_path, const Json& run);

// "" where `now` goes on with the run `before`: the same, or the same with rows added to the input
// (not of a shard, whose rows would be others). Else what is not the same.
Result<std::string> DifferenceOfRuns(const Json& before, const Json& now, const LineReader& reader);

}  // namespace minisgl
