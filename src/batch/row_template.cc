#include "batch/row_template.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "batch/row_conversation.h"
#include "batch/row_fields.h"
#include "batch/row_text.h"
#include "load/options.h"
#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/chat_template.h"
#include "term/messages.h"

namespace minisgl::batch {
namespace {

constexpr load::Choice<InputFormat> kFormats[] = {{"auto", InputFormat::kAuto},
                                                  {"jsonl", InputFormat::kJsonLines},
                                                  {"csv", InputFormat::kCsv},
                                                  {"tsv", InputFormat::kTsv}};

Status ReadTemplate(std::optional<std::string>* text, std::string* name) {
  if (!*text) return Status();
  if ((*text)->starts_with('@')) {
    *name = (*text)->substr(1);
    MINISGL_ASSIGN_OR_RETURN(**text, ReadFile(*name, kTemplateBytesMax));
    DropByteOrderMark(&**text);
  }
  **text = term::Utf8OrWarn(std::move(**text), *name);
  return Status();
}

void AddInputFormat(load::OptionTable* app, TemplateOptions* options, const std::string& group) {
  app->AddChoice("--input-format", &options->format, kFormats,
                 "With --template, what FILE is: jsonl, csv, tsv or auto, by its name (default "
                 "auto)")
      ->TypeName("KIND")
      ->Group(group)
      ->Advanced();
}

// The names of the columns of a regular file: of a table, or the members of the first JSON object.
Result<std::vector<std::string>> ColumnsOf(LineReader* reader) {
  if (reader->is_table()) {
    if (reader->header().empty()) MINISGL_RETURN_IF_ERROR(reader->ReadHeader());
    return ColumnNames(reader->header());
  }
  std::string_view begin;
  bool is_all = false;
  std::vector<std::string> names;
  if (reader->Peek(0, &begin, &is_all) != LineReader::Outcome::kLine) return names;
  const Result<Json> row = ParseJson(begin.substr(0, begin.find('\n')));
  if (!row.ok() || !row->is_object()) return names;
  for (const auto& [name, value] : row->as_object()) names.push_back(name);
  return names;
}

// How a template names a column.
std::string PlaceholderOf(const std::string& column) {
  const bool is_word =
      !column.empty() && std::isdigit(static_cast<unsigned char>(column[0])) == 0 &&
      std::all_of(column.begin(), column.end(),
                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_word ? fmt::format("{{{{ {} }}}}", column)
                 : fmt::format("{{{{ row[{}] }}}}", Json(column).Dump());
}

bool HasPlaceholder(const std::optional<std::string>& text) {
  return text && (text->find("{{") != std::string::npos || text->find("{%") != std::string::npos);
}

// True if `text` has {column}, with one brace on each side.
bool HasInSingleBraces(const std::string& text, const std::string& column) {
  const std::string sought = "{" + column + "}";
  for (size_t at = text.find(sought); at != std::string::npos; at = text.find(sought, at + 1)) {
    const size_t end = at + sought.size();
    if ((at == 0 || text[at - 1] != '{') && (end == text.size() || text[end] != '}')) return true;
  }
  return false;
}

// kUsage if the columns of `reader` are known and `column` is none of them.
Status CheckImageColumn(const std::string& column, const LineReader& reader,
                        const std::vector<std::string>& columns) {
  const bool is_there = std::find(columns.begin(), columns.end(), column) != columns.end();
  if (column.empty() || is_there || !reader.is_table() || columns.empty()) return Status();
  std::string listed;
  for (const std::string& name : columns) {
    listed += (listed.empty() ? "" : ", ") + Visible(name, 100);
  }
  return UsageError("--image-column {}: is no column; the columns are {}", Visible(column, 100),
                    listed);
}

// Takes the id of a record, if it can be one.
void TakeId(const Json& columns, Row* row) {
  for (const char* name : {"custom_id", "id"}) {
    const Json* value = columns.Find(name);
    if (value == nullptr || *value == Json("")) continue;
    RowDraft draft;
    Json id = *value;
    if (!FindRowField(name, kAtTop)->take(id, &draft)) continue;
    row->id = std::move(draft.row.id);
    return;
  }
}

// Takes the query of a document, if its record has one.
void TakeQuery(const Json& columns, Row* row) {
  const Json* const query = columns.Find("query");
  if (query != nullptr && query->is_string()) row->queries = {query->as_string()};
}

}  // namespace

void AddScoreTemplateOptions(load::OptionTable* app, TemplateOptions* options,
                             const std::string& group) {
  options->system_name = "--prompt-template";
  app->Add("--template", &options->prompt,
           "Score TEXT, a Jinja template, with the columns of each row of FILE: '{{ column }}'")
      ->TypeName("TEXT|@FILE")
      ->Group(group);
  app->Add("--prompt-template", &options->system,
           "With --template, the prompt before the text, a template too")
      ->TypeName("TEXT|@FILE")
      ->Group(group)
      ->Advanced();
  AddInputFormat(app, options, group);
}

void AddTextsTemplateOptions(load::OptionTable* app, TemplateOptions* options,
                             const std::string& group, const char* verb) {
  app->Add("--template", &options->prompt,
           std::string(verb) +
               " TEXT, a Jinja template, with the columns of each row of FILE (of a table "
               "'{{ text }}' by default)")
      ->TypeName("TEXT|@FILE")
      ->Group(group);
  AddInputFormat(app, options, group);
}

void AddTemplateOptions(load::OptionTable* app, TemplateOptions* options,
                        const std::string& group) {
  app->Add("--template", &options->prompt,
           "Ask TEXT, a Jinja template, with the columns of each row of FILE: '{{ column }}'")
      ->TypeName("TEXT|@FILE")
      ->Group(group);
  app->Add("--system-template", &options->system,
           "With --template, the system message, a template too")
      ->TypeName("TEXT|@FILE")
      ->Group(group)
      ->Advanced();
  AddInputFormat(app, options, group);
  app->Add("--image-column", &options->image_column,
           "With --template, show the picture that the column NAME of a row names, before the text")
      ->Check(load::CheckNotEmpty)
      ->TypeName("NAME")
      ->Group(group)
      ->Advanced();
}

Status CheckTemplateOptions(const TemplateOptions& options, bool raw, bool system) {
  if (options.prompt) {
    if (options.system && system) {
      return UsageError("--system and --system-template exclude each other; give one");
    }
    if (options.system && raw) {
      return UsageError(
          "--raw and --system-template exclude each other; a raw prompt has no "
          "messages");
    }
    if (!options.image_column.empty() && raw) {
      return UsageError(
          "--raw and --image-column exclude each other; a raw prompt has no messages");
    }
    return Status();
  }
  if (!options.image_column.empty()) return UsageError("--image-column requires --template");
  if (options.system) return UsageError("{} requires --template", options.system_name);
  if (options.format == InputFormat::kAuto) return Status();
  return UsageError("--input-format requires --template, which says what to ask of each row");
}

Status ReadTemplates(TemplateOptions* options) {
  MINISGL_RETURN_IF_ERROR(ReadTemplate(&options->prompt, &options->prompt_name));
  return ReadTemplate(&options->system, &options->system_name);
}

Status CheckNamesColumns(const TemplateOptions& options, LineReader* reader) {
  std::vector<std::string> columns;
  if (reader->regular()) {
    MINISGL_ASSIGN_OR_RETURN(columns, ColumnsOf(reader));
  }
  const bool names_any = HasPlaceholder(options.prompt) || HasPlaceholder(options.system) ||
                         !options.image_column.empty();
  MINISGL_RETURN_IF_ERROR(CheckImageColumn(options.image_column, *reader, columns));
  for (const std::string& column : columns) {
    if (!HasInSingleBraces(*options.prompt + " " + options.system.value_or(""), column)) continue;
    const std::string shown = Visible(column, 100);
    const std::string meant = Visible(PlaceholderOf(column), 100);
    if (!names_any) {
      return UsageError(
          "{}: has no {{{{ }}}}, so that each row would be asked the same; write {} for {{{}}}",
          options.prompt_name, meant, shown);
    }
    Log(LogLevel::kWarning, fmt::format("{}: {{{}}} in single braces is text as it stands; {} is "
                                        "the column",
                                        options.prompt_name, shown, meant));
  }
  if (names_any) return Status();
  std::string listed, example = "{{ column }}";
  for (const std::string& column : columns) {
    listed += (listed.empty() ? "; the columns are " : ", ") + Visible(column, 100);
    // The last one: an id stands first.
    example = Visible(PlaceholderOf(column), 100);
  }
  return UsageError(
      "{}: names no column, so that each row would be asked the same; write {} where its text "
      "belongs{}",
      options.prompt_name, example, listed);
}

std::optional<char> SeparatorOf(InputFormat format, const std::string& path) {
  if (format == InputFormat::kCsv) return ',';
  if (format == InputFormat::kTsv) return '\t';
  if (format == InputFormat::kJsonLines) return std::nullopt;
  std::string name = path;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  if (name.ends_with(".csv")) return ',';
  if (name.ends_with(".tsv") || name.ends_with(".tab")) return '\t';
  return std::nullopt;
}

const char* FormatName(const TemplateOptions& options, const std::string& path) {
  const std::optional<char> separator = SeparatorOf(options.format, path);
  if (!separator) return "jsonl";
  return *separator == ',' ? "csv" : "tsv";
}

Status CheckIsNoTable(std::string_view begin, const std::string& name) {
  if (!SeparatorOf(InputFormat::kAuto, name)) return Status();
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  const size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || begin[first] == '{') return Status();
  return BadInput(
      "{}: is not a JSON Lines file (it looks like a table); minisgl run --template 'TEXT {{{{ "
      "column "
      "}}}}' asks of each of its rows",
      name);
}

Result<Json> ReadColumns(std::string_view record, const LineReader& reader,
                         const std::vector<std::string>& names) {
  if (!reader.is_table()) {
    JsonLimits limits;
    limits.memory_max = kRowJsonMemoryMax;
    MINISGL_ASSIGN_OR_RETURN(Json columns, ParseJson(record, limits));
    if (columns.is_object()) return columns;
    return BadInput("with a template a row must be an object (found {})", columns.TypeName());
  }
  MINISGL_ASSIGN_OR_RETURN(std::vector<std::string> fields,
                           ParseRecord(record, reader.separator()));
  if (fields.size() > names.size()) {
    return BadInput("has {} fields, and the header has {}", fields.size(), names.size());
  }
  Json::Object columns;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!IsValidUtf8(fields[i])) {
      return BadInput("the column {} is not UTF-8; convert the file, as iconv does",
                      Visible(names[i], 100));
    }
    columns.emplace_back(names[i], std::move(fields[i]));
  }
  return Json(std::move(columns));
}

