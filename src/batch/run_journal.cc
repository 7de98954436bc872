#include "batch/run_journal.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "batch/row.h"
#include "load/adapter_choice.h"
#include "load/device_choice.h"
#include "load/sampling.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/sha256.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_parts.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::batch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 2;
constexpr int64_t kVersionCountedUp = 1;  // first rule of seeds
constexpr uint64_t kJournalBytesMax = uint64_t{1} << 20;
constexpr size_t kReadBytes = size_t{1} << 20;

// Tokenizers and templates are smaller than this, weight files larger.
constexpr uint64_t kWholeFileBytesMax = uint64_t{32} << 20;
// Hash the beginning of a weight file, which holds names and shapes, and samples, which differ
// between any two trained models.
constexpr size_t kHeadBytes = size_t{1} << 20;
constexpr size_t kSampleBytes = 4096;
constexpr size_t kSamples = 64;

// Longer lists of an option are hashed, so that a journal can be read again.
constexpr size_t kListedBytesMax = size_t{64} << 10;

// The key, beside those of options, of the command that wrote the output. Null: run.
constexpr const char* kCommand = "command";

// The command of a run for `purpose`; null: `run`, as journals of versions without others have it.
Json CommandOf(RowPurpose purpose) {
  return purpose == RowPurpose::kScore      ? Json("score")
         : purpose == RowPurpose::kEmbed    ? Json("embed")
         : purpose == RowPurpose::kClassify ? Json("classify")
         : purpose == RowPurpose::kRerank   ? Json("rerank")
                                            : Json();
}

struct InputDigest {
  int64_t bytes = 0;
  std::string sha256;
  char last_byte = '\n';
};

// Digests at most `bytes_max` bytes from where the reader began.
Result<InputDigest> DigestInput(const LineReader& reader, int64_t bytes_max) {
  InputDigest digest;
  Sha256 hasher;
  std::string buffer;
  while (digest.bytes < bytes_max) {
    buffer.resize(static_cast<size_t>(
        std::min<int64_t>(bytes_max - digest.bytes, static_cast<int64_t>(kReadBytes))));
    const ssize_t got =
        pread(reader.fd(), buffer.data(), buffer.size(), reader.start_offset() + digest.bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return MakeStatus(StatusCode::kIoError, "{}: cannot be read ({})", reader.name(),
                        std::strerror(errno));
    }
    if (got == 0) break;
    hasher.Add({buffer.data(), static_cast<size_t>(got)});
    digest.bytes += got;
    digest.last_byte = buffer[static_cast<size_t>(got) - 1];
  }
  digest.sha256 = hasher.FinishHex();
  return digest;
}

void AddSamples(std::span<const std::byte> bytes, Sha256* hasher) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  hasher->Add({text, std::min(kHeadBytes, bytes.size())});
  const size_t stride = std::max(bytes.size() / kSamples, kSampleBytes);
  for (size_t at = 0; at < bytes.size(); at += stride) {
    hasher->Add({text + at, std::min(kSampleBytes, bytes.size() - at)});
  }
}

Status DigestFile(const std::string& folder, const std::string& name, Sha256* hasher) {
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return Status();
  MINISGL_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path.string()));
  const std::span<const std::byte> bytes = file.bytes();
  hasher->Add(fmt::format("{}\n{}\n", name, bytes.size()));
  if (bytes.size() <= kWholeFileBytesMax) {
    hasher->Add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } else {
    AddSamples(bytes, hasher);
  }
  return Status();
}

// Digests the files of a folder whose names have one of `endings`, sorted by name, independent of
// the folder's path.
Result<std::string> DigestFolder(const std::string& folder,
                                 std::initializer_list<std::string_view> endings) {
  Sha256 hasher;
  for (const std::string& name : NamesIn(folder)) {
    const std::string ending = fs::path(name).extension().string();
    if (std::find(endings.begin(), endings.end(), ending) == endings.end()) continue;
    MINISGL_RETURN_IF_ERROR(DigestFile(folder, name, &hasher));
  }
  return hasher.FinishHex();
}

