// minisgl tokenize: shows the token ids of rows or lines of text, or the text of token ids.
//
// Reads the tokenizer and the chat template of a model directory, but no weights and no
// config.json. Rows are checked as `run` does; a bad row becomes an error row, and the others
// continue. The error of a prompt that lacks the text of a message stands beside the prompt, which
// shows what the template does.
#include <fmt/core.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/image_reader.h"
#include "batch/row.h"
#include "batch/row_conversation.h"
#include "batch/row_output.h"
#include "batch/row_source.h"
#include "batch/row_template.h"
#include "batch/run_input.h"
#include "cli/commands.h"
#include "cli/fetch_picture.h"
#include "load/image_options.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/conversation.h"
#include "minisgl/text/encode_prompt.h"
#include "minisgl/text/render_prompt.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/output.h"

namespace minisgl::cli {
namespace {

struct TokenizeOptions {
  load::ModelOptions model;
  std::optional<std::string> file;
  std::string output;
  bool decode = false;
  bool raw = false;
  bool force = false;
  bool lenient = false;
  load::ImageOptions images;
  batch::TemplateOptions rows;  // of the file's rows
};

// Makes each line of a text a user message; with --raw, or if the model has no template, a prompt.
class TextLineSource : public batch::RowSource {
 public:
  TextLineSource(batch::LineReader* reader, bool templated)
      : reader_(*reader), templated_(templated) {}

  Outcome Next(int timeout_ms, batch::ParsedRow* parsed) override {
    const batch::LineReader::Outcome outcome = reader_.Next(timeout_ms, &line_);
    if (outcome == batch::LineReader::Outcome::kNotYet) return Outcome::kNotYet;
    if (outcome == batch::LineReader::Outcome::kEnd) return Outcome::kEnd;
    if (outcome == batch::LineReader::Outcome::kFailed) return Outcome::kFailed;
    *parsed = batch::ParsedRow();
    batch::Row& row = parsed->row;
    row.index = next_index_++;
    row.line = reader_.line_number();
    if (outcome == batch::LineReader::Outcome::kTooLong) {
      parsed->error = batch::RowError{
          "invalid_row",
          fmt::format("the line has more than {} bytes; give shorter ones", batch::kRowBytesMax),
          ""};
      return Outcome::kRow;
    }
    const std::string text = ReplaceInvalidUtf8(line_);
    if (!templated_) {
      row.kind = batch::PromptKind::kText;
      row.prompt = text;
      return Outcome::kRow;
    }
    Json message;
    message.Set("role", "user").Set("content", text);
    row.kind = batch::PromptKind::kMessages;
    row.messages.Append(std::move(message));
    return Outcome::kRow;
  }
  size_t row_bytes() const override { return line_.size(); }
  Status status() const override { return reader_.status(); }

