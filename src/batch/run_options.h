// Command line options of the commands that read rows: `minisgl run`, `score`, `embed`, `classify`
// and `rerank`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "batch/row.h"
#include "batch/row_template.h"
#include "load/image_options.h"
#include "load/options.h"
#include "load/user_tools.h"
#include "minisgl/base/status.h"
#include "term/progress.h"

namespace minisgl::batch {

// How texts become vectors (`minisgl embed`).
struct VectorOptions {
  bool is_query = false, is_document = false;  // the model's prompts of these names
  std::string prompt_name;                     // another one; "": none is named
  std::optional<int64_t> dimensions;
  bool normalizes = false;
  bool in_base64 = false;
  bool in_f16 = false;  // numbers of an array
};

// How texts get labels or scores (`minisgl classify`, `minisgl rerank`).
struct ScoringOptions {
  std::optional<std::string> query;  // of rows that have none
  std::string instruction;           // "": the model's
  bool raw = false;                  // the numbers of the head, not probabilities
};

struct RunOptions {
  load::ModelOptions model;
  load::EngineOptions engine;
  load::SamplingOptions sampling;
  load::ReportOptions reports;
  load::ToolOptions tools;

  std::optional<std::string> file;  // "-" is standard input
  std::optional<std::string> prompt;
  std::vector<std::string> images;     // files of pictures, before the text of `prompt`
  load::ImageOptions image_options;    // of all pictures
  std::optional<std::string> system;   // text; or @FILE until the run has read the file
  std::optional<std::string> prefill;  // the beginning of every answer to messages
  TemplateOptions rows;                // of what the file has
  bool raw = false;
  bool chat = false;  // prompts of rows are user messages
  bool json = false;
  bool hide_thinking = false;
  bool plain = false;  // on a terminal, too
  bool no_stdin = false;

  std::string output;  // "" is standard output
  // The table that is made of the output at the end (table_output.h); "": none.
  std::string table;
  // The array that is made of it at the end (array_output.h); "": none.
  std::string array;
  // The file of error rows; "": they go to the output. And the table that is made of it.
  std::string errors;
  std::string errors_table;
  bool force = false;
  bool ordered = false;
  bool unordered = false;  // also on standard output
  bool stream = false;     // lines of parts of answers before their rows
  bool resume = false;
  bool retry_failed = false;
  bool row_metrics = false;
  std::string shard;  // "" means all rows
  double grace_s = 5;
  std::optional<int64_t> max_failures;  // unset means no limit
  std::optional<double> timeout_s;      // of rows that set none
  int32_t retry_timeouts = 0;
  term::ProgressKind progress = term::ProgressKind::kAuto;

  bool check = false;
  bool strict = false;
  bool lenient = false;
  load::PromptOverflow on_overflow = load::PromptOverflow::kError;

  RowPurpose purpose = RowPurpose::kAnswer;  // what the command is
  VectorOptions vectors;
  ScoringOptions scoring;
  // What is made of the rows when all are there; "": the rows are the output.
  const std::string& finished_file() const { return array.empty() ? table : array; }
  // The command gives vectors or scores of texts.
  bool of_texts() const { return IsEmbedFormat(FormatFor(purpose)); }
};

void AddRunOptions(load::OptionTable* app, RunOptions* options);
// Add the options of `minisgl score`, `embed`, `classify` and `rerank`, and set `purpose`.
void AddScoreOptions(load::OptionTable* app, RunOptions* options);
void AddEmbedOptions(load::OptionTable* app, RunOptions* options);
void AddClassifyOptions(load::OptionTable* app, RunOptions* options);
void AddRerankOptions(load::OptionTable* app, RunOptions* options);

// Checks options that depend on each other. kUsage if they conflict, kUnavailable for the device.
Status CheckRunOptions(const RunOptions& options);

// kUsage if an option needs an input that can be read twice, unlike the input `name`.
Status CheckReadsOnce(const RunOptions& options, const std::string& name);

}  // namespace minisgl::batch
