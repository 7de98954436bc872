// Rows that a template makes of the records of an input (--template): the lines of a table, or JSON
// objects that are data and no rows of a prompt file. Each column, or member, is a variable of the
// template.
//
// The column `id` or `custom_id` is the row's id, if it can be one; nothing else of a record has a
// meaning of its own. Records are untrusted, as rows are. Thread-safe, except for the options.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "batch/run_input.h"
#include "load/option_table.h"
#include "minisgl/base/status.h"
#include "minisgl/text/text_template.h"

namespace minisgl::batch {

// kAuto: by the name of the file, in which .gz and .zst count for nothing.
enum class InputFormat : uint8_t { kAuto, kJsonLines, kCsv, kTsv };

struct TemplateOptions {
  // TEXT or @FILE until ReadTemplates; unset: rows are rows of a prompt file.
  std::optional<std::string> prompt;
  // The same of the system message; of rows to score, of the prompt before the text.
  std::optional<std::string> system;
  std::string prompt_name = "--template", system_name = "--system-template";  // for messages
  InputFormat format = InputFormat::kAuto;
  // The column, or member, that names a picture of each row: a path or a data: URI. "": none.
  std::string image_column;
};

void AddTemplateOptions(load::OptionTable* app, TemplateOptions* options, const std::string& group);
// Adds the options of `minisgl score`: --prompt-template in place of --system-template.
void AddScoreTemplateOptions(load::OptionTable* app, TemplateOptions* options,
                             const std::string& group);
// Adds the options of `minisgl embed`: --template alone.
// `verb`: what the command does with texts.
void AddTextsTemplateOptions(load::OptionTable* app, TemplateOptions* options,
                             const std::string& group, const char* verb);
// Conflicts among the options, and with others: `raw` and `system` say whether --raw and --system
// are given. kUsage.
Status CheckTemplateOptions(const TemplateOptions& options, bool raw, bool system);
// Reads the files after @ into the options.
Status ReadTemplates(TemplateOptions* options);

// Checks that the templates name anything of a record of `reader`, of which nothing was read yet:
// kUsage with its columns if neither of them has {{ }} or {% %}, since each row would be asked the
// same. Logs a warning of a column in single braces, which are text. Call it after ReadTemplates
// and ReadTable.
Status CheckNamesColumns(const TemplateOptions& options, LineReader* reader);

// What separates the fields of the table `path`; nullopt: it is JSON Lines.
std::optional<char> SeparatorOf(InputFormat format, const std::string& path);

// "csv", "tsv" or "jsonl": what the file `path` is read as.
const char* FormatName(const TemplateOptions& options, const std::string& path);

// kBadInput if the input `name`, which is to be JSON Lines, is a table by its name, and does not
// `begin` with an object.
Status CheckIsNoTable(std::string_view begin, const std::string& name);

// The columns of a record, as an object whose values are strings if it is a table's. `names`: of
// the columns (ColumnNames), if it is a table. Columns at the end of a record may be missing.
// kBadInput otherwise.
Result<Json> ReadColumns(std::string_view record, const LineReader& reader,
                         const std::vector<std::string>& names);

class RowTemplate {
 public:
  // What the text of the template is: a question in a chat, a prompt that is completed as it is, or
  // a text to score.
  // kEmbedded: a text that becomes a vector. kClassified: one that gets a label. kRanked: a
  // document, whose query is in the column `query` if there is one.
  enum class Use : uint8_t { kQuestion, kPrompt, kScored, kEmbedded, kClassified, kRanked };

  // `system`: the text of --system, if it is given. kBadInput for a template that cannot be parsed.
  // REQUIRES options.prompt.
  static Result<std::unique_ptr<RowTemplate>> Make(const TemplateOptions& options,
                                                   std::optional<std::string> system, Use use);

  // The row of the record that `reader` returned last.
  ParsedRow MakeRow(std::string_view record, const LineReader& reader,
                    const std::vector<std::string>& names, int64_t index) const;

 private:
  RowTemplate() = default;

  // Takes the picture that the record names in the column of images, if there is such a column.
  std::optional<RowError> TakePicture(const Json& columns, Row* row) const;

  std::unique_ptr<TextTemplate> prompt_, system_template_;  // the second may be null
  std::string image_column_;
  std::optional<std::string> system_;
  Use use_ = Use::kQuestion;
};

}  // namespace minisgl::batch