 private:
  batch::LineReader& reader_;
  const bool templated_;
  std::string line_;
  int64_t next_index_ = 0;
};

std::optional<batch::RowError> CheckIds(const batch::Row& row, const Tokenizer& tokenizer) {
  for (const TokenId id : row.prompt_token_ids) {
    if (id < tokenizer.vocab_size()) continue;
    return batch::RowError{
        "invalid_row",
        fmt::format("prompt_token_ids holds an id outside the vocabulary (found {}; the "
                    "tokenizer has {})",
                    id, tokenizer.vocab_size()),
        "prompt_token_ids"};
  }
  return std::nullopt;
}

// The pictures of a prompt, and where their tokens stand.
Json ImagesJson(const std::vector<PlacedImage>& images) {
  Json::Array list;
  for (const PlacedImage& image : images) {
    Json::Array runs;
    for (const ImageRun& run : image.runs) {
      runs.push_back(Json(Json::Array{Json(run.token), Json(int64_t{run.count})}));
    }
    Json entry;
    entry.Set("name", image.laid_out.image.name);
    entry.Set("num_tokens", int64_t{image.laid_out.layout.num_tokens});
    entry.Set("runs", Json(std::move(runs)));
    list.push_back(std::move(entry));
  }
  return Json(std::move(list));
}

// Adds the text and the ids of the row's prompt, and its pictures if it has any, to *out; also if
// the error is that the prompt lacks the text of a message.
std::optional<batch::RowError> AddPrompt(batch::Row row, const TextModel& text,
                                         const batch::ImageReader& reader, Json* out) {
  Conversation conversation;
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  if (auto error = batch::TakeImages(text, reader, row, 0, kAll, &conversation.images)) {
    return error;
  }
  if (auto error = batch::TakeConversation(text, &row, &conversation)) return error;
  conversation.shows_left_out = true;
  Result<RenderedPrompt> rendered = RenderPrompt(text, std::move(conversation));
  if (!rendered.ok()) {
    return batch::RowError{"template_error", rendered.status().message(), "messages"};
  }
  std::string prompt;
  for (const TextPiece& piece : rendered->pieces) prompt += piece.text;
  const Status left_out = rendered->left_out;
  const Result<EncodedPrompt> encoded = EncodePrompt(text, std::move(rendered).value());
  if (!encoded.ok()) return batch::RowError{"invalid_row", encoded.status().message(), ""};
  if (row.kind == batch::PromptKind::kTokenIds) {
    prompt = text.tokenizer->Decode(encoded->ids, /*keep_special=*/true);
  }
  Json::Array ids;
  for (const TokenId id : encoded->ids) ids.emplace_back(int64_t{id});
  out->Set("prompt", std::move(prompt)).Set("prompt_token_ids", Json(std::move(ids)));
  if (!encoded->images.empty()) out->Set("images", ImagesJson(encoded->images));
  if (!left_out.ok()) return batch::RowError{"template_error", left_out.message(), "messages"};
  return std::nullopt;
}

// Adds what the output line of one row shows to *out, or returns why it is an error.
std::optional<batch::RowError> AddRow(const batch::Row& row, const TextModel& text,
                                      const batch::ImageReader& reader, bool decode, Json* out) {
  if (row.kind == batch::PromptKind::kTokenIds) {
    if (auto error = CheckIds(row, *text.tokenizer)) return error;
  } else if (decode) {
    return batch::RowError{"invalid_row", "--decode needs prompt_token_ids; give an array of ids",
                           "prompt_token_ids"};
  }
  if (decode) {
    out->Set("text", text.tokenizer->Decode(row.prompt_token_ids, /*keep_special=*/true));
    return std::nullopt;
  }
  return AddPrompt(row, text, reader, out);
}

// Writes all rows of `source` to `output`; returns the exit status.
int TokenizeAll(batch::RowSource* source, const TextModel& text, const batch::ImageReader& reader,
                bool decode, term::Output* output) {
  bool some_failed = false;
  Status read, written;
  while (written.ok()) {
    batch::ParsedRow parsed;
    const batch::RowSource::Outcome outcome = source->Next(batch::kRowWait_ms, &parsed);
    if (outcome == batch::RowSource::Outcome::kNotYet) continue;
    if (outcome == batch::RowSource::Outcome::kFailed) read = source->status();
    if (outcome != batch::RowSource::Outcome::kRow) break;
    Json out;
    out.Set("id", parsed.row.id).Set("index", parsed.row.index);
    if (!parsed.error) parsed.error = AddRow(parsed.row, text, reader, decode, &out);
    if (parsed.error) out.Set("error", batch::ErrorJson(parsed.row, *parsed.error));
    some_failed = some_failed || parsed.error;
    written = output->Write(out.Dump() + '\n');
  }
  if (output->pipe_closed()) return term::kExitPipeClosed;
  // Also after a failure, so that rows already written are kept.
  const Status finished = output->Finish();
  if (!read.ok()) return term::Fail(read);
  if (!written.ok() || !finished.ok()) return term::Fail(written.ok() ? finished : written);
  return some_failed ? term::kExitSomeFailed : 0;
}

// The template of --template, which reads the table that `reader` is; null without the option.
Result<std::unique_ptr<batch::RowTemplate>> TakeTemplate(TokenizeOptions options,
                                                         batch::LineReader* reader) {
  if (!options.rows.prompt) return std::unique_ptr<batch::RowTemplate>();
  MINISGL_RETURN_IF_ERROR(batch::ReadTemplates(&options.rows));
  if (const auto separator = batch::SeparatorOf(options.rows.format, *options.file)) {
    reader->ReadTable(*separator);
    if (reader->regular()) MINISGL_RETURN_IF_ERROR(reader->ReadHeader());
  }
  MINISGL_RETURN_IF_ERROR(batch::CheckNamesColumns(options.rows, reader));
  using Use = batch::RowTemplate::Use;
  return batch::RowTemplate::Make(options.rows, std::nullopt,
                                  options.raw ? Use::kPrompt : Use::kQuestion);
}

Status CheckOptions(const TokenizeOptions& options) {
  if (!options.file && isatty(STDIN_FILENO) != 0) {
    return UsageError("no input; give --file F, or lines of text on standard input");
  }
  if (options.rows.prompt && !options.file) {
    return UsageError("--template applies to rows; give it with --file");
  }
  if (options.rows.prompt && options.decode) {
    return UsageError("--template and --decode exclude each other; a template gives text");
  }
  return batch::CheckTemplateOptions(options.rows, options.raw, /*system=*/false);
}

int Tokenize(const TokenizeOptions& options) {
  if (const Status status = CheckOptions(options); !status.ok()) return term::Fail(status);
  auto text = load::LoadTextModel(options.model);
  if (!text.ok()) return term::Fail(text.status());
  if (const Status status = load::CheckImageOptions(options.images, *text); !status.ok()) {
    return term::Fail(status);
  }
  auto reader = batch::LineReader::Open(options.file.value_or("-"));
  if (!reader.ok()) return term::Fail(reader.status());
  const auto row_template = TakeTemplate(options, &*reader);
  if (!row_template.ok()) return term::Fail(row_template.status());
  auto output = term::Output::Open(options.output, options.force, reader->fd());
  if (!output.ok()) return term::Fail(output.status());
  term::Output* out = (*output).get();
  if (const Status status = out->Begin(); !status.ok()) return term::Fail(status);
  std::unique_ptr<batch::RowSource> source;
  if (options.file || options.decode) {
    auto rows =
        std::make_unique<batch::FileRowSource>(&*reader, options.lenient, /*check_ids=*/true);
    rows->UseTemplate(row_template->get());
    source = std::move(rows);
  } else {
    const bool templated = !options.raw && text->chat_template != nullptr;
    source = std::make_unique<TextLineSource>(&*reader, templated);
  }
  const batch::ImageReader images(options.images, batch::FolderOfRows(options.file.value_or("-")));
  return TokenizeAll(source.get(), *text, images, options.decode, out);
}

}  // namespace

CommandBody AddTokenizeCommand(load::OptionTable* app) {
  const auto options = std::make_shared<TokenizeOptions>();
  const std::string group = "Input and output";
  app->Add("-f,--file", &options->file,
           "Read rows of JSON Lines from FILE, or with --template of CSV or TSV; - is standard "
           "input (default: its lines)")
      ->TypeName("FILE")
      ->Group(group);
  batch::AddTemplateOptions(app, &options->rows, group);
  app->AddFlag("--decode", &options->decode, "Print the text of the token ids that rows hold")
      ->Group(group);
  app->AddFlag("--raw", &options->raw, "Use lines as they are, without the chat template")
      ->Group(group);
  app->AddFlag("--lenient", &options->lenient, "Ignore unknown fields of a row")->Group(group);
  load::AddOutputOption(app, &options->output, "Write to")->Group(group);
  app->AddFlag("--force", &options->force, "Replace an output file that is not empty")
      ->Group(group);
  load::AddImageOptions(app, &options->images, /*reads_rows=*/true);
  options->images.fetch = FetchPicture;
  load::AddModelOptions(app, &options->model);
  return [options] {
    term::InstallNotes({options->model.quiet, options->model.verbose});
    return Tokenize(*options);
  };
}

}  // namespace minisgl::cli