Result<std::unique_ptr<RowTemplate>> RowTemplate::Make(const TemplateOptions& options,
                                                       std::optional<std::string> system, Use use) {
  std::unique_ptr<RowTemplate> made(new RowTemplate());
  MINISGL_ASSIGN_OR_RETURN(made->prompt_,
                           TextTemplate::Parse(*options.prompt, options.prompt_name));
  if (options.system) {
    MINISGL_ASSIGN_OR_RETURN(made->system_template_,
                             TextTemplate::Parse(*options.system, options.system_name));
  }
  made->system_ = std::move(system);
  made->image_column_ = options.image_column;
  made->use_ = use;
  return made;
}

std::optional<RowError> RowTemplate::TakePicture(const Json& columns, Row* row) const {
  if (image_column_.empty()) return std::nullopt;
  const Json* const value = columns.Find(image_column_);
  const std::string field = Visible(image_column_, 100);
  if (value == nullptr || !value->is_string() || value->as_string().empty()) {
    return InvalidRow(fmt::format("{} must name a picture, by a path or a data: URI (found {})",
                                  field, value == nullptr ? "none" : Visible(value->Dump(), 60)),
                      field);
  }
  Result<RowImage> image = ImageNamed(value->as_string());
  if (!image.ok()) return InvalidRow(fmt::format("{}: {}", field, image.status().message()), field);
  image->field = field;
  row->images.push_back(std::move(image).value());
  return std::nullopt;
}