// Describes all parts of a model. The folder of templates is a member of its own, because the first
// journals lack it.
Result<Json> DescribeModel(const std::string& dir) {
  Json model = Json(Json::Object());
  model.Set("name", ReplaceInvalidUtf8(fs::path(dir).filename().string()));
  std::error_code error;
  if (!fs::is_directory(dir, error)) {  // a file that holds everything, or its parts
    Sha256 hasher;
    for (const std::string& part : GgufPartPaths(dir)) {
      const fs::path path(part);
      MINISGL_RETURN_IF_ERROR(
          DigestFile(path.parent_path().string(), path.filename().string(), &hasher));
    }
    return model.Set("sha256", hasher.FinishHex()).Set("templates_sha256", Sha256().FinishHex());
  }
  MINISGL_ASSIGN_OR_RETURN(std::string files,
                           DigestFolder(dir, {".json", ".model", ".jinja", ".safetensors"}));
  const std::string folder = (fs::path(dir) / "additional_chat_templates").string();
  MINISGL_ASSIGN_OR_RETURN(std::string templates, DigestFolder(folder, {".jinja"}));
  return model.Set("sha256", std::move(files)).Set("templates_sha256", std::move(templates));
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
Json OrNull(const std::optional<ToolDialect>& value) {
  return value ? Json(NameOf(*value)) : Json();
}
Json OrNull(const std::optional<int32_t>& value) { return value ? Json(int64_t{*value}) : Json(); }

Json Strings(const std::vector<std::string>& strings) {
  Json array = Json(Json::Array());
  for (const std::string& text : strings) array.Append(text);
  return array;
}

std::string HashedText(const std::string& text) {
  Sha256 hasher;
  hasher.Add(text);
  return "sha256 " + hasher.FinishHex();
}

// Null for the options that are not given, as above.
void DescribeGrammar(const load::AnswerGrammar& grammar, Json* out) {
  const GrammarText none, &text = grammar.text == nullptr ? none : *grammar.text;
  const auto given = [&](GrammarKind kind) { return grammar.text && text.kind == kind; };
  const auto set = [&](const char* option, GrammarKind kind, Json value) {
    out->Set(option, given(kind) ? std::move(value) : Json());
  };
  set("--json-schema", GrammarKind::kJsonSchema, HashedText(text.text));
  set("--regex", GrammarKind::kRegularExpression, text.text);
  const Json choices = Strings(text.choices);
  const std::string listed = choices.Dump();
  set("--choice", GrammarKind::kChoice,
      listed.size() > kListedBytesMax ? Json(HashedText(listed)) : choices);
  set("--grammar", GrammarKind::kGbnf, HashedText(text.text));
}

// Null for the options that are not given, as above. Commands may hold secrets.
void DescribeTools(const load::ToolOptions& tools, Json* out) {
  std::string named;
  for (const std::string& tool : tools.tools) named += tool + "\n";
  std::string file = tools.file;
  if (const Result<std::string> text = ReadFile(file, kWholeFileBytesMax); text.ok()) file = *text;
  out->Set("--tool", named.empty() ? Json() : Json(HashedText(named)));
  out->Set("--tools", tools.file.empty() ? Json() : Json(HashedText(file)));
  out->Set("--tool-turns", tools.any() ? Json(tools.turns_max) : Json());
}

void DescribeVectors(const VectorOptions& vectors, Json* out) {
  out->Set("--query", vectors.is_query ? Json(true) : Json());
  out->Set("--document", vectors.is_document ? Json(true) : Json());
  out->Set("--prompt-name",
           vectors.prompt_name.empty() ? Json() : Json(ReplaceInvalidUtf8(vectors.prompt_name)));
  out->Set("--dimensions", OrNull(vectors.dimensions));
  out->Set("--normalize", vectors.normalizes ? Json(true) : Json());
  out->Set("--encoding-format", vectors.in_base64 ? Json("base64") : Json());
}

void DescribeScoring(const ScoringOptions& scoring, Json* out) {
  out->Set("--query", scoring.query ? Json(HashedText(*scoring.query)) : Json());
  out->Set("--instruction",
           scoring.instruction.empty() ? Json() : Json(HashedText(scoring.instruction)));
  out->Set("--raw-scores", scoring.raw ? Json(true) : Json());
}

// The command, and the options that it alone has.
void DescribeCommand(const RunOptions& options, Json* out) {
  if (options.purpose == RowPurpose::kAnswer) DescribeTools(options.tools, out);
  out->Set(kCommand, CommandOf(options.purpose));
  if (options.purpose == RowPurpose::kEmbed) DescribeVectors(options.vectors, out);
  if (IsScoring(options.purpose)) DescribeScoring(options.scoring, out);
}

// Null for the options that are not given, as above. The folder of pictures by its name.
void DescribeImages(const RunOptions& options, Json* out) {
  const load::ImageOptions& images = options.image_options;
  const std::string& column = options.rows.image_column;
  const std::string root = fs::path(images.root).filename().string();
  out->Set("--image-column", column.empty() ? Json() : Json(ReplaceInvalidUtf8(column)));
  out->Set("--image-root", root.empty() ? Json() : Json(ReplaceInvalidUtf8(root)));
  out->Set("--max-image-pixels", OrNull(images.pixels_max));
  out->Set("--image-min-tokens", OrNull(images.tokens_min));
  out->Set("--image-max-tokens", OrNull(images.tokens_max));
  out->Set("--image-background",
           images.background == Background::kDrop
               ? Json()
               : Json(load::ChoiceName(load::kBackgroundChoices, images.background)));
}

// Keys are the names of the command line, which messages print.
Json DescribeOptions(const RunOptions& options) {
  const load::SamplingOptions& sampling = options.sampling;
  Json out = Json(Json::Object());
  out.Set("--temperature", OrNull(sampling.temperature));
  out.Set("--top-k", OrNull(sampling.top_k));
  out.Set("--top-p", OrNull(sampling.top_p));
  out.Set("--min-p", OrNull(sampling.min_p));
  out.Set("--repetition-penalty", OrNull(sampling.repetition_penalty));
  out.Set("--presence-penalty", OrNull(sampling.presence_penalty));
  out.Set("--frequency-penalty", OrNull(sampling.frequency_penalty));
  out.Set("--seed", sampling.seed ? Json(fmt::format("{}", *sampling.seed)) : Json());
  out.Set("--max-tokens", OrNull(sampling.max_tokens));
  out.Set("--min-tokens", OrNull(sampling.min_tokens));
  out.Set("--stop", Strings(sampling.stop));
  out.Set("--ignore-eos", sampling.ignore_eos);
  out.Set("--logprobs", OrNull(sampling.num_logprobs));
  out.Set("--sampling-defaults",
          load::ChoiceName(load::kSamplingSourceChoices, sampling.sampling_defaults));
  out.Set("--dtype", load::ChoiceName(load::kDTypeChoices, options.engine.dtype));
  out.Set("--quantize", load::ChoiceName(load::kQuantizationChoices, options.engine.quantize));
  out.Set("--max-seq-len", options.engine.max_seq_len);
  out.Set("--think", load::ChoiceName(load::kThinkingChoices, options.model.think));
  out.Set("--hide-thinking", options.hide_thinking);
  out.Set("--parse-special", options.model.parse_special);
  out.Set("--template-arg", Strings(options.model.template_args));
  std::string chat_template = options.model.chat_template;
  if (const Result<std::string> text = ReadFile(chat_template, kWholeFileBytesMax); text.ok()) {
    chat_template = HashedText(*text);
  }
  out.Set("--chat-template", std::move(chat_template));
  out.Set("--on-overflow", load::ChoiceName(load::kPromptOverflowChoices, options.on_overflow));
  out.Set("--lenient", options.lenient);
  // Null if not given: journals of versions without these options read the same way.
  out.Set("--mmproj", options.model.projector.empty()
                          ? Json()
                          : Json(ReplaceInvalidUtf8(options.model.projector)));
  out.Set("--no-parse-special", options.model.no_parse_special ? Json(true) : Json());
  out.Set("--template-content", options.model.template_content
                                    ? Json(load::ChoiceName(load::kTemplateContentChoices,
                                                            options.model.template_content))
                                    : Json());
  out.Set("--tool-dialect", OrNull(options.model.tool_dialect));
  out.Set("--think-budget", OrNull(sampling.thought_budget));
  const auto text = [&out](const char* name, const std::optional<std::string>& value) {
    out.Set(name, value ? Json(HashedText(*value)) : Json());
  };
  text("--think-budget-message", sampling.thought_message);
  out.Set("--chat", options.chat ? Json(true) : Json());
  text("--system", options.system);
  text("--prefill", options.prefill);
  text("--template", options.rows.prompt);
  const bool scores = options.purpose == RowPurpose::kScore;
  text("--system-template", scores ? std::nullopt : options.rows.system);
  text("--prompt-template", scores ? options.rows.system : std::nullopt);
  out.Set("--input-format",
          options.rows.prompt ? Json(FormatName(options.rows, *options.file)) : Json());
  DescribeImages(options, &out);
  DescribeGrammar(sampling.grammar, &out);
  out.Set("--row-metrics", options.row_metrics);
  out.Set("--timeout", OrNull(options.timeout_s));
  // By its name: a run that goes on without these rows would ask them again.
  const std::string& errors = options.errors_table.empty() ? options.errors : options.errors_table;
  out.Set("--errors",
          errors.empty() ? Json() : Json(ReplaceInvalidUtf8(fs::path(errors).filename().string())));
  const int64_t ranks = load::NumRanks(options.engine);
  out.Set("--tensor-parallel", ranks > 1 ? Json(ranks) : Json());
  DescribeCommand(options, &out);
  return out;
}

// By their content: another adapter of the same name gives other answers.
Status DescribeAdapters(const load::ModelOptions& options, const std::string& model_dir,
                        Json* out) {
  MINISGL_ASSIGN_OR_RETURN(const auto names, load::LoadAdapterNames(options, model_dir));
  MINISGL_ASSIGN_OR_RETURN(const auto merged, load::LoadMergedAdapter(options));
  Json adapters;
  if (names != nullptr) {
    for (const NamedAdapter& adapter : names->list) {
      adapters.Set(adapter.name, HashText(adapter.hash));
    }
  }
  out->Set("--adapter", std::move(adapters));
  const std::string& chosen = options.default_adapter;
  out->Set("--default-adapter", chosen.empty() ? Json() : Json(chosen));
  out->Set("--merge-adapter", merged == nullptr ? Json() : Json(HashText(merged->hash)));
  return Status();
}

const Json& Member(const Json& object, std::string_view name) {
  static const Json kNone;
  const Json* member = object.Find(name);
  return member == nullptr ? kNone : *member;
}

// True if the input of `now` is that of `before` with lines appended.
Result<bool> InputOnlyGrew(const Json& before, const Json& now, const LineReader& reader) {
  const Json &old_bytes = Member(before, "bytes"), &new_bytes = Member(now, "bytes");
  if (!old_bytes.is_int() || old_bytes.as_int() >= new_bytes.as_int()) return false;
  MINISGL_ASSIGN_OR_RETURN(const InputDigest digest, DigestInput(reader, old_bytes.as_int()));
  return digest.last_byte == '\n' && Json(digest.sha256) == Member(before, "sha256");
}

Result<std::string> WhatDiffers(const Json& before, const Json& now, const LineReader& reader) {
  if (Member(before, "shard") != Member(now, "shard")) {
    return fmt::format("--shard {} (not {})", Visible(Member(before, "shard").Dump(), 60),
                       Member(now, "shard").Dump());
  }
  const Json &old_model = Member(before, "model"), &new_model = Member(now, "model");
  if (Member(old_model, "sha256") != Member(new_model, "sha256")) {
    return fmt::format("another model ({}, not this {})",
                       Visible(Member(old_model, "name").Dump(), 100),
                       Visible(Member(new_model, "name").Dump(), 100));
  }
  const Json& old_templates = Member(old_model, "templates_sha256");
  if (!old_templates.is_null() && old_templates != Member(new_model, "templates_sha256")) {
    return std::string("other templates in the model's additional_chat_templates");
  }
  const Json &old_options = Member(before, "options"), &new_options = Member(now, "options");
  if (const Json& before_by = Member(old_options, kCommand),
      &now_by = Member(new_options, kCommand);
      before_by != now_by) {
    const auto name_of = [](const Json& command) {
      return command.is_string() ? Visible(command.as_string(), 60) : "run";
    };
    return fmt::format("minisgl {} (not minisgl {})", name_of(before_by), name_of(now_by));
  }
  for (const auto& [name, value] : new_options.as_object()) {
    const Json& old_value = Member(old_options, name);
    if (old_value == value) continue;
    // A version without the option behaved as if it were not given.
    if (old_value.is_null() && value == Json(false)) continue;
    const auto shown = [&option = name](const Json& given) {
      return given.is_null() ? fmt::format("no {}", option)
                             : fmt::format("{} {}", option, Visible(given.Dump(), 100));
    };
    return fmt::format("{} (not {})", shown(old_value), shown(value));
  }
  const Json &old_input = Member(before, "input"), &new_input = Member(now, "input");
  if (Member(old_input, "sha256") == Member(new_input, "sha256")) return std::string();
  MINISGL_ASSIGN_OR_RETURN(const bool grew, InputOnlyGrew(old_input, new_input, reader));
  if (grew && Member(now, "shard") == Json("1/1")) return std::string();
  return fmt::format("other rows ({} of {} bytes, not these {} of {})",
                     Visible(Member(old_input, "rows").Dump(), 20),
                     Visible(Member(old_input, "bytes").Dump(), 20),
                     Member(new_input, "rows").Dump(), Member(new_input, "bytes").Dump());
}

}  // namespace

