// What a run's answers depend on, kept as JSON in OUT.meta beside the output, so that a run that
// resumes is told when it would go on with something else.
//
// The input counts by all its bytes, the model by its small files whole and samples of its weights,
// options by their values. What changes no answer is left out: where it runs, how much at once.
//
// Its member minisgl_run is its version, which says too how seeds are made. In version 1 answer k
// of a row took the row's seed + k, and a seed of -1 was 2^64 - 1.
#pragma once

#include <cstdint>
#include <string>

#include "batch/row_source.h"
#include "batch/run_input.h"
#include "batch/run_options.h"
#include "batch/shard.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

std::string JournalPath(const std::string& output_path);

// REQUIRES reader.regular(), and `check` is of all of it. kIoError.
Result<Json> DescribeRun(const RunOptions& options, const LineReader& reader,
                         const FileCheck& check, const Shard& shard, const std::string& model_dir);

// kNoInput where there is none, kBadInput where it is none.
Result<Json> ReadJournal(const std::string& output_path);
Status WriteJournal(const std::string& output_path, const Json& run);

// "" where `now` goes on with the run `before`: the same, or the same with rows added to the input
// (not of a shard, whose rows would be others). Else what is not the same, and what to do.
Result<std::string> DifferenceOfRuns(const Json& before, const Json& now, const LineReader& reader,
                                     const FileCheck& check);

// The seed of a run that is to draw one: that of the journal, where the run goes on with
// `output_path`.
uint64_t DrawSeedOfRun(const std::string& output_path, bool resume);

}  // namespace minisgl::batch
