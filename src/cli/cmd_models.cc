// minisgl models: lists the models and adapters in the hub cache, and whether each runs. Reads only
// headers of models.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/stored_format.h"
#include "hub/hub_cache.h"
#include "load/option_table.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/find_model_dir.h"
#include "minisgl/weights/model_config.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/progress.h"
#include "term/wrapped_text.h"
#include "weights/architectures.h"
#include "weights/stored_names.h"

namespace minisgl::cli {
namespace {

constexpr size_t kModelNameBytesMax = 80;
constexpr size_t kReasonBytesMax = 1000;
constexpr uint64_t kConfigBytesMax = uint64_t{1} << 20;
constexpr size_t kCommitDigits = 12;

// A snapshot as it is listed.
struct Entry {
  hub::CachedSnapshot snapshot;
  std::string name;          // "OWNER/NAME", with "@REF" or "@COMMIT" unless that alone means it
  std::string architecture;  // "" if unknown, as the next one
  std::string format;
  std::shared_ptr<const Adapter> adapter;  // null: it is a model
  Status runs;                             // why it does not
};

// The first of the architectures that config.json names, of a model that is not known.
std::string NamedArchitecture(const std::string& model_dir) {
  const Result<std::string> text = ReadFile(model_dir + "/config.json", kConfigBytesMax);
  const Result<Json> json =
      text.ok() ? ParseJson(*text, {.values_max = 100'000}) : Result<Json>(text.status());
  const Json* const names = json.ok() ? json->Find("architectures") : nullptr;
  if (names == nullptr || !names->is_array() || names->as_array().empty()) return "";
  const Json& name = names->as_array()[0];
  return name.is_string() ? name.as_string() : "";
}

Status CheckHasTokenizer(const std::string& model_dir) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json"}) {
    if (IsListed(model_dir + "/" + name)) return CheckLink(model_dir + "/" + name);
  }
  return MakeStatus(StatusCode::kNoInput, "{}: has no tokenizer.json", Visible(model_dir, 400));
}

// The same as Judge() of a snapshot with a GGUF file.
Status JudgeGguf(const std::string& path, Entry* entry) {
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(path));
  entry->architecture = config.architecture;
  MINISGL_RETURN_IF_ERROR(Checkpoint::Open(path).status());
  return Tokenizer::Load(path).status();
}

// Sets the facts in the files, and the reason why the model does not run. Reads config.json and the
// headers of the weights; whether they fit into the memory depends on the options of a run.
Status Judge(Entry* entry) {
  const std::string& dir = entry->snapshot.folder;
  if (entry->snapshot.commit.empty()) {
    return MakeStatus(StatusCode::kNoInput, "no snapshot: minisgl pull {} downloads it",
                      Visible(entry->snapshot.model, 400));
  }
  if (IsAdapterDir(dir) && !IsListed(dir + "/config.json")) {
    entry->architecture = "adapter";
    entry->format = "lora";
    MINISGL_ASSIGN_OR_RETURN(entry->adapter, LoadAdapter(dir));
    return Status();
  }
  for (const std::string& name : NamesIn(dir)) {
    if (IsGgufFile(dir + "/" + name)) entry->format = "gguf";
  }
  MINISGL_ASSIGN_OR_RETURN(const std::string found, FindModelDir(dir));
  if (IsGgufFile(found)) return JudgeGguf(found, entry);
  entry->architecture = NamedArchitecture(dir);
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(found));
  entry->architecture = config.architecture;
  entry->format = StoredFormat(config);
  MINISGL_RETURN_IF_ERROR(LoadGenerationConfig(found, config.vocab_size).status());
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(found));
  MINISGL_ASSIGN_OR_RETURN(const auto required, weights::RequiredTensors(config));
  for (const weights::RequiredTensor& tensor : required) {
    // A quantized matrix is stored as several tensors of other names.
    if (!config.quantization.empty()) break;
    const std::string name = weights::StoredName(config, *checkpoint, tensor.name);
    MINISGL_RETURN_IF_ERROR(checkpoint->Get(name).status());
  }
  MINISGL_RETURN_IF_ERROR(weights::CheckNothingAbsent(config, *checkpoint));
  return CheckHasTokenizer(found);
}

// The message of `status` without the path of the snapshot, which the list has already.
std::string Reason(const Entry& entry) {
  std::string text = entry.runs.message();
  for (const std::string& prefix : {entry.snapshot.folder + "/", entry.snapshot.folder + ": "}) {
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
      text.erase(at, prefix.size());
    }
  }
  return Visible(text, kReasonBytesMax);
}

std::string NameOf(const hub::CachedSnapshot& snapshot) {
  if (snapshot.is_default || snapshot.commit.empty()) return snapshot.model;
  return fmt::format(
      "{}@{}", snapshot.model,
      snapshot.refs.empty() ? snapshot.commit.substr(0, kCommitDigits) : snapshot.refs[0]);
}

// Returns the error of a model that lacks files because its download is not complete. Adds the
// downloaded bytes to the model's size.
Status IncompleteOf(Entry* entry) {
  hub::CachedSnapshot& snapshot = entry->snapshot;
  if (!snapshot.commit.empty()) {
    snapshot.num_bytes = CheckedAdd(snapshot.num_bytes, snapshot.part_bytes).value_or(UINT64_MAX);
  }
  return MakeStatus(StatusCode::kNoInput, "its download is incomplete; minisgl pull {} goes on",
                    entry->name);
}

