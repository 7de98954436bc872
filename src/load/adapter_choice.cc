// See adapter_choice.h.
#include "load/adapter_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "minisgl/base/folder.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/model/adapters.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/find_model_dir.h"

namespace minisgl::load {
namespace {

namespace fs = std::filesystem;

constexpr size_t kAdaptersMax = 10000;

struct Place {
  std::string name, dir;
};

// The last part of a path or of OWNER/NAME.
std::string LastPart(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// The name of an adapter that is given none: its folder's, or its file's without the ending.
std::string NameOf(const std::string& path) {
  const std::string name = LastPart(path);
  return IsGgufFile(path) ? name.substr(0, name.rfind('.')) : name;
}

// An equals sign after a slash is part of a path.
size_t NameEnd(const std::string& text) {
  const size_t equals = text.find('=');
  return equals > text.find('/') ? std::string::npos : equals;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The path itself, or the snapshot of OWNER/NAME[@REVISION] in the hub cache.
Result<std::string> FindAdapter(const std::string& text) {
  return Exists(text) || !IsHubModel(text) ? text : FindHubSnapshot(text);
}

// The adapters that one --adapter names: one folder, or each folder of it.
Result<std::vector<Place>> PlacesOf(const std::string& text) {
  const size_t end = NameEnd(text);
  if (end != std::string::npos) {
    MINISGL_ASSIGN_OR_RETURN(std::string dir, FindAdapter(text.substr(end + 1)));
    return std::vector<Place>{{text.substr(0, end), std::move(dir)}};
  }
  if (!Exists(text) && IsHubModel(text)) {
    MINISGL_ASSIGN_OR_RETURN(std::string dir, FindAdapter(text));
    return std::vector<Place>{{LastPart(text.substr(0, text.find('@'))), std::move(dir)}};
  }
  if (IsAdapterDir(text)) return std::vector<Place>{{NameOf(text), text}};
  std::vector<Place> places;
  for (const std::string& name : NamesIn(text)) {
    std::string dir = (fs::path(text) / name).string();
    if (IsAdapterDir(dir)) places.push_back({NameOf(dir), std::move(dir)});
  }
  if (!places.empty()) return places;
  return MakeStatus(StatusCode::kNoInput,
                    "--adapter {}: there is no adapter_config.json, neither there nor in a folder "
                    "of it, and no GGUF file",
                    Visible(text, 400));
}

Status CheckName(const std::string& name) {
  const bool is_visible = !name.empty() && Visible(name, 200) == name;
  if (is_visible && name != kNoAdapterName) return Status();
  return UsageError("--adapter: an adapter cannot be called \"{}\"", Visible(name, 200));
}

Status AddNamed(Place place, AdapterNames* names) {
  MINISGL_RETURN_IF_ERROR(CheckName(place.name));
  if (const NamedAdapter* const other = names->Find(place.name)) {
    return UsageError("--adapter: two adapters are called {} ({} and {})", place.name,
                      Visible(other->dir, 400), Visible(place.dir, 400));
  }
  if (names->list.size() >= kAdaptersMax) {
    return UsageError("--adapter: more than {} adapters", kAdaptersMax);
  }
  MINISGL_ASSIGN_OR_RETURN(auto files, LoadAdapter(place.dir));
  const ContentHash hash = files->hash;
  names->list.push_back(
      {std::move(place.name), std::move(place.dir), hash, kNoAdapter, std::move(files)});
  return Status();
}

// Equal adapters share a slot.
void NumberSlots(AdapterNames* names) {
  AdapterSlot count = 0;
  for (size_t i = 0; i < names->list.size(); ++i) {
    NamedAdapter& adapter = names->list[i];
    const auto begin = names->list.begin(), own = begin + static_cast<int64_t>(i);
    const auto same = std::find_if(
        begin, own, [&](const NamedAdapter& other) { return other.hash == adapter.hash; });
    adapter.slot = same == own ? count++ : same->slot;
  }
}

// Packing such a matrix takes the threads that steps use.
bool HasWholeProduct(const Adapter& adapter) {
  return std::any_of(adapter.changes.begin(), adapter.changes.end(),
                     [](const AdapterChange& change) { return change.weight.data != nullptr; });
}

}  // namespace

std::string CheckAdapterOption(const std::string& text) {
  const size_t end = NameEnd(text);
  const bool is_half = end != std::string::npos && (end == 0 || end + 1 == text.size());
  if (!text.empty() && !is_half) return "";
  return fmt::format("must be NAME=DIR, a folder, a GGUF file or OWNER/NAME (found {})",
                     Visible(text));
}

Result<std::shared_ptr<const AdapterNames>> LoadAdapterNames(const ModelOptions& options,
                                                             const std::string& dir) {
  const std::string& chosen = options.default_adapter;
  if (options.adapters.empty()) {
    if (!chosen.empty()) {
      return UsageError("--default-adapter {}: there are no adapters; give --adapter NAME=DIR",
                        Visible(chosen));
    }
    return std::shared_ptr<const AdapterNames>();
  }
  auto names = std::make_shared<AdapterNames>();
  for (const std::string& text : options.adapters) {
    MINISGL_ASSIGN_OR_RETURN(std::vector<Place> places, PlacesOf(text));
    for (Place& place : places) MINISGL_RETURN_IF_ERROR(AddNamed(std::move(place), names.get()));
  }
  std::sort(names->list.begin(), names->list.end(),
            [](const NamedAdapter& a, const NamedAdapter& b) { return a.name < b.name; });
  NumberSlots(names.get());
  if (!chosen.empty() && names->Find(chosen) == nullptr) {
    return UsageError("--default-adapter {}: there is no such adapter; there are {}",
                      Visible(chosen), names->Text());
  }
  names->default_name = chosen;
  for (const std::string& name : {options.model, dir}) {
    names->base_names.push_back(name);
    names->base_names.push_back(LastPart(name));
  }
  for (const NamedAdapter& adapter : names->list) {
    if (adapter.files->base.empty()) continue;
    names->base_names.push_back(adapter.files->base);
    names->base_names.push_back(LastPart(adapter.files->base));
  }
  return std::shared_ptr<const AdapterNames>(std::move(names));
}

std::string ChangesText(const Adapter& adapter) {
  std::string text;
  for (const AdaptedKind& kind : AdaptedKinds(adapter)) {
    if (!text.empty()) text += ", ";
    text += Visible(kind.name, 200);
    if (kind.num_modules > 1) text += fmt::format(" x{}", kind.num_modules);
    std::vector<std::string> parts;
    if (kind.rank_max > 0) {
      parts.push_back(kind.rank_min == kind.rank_max
                          ? fmt::format("rank {}", kind.rank_max)
                          : fmt::format("ranks {} to {}", kind.rank_min, kind.rank_max));
    }
    if (kind.has_magnitude) parts.emplace_back("DoRA");
    if (kind.has_bias) parts.emplace_back("bias");
    if (kind.is_whole) parts.emplace_back("whole");
    if (kind.has_tokens) parts.emplace_back("single tokens");
    std::string of;
    for (const std::string& part : parts) of += (of.empty() ? "" : ", ") + part;
    if (!of.empty()) text += " (" + of + ")";
  }
  return text;
}

Status CheckFits(const ModelConfig& config, const Adapter& adapter) {
  return CheckAdapterFits(config, adapter);
}

std::string LackedText(const ModelConfig& config, const Adapter& adapter) {
  constexpr size_t kNamedMax = 4;
  const std::vector<std::string> lacked = LackedModules(config, adapter);
  std::string text;
  for (size_t i = 0; i < std::min(lacked.size(), kNamedMax); ++i) {
    text += (i == 0 ? "" : ", ") + Visible(lacked[i], 200);
  }
  if (lacked.size() > kNamedMax) text += fmt::format(" and {} more", lacked.size() - kNamedMax);
  return text;
}

void SetAdapter(const NamedAdapter& adapter, Prompt* prompt) {
  auto extras = prompt->extras == nullptr ? std::make_shared<RowExtras>()
                                          : std::make_shared<RowExtras>(*prompt->extras);
  extras->adapter = adapter.slot;
  prompt->extras = std::move(extras);
  prompt->marks.insert(prompt->marks.begin(), {.place = 0, .hash = adapter.hash});
}

Result<std::shared_ptr<const Adapter>> LoadMergedAdapter(const ModelOptions& options) {
  if (options.merge_adapter.empty()) return std::shared_ptr<const Adapter>();
  if (!options.adapters.empty()) {
    return UsageError(
        "--merge-adapter and --adapter exclude each other: adapters are of the model without one");
  }
  MINISGL_ASSIGN_OR_RETURN(const std::string dir, FindAdapter(options.merge_adapter));
  return LoadAdapter(dir);
}

Status SetMergedConfig(const TextModel& text, ModelConfig* config) {
  if (text.merged_adapter == nullptr) return Status();
  MINISGL_ASSIGN_OR_RETURN(*config, MergedConfig(*config, *text.merged_adapter));
  return Status();
}

namespace {

void WarnOfLacked(const ModelConfig& config, const std::string& name, const Adapter& adapter) {
  const std::string lacked = LackedText(config, adapter);
  if (lacked.empty()) return;
  Log(LogLevel::kWarning,
      fmt::format("{}: {} has no tensors of modules that its configuration names, where it answers "
                  "as the model alone: {}",
                  Visible(name, 200), Visible(adapter.dir, 400), lacked));
}

}  // namespace

Status AddAdapters(const TextModel& text, int32_t max_loaded, ModelList* models) {
  models->SetMerged(text.merged_adapter);
  if (text.merged_adapter != nullptr) {
    WarnOfLacked(models->target(), "the adapter that is folded in", *text.merged_adapter);
  }
  const AdapterNames* const names = text.adapters.get();
  if (names == nullptr) return Status();
  std::vector<std::shared_ptr<const Adapter>> adapters;
  for (const NamedAdapter& adapter : names->list) {
    MINISGL_RETURN_IF_ERROR(CheckAdapterFits(models->target(), *adapter.files));
    WarnOfLacked(models->target(), adapter.name, *adapter.files);
    const auto slot = static_cast<size_t>(adapter.slot);
    if (slot >= adapters.size()) adapters.resize(slot + 1);
    adapters[slot] = adapter.files;
  }
  models->SetAdapters(std::move(adapters), max_loaded);
  if (models->loads_all_adapters()) return Status();
  for (const NamedAdapter& adapter : names->list) {
    if (!HasWholeProduct(*adapter.files)) continue;
    return UsageError(
        "--max-adapters {}: {} has whole matrices in place of the model's (modules_to_save), which "
        "are loaded at the start alone; give at least {}",
        max_loaded, adapter.name, models->adapters().size());
  }
  return Status();
}

}  // namespace minisgl::load