std::string JournalPath(const std::string& output_path) { return output_path + ".meta"; }

Result<Json> DescribeRun(const RunOptions& options, const LineReader& reader,
                         const FileCheck& check, const Shard& shard, const std::string& model_dir) {
  // Rows added after they were counted are not part of the run.
  MINISGL_ASSIGN_OR_RETURN(const InputDigest digest, DigestInput(reader, reader.num_bytes()));
  MINISGL_ASSIGN_OR_RETURN(Json model, DescribeModel(model_dir));
  Json input = Json(Json::Object());
  input.Set("rows", check.rows).Set("bytes", digest.bytes).Set("sha256", digest.sha256);
  Json run = Json(Json::Object());
  run.Set("minisgl_run", kVersion).Set("input", std::move(input));
  run.Set("shard", fmt::format("{}/{}", shard.number, shard.count)).Set("model", std::move(model));
  Json options_json = DescribeOptions(options);
  MINISGL_RETURN_IF_ERROR(DescribeAdapters(options.model, model_dir, &options_json));
  run.Set("options", std::move(options_json));
  return run;
}

Result<Json> ReadJournal(const std::string& output_path) {
  const std::string path = JournalPath(output_path);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return MakeStatus(StatusCode::kNoInput, "{}: does not exist", Visible(path, 400));
  }
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kJournalBytesMax));
  Result<Json> run = ParseJson(text);
  if (!run.ok()) return run.status().WithPrefix(Visible(path, 400));
  const Json& version = Member(*run, "minisgl_run");
  if (version.is_int() && version.as_int() > kVersion) {
    return BadInput("{}: was written by a later version of the program", Visible(path, 400));
  }
  if (!version.is_int() || version.as_int() < 1 || !Member(*run, "input").is_object() ||
      !Member(*run, "model").is_object() || !Member(*run, "options").is_object()) {
    return BadInput("{}: does not describe a run", Visible(path, 400));
  }
  return run;
}