ParsedRow RowTemplate::MakeRow(std::string_view record, const LineReader& reader,
                               const std::vector<std::string>& names, int64_t index) const {
  ParsedRow parsed;
  Row& row = parsed.row;
  row.index = index;
  row.line = reader.line_number();
  const auto refuse = [&](std::string code, const Status& status) {
    parsed.error = RowError{std::move(code), status.message(), ""};
    return std::move(parsed);
  };
  const Result<Json> columns = ReadColumns(record, reader, names);
  if (!columns.ok()) return refuse("invalid_row", columns.status());
  TakeId(*columns, &row);
  Result<std::string> prompt = prompt_->Render(*columns);
  if (!prompt.ok()) return refuse("template_error", prompt.status());
  std::optional<std::string> system = system_;
  if (system_template_ != nullptr) {
    Result<std::string> rendered = system_template_->Render(*columns);
    if (!rendered.ok()) return refuse("template_error", rendered.status());
    system = std::move(rendered).value();
  }
  switch (use_) {
    case Use::kQuestion:
      row.kind = PromptKind::kMessages;
      if (auto error = TakePicture(*columns, &row)) {
        parsed.error = std::move(error);
        return parsed;
      }
      for (RowImage& image : row.images) image.message = system ? 1 : 0;
      row.messages = ChatMessages(system, std::move(prompt).value(), row.images.size());
      break;
    case Use::kPrompt:
      row.kind = PromptKind::kText;
      row.prompt = std::move(prompt).value();
      break;
    case Use::kScored:
      row.format = RowFormat::kScore;
      row.kind = PromptKind::kText;
      row.prompt = system.value_or("");
      row.scored_text = std::move(prompt).value();
      if (row.scored_text.empty()) {
        return refuse("invalid_row", BadInput("the template gives no text to score"));
      }
      break;
    case Use::kRanked:
      TakeQuery(*columns, &row);
      [[fallthrough]];
    case Use::kEmbedded:
    case Use::kClassified:
      row.format = use_ == Use::kRanked     ? RowFormat::kRankedText
                   : use_ == Use::kEmbedded ? RowFormat::kEmbed
                                            : RowFormat::kClassify;
      row.texts.push_back({std::move(prompt).value(), {}});
      row.is_one_text = true;
      break;
  }
  return parsed;
}

}  // namespace minisgl::batch