std::vector<Entry> ListEntries() {
  std::vector<Entry> entries;
  for (hub::CachedSnapshot& snapshot : hub::ListSnapshots()) {
    Entry entry;
    entry.name = Visible(NameOf(snapshot), kModelNameBytesMax);
    entry.snapshot = std::move(snapshot);
    entry.runs = Judge(&entry);
    const bool lacks_files = entry.runs.code() == StatusCode::kNoInput;
    if (lacks_files && entry.snapshot.is_downloading) entry.runs = IncompleteOf(&entry);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// The least and the largest rank of an adapter's modules.
std::pair<int64_t, int64_t> RanksOf(const Adapter& adapter) {
  std::pair<int64_t, int64_t> ranks = {0, 0};
  for (const AdapterChange& change : adapter.changes) {
    const int64_t rank = change.rank_of_expert > 0 ? change.rank_of_expert : change.rank;
    if (rank == 0) continue;
    ranks.first = ranks.first == 0 ? rank : std::min(ranks.first, rank);
    ranks.second = std::max(ranks.second, rank);
  }
  return ranks;
}

Json AdapterJson(const Adapter& adapter) {
  const auto [least, largest] = RanksOf(adapter);
  Json json = Json(Json::Object());
  json.Set("base", ReplaceInvalidUtf8(adapter.base));
  json.Set("rank_min", least).Set("rank_max", largest);
  return json;
}

// Whether an entry runs, as the last column says it.
std::string RunsText(const Entry& entry) {
  if (!entry.runs.ok()) return "no: " + Reason(entry);
  if (entry.adapter == nullptr) return "yes";
  const auto [least, largest] = RanksOf(*entry.adapter);
  std::string text = "as an adapter";
  if (!entry.adapter->base.empty()) text += " of " + Visible(entry.adapter->base, 200);
  if (largest == 0) return text;
  return text + (least == largest ? fmt::format(", rank {}", largest)
                                  : fmt::format(", ranks {} to {}", least, largest));
}

Json EntryJson(const Entry& entry) {
  const hub::CachedSnapshot& snapshot = entry.snapshot;
  Json refs = Json(Json::Array());
  for (const std::string& ref : snapshot.refs) refs.Append(ReplaceInvalidUtf8(ref));
  Json json = Json(Json::Object());
  json.Set("model", ReplaceInvalidUtf8(snapshot.model));
  json.Set("commit", ReplaceInvalidUtf8(snapshot.commit)).Set("refs", std::move(refs));
  json.Set("folder", ReplaceInvalidUtf8(snapshot.folder)).Set("bytes", snapshot.num_bytes);
  json.Set("architecture", ReplaceInvalidUtf8(entry.architecture)).Set("format", entry.format);
  json.Set("runs", entry.runs.ok());
  if (entry.adapter != nullptr) json.Set("adapter", AdapterJson(*entry.adapter));
  if (!entry.runs.ok()) json.Set("reason", Reason(entry));
  return json;
}

// One line for each model, in columns.
std::string EntryLines(const std::vector<Entry>& entries) {
  const std::string kNone = "-";
  size_t name_width = std::string_view("model").size();
  size_t architecture_width = std::string_view("architecture").size();
  size_t format_width = std::string_view("format").size();
  for (const Entry& entry : entries) {
    name_width = std::max(name_width, entry.name.size());
    architecture_width = std::max(architecture_width, Visible(entry.architecture).size());
    format_width = std::max(format_width, entry.format.size());
  }
  std::string text =
      fmt::format("{:<{}}  {:>10}  {:<{}}  {:<{}}  runs\n", "model", name_width, "size",
                  "architecture", architecture_width, "format", format_width);
  for (const Entry& entry : entries) {
    text += fmt::format("{:<{}}  {:>10}  {:<{}}  {:<{}}  {}\n", entry.name, name_width,
                        term::FormatBytes(entry.snapshot.num_bytes),
                        entry.architecture.empty() ? kNone : Visible(entry.architecture),
                        architecture_width, entry.format.empty() ? kNone : entry.format,
                        format_width, RunsText(entry));
  }
  return text;
}

int ListModels(bool as_json) {
  term::InstallNotes({});
  const std::vector<Entry> entries = ListEntries();
  std::string text;
  if (as_json) {
    Json list = Json(Json::Array());
    for (const Entry& entry : entries) list.Append(EntryJson(entry));
    Json json = Json(Json::Object());
    json.Set("folder", ReplaceInvalidUtf8(HubCacheDir())).Set("models", std::move(list));
    text = json.Dump() + "\n";
  } else if (entries.empty()) {
    text = fmt::format("no models in {}; minisgl pull OWNER/NAME downloads one\n",
                       Visible(HubCacheDir(), 400));
  } else {
    text = EntryLines(entries);
  }
  const auto output = term::Output::Open("", false, -1);
  if (!output.ok()) return term::Fail(output.status());
  return (*output)->ExitAfter((*output)->Write(as_json ? text : term::TableFor(**output, text)));
}

}  // namespace

CommandBody AddModelsCommand(load::OptionTable* app) {
  const auto as_json = std::make_shared<bool>(false);
  app->AddFlag("--json", as_json.get(), "Print one JSON object");
  return [as_json] { return ListModels(*as_json); };
}

}  // namespace minisgl::cli
