// The journal of a run: everything its answers depend on, as JSON in OUT.meta beside the output
// OUT. A resumed run compares it and refuses to continue with something else.
//
// Identity: the input by all its bytes; the model by its small files as a whole and samples of its
// weights; options by value. Settings that change no answer (devices, batch sizes) are left out.
//
// The member minisgl_run is the version of the journal and of the seed rule. In version 1, answer k
// of a row used the row's seed + k, and seed -1 was 2^64 - 1.
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

// Describes the run. REQUIRES reader.regular() and a `check` of the whole input. kIoError.
Result<Json> DescribeRun(const RunOptions& options, const LineReader& reader,
                         const FileCheck& check, const Shard& shard, const std::string& model_dir);

// kNoInput if there is no journal, kBadInput if it is invalid.
Result<Json> ReadJournal(const std::string& output_path);
Status WriteJournal(const std::string& output_path, const Json& run);

// Returns "" if `now` may continue `before`: both are the same, or rows were appended to the input
// (not with shards, whose rows would change). Otherwise describes the difference and what to do.
Result<std::string> DifferenceOfRuns(const Json& before, const Json& now, const LineReader& reader,
                                     const FileCheck& check);

// Returns a seed for a run that needs one: the journal's if the run resumes `output_path`,
// otherwise a random one.
uint64_t DrawSeedOfRun(const std::string& output_path, bool resume);

}  // namespace minisgl::batch