Status WriteJournal(const std::string& output_path, const Json& run) {
  // Its permissions are no wider than the output's: it reveals what was asked and how.
  struct stat output {};
  const mode_t mode = stat(output_path.c_str(), &output) == 0 ? output.st_mode & 0666 : 0600;
  return ReplaceFile(JournalPath(output_path), run.Dump(1) + "\n", mode, /*follows_links=*/false);
}

uint64_t DrawSeedOfRun(const std::string& output_path, bool resume) {
  const Result<Json> run = resume ? ReadJournal(output_path) : Result<Json>(Json());
  const Json before = run.ok() ? Member(Member(*run, "options"), "--seed") : Json();
  if (before.is_string()) {
    if (const auto seed = ParseNumber<uint64_t>(before.as_string())) return *seed;
  }
  return load::DrawSeed();
}

Result<std::string> DifferenceOfRuns(const Json& before, const Json& now, const LineReader& reader,
                                     const FileCheck& check) {
  MINISGL_ASSIGN_OR_RETURN(std::string what, WhatDiffers(before, now, reader));
  if (!what.empty()) return what + "; give the same, or --force to resume anyway";
  if (Member(before, "minisgl_run") != Json(kVersionCountedUp) || check.reseeded_rows == 0) {
    return what;
  }
  return fmt::format(
      "an earlier version, which made the seeds of further answers (n) and of a seed of -1 "
      "differently; {} row{} affected, the first on line {}: start again with another output, or "
      "give --force to have answers of both kinds",
      check.reseeded_rows, check.reseeded_rows == 1 ? " is" : "s are", check.first_reseeded_line);
}

}  // namespace minisgl::batch
