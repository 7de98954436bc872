#include "load/prefix_cache.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/sha256.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/base/utf8.h"
#include "minisgl/store/cache_tools.h"
#include "minisgl/store/kv_block_memory.h"
#include "minisgl/weights/weights_key.h"
#include "term/signals.h"

namespace minisgl::load {
namespace {

// Counts changes of the bits of keys and values that an engine computes, or of their layout in a
// block (engine/engine.h). The version of the program is part of an identity beside it.
constexpr int kNumericsVersion = 5;

// Returns the bytes of "N", or of N with K, M, G or T (powers of 1,024; also KiB ...); 0 for other
// text.
int64_t ParseSize(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  int64_t unit = 1;
  if (text.ends_with("iB")) text.remove_suffix(2);
  if (!text.empty()) {
    const size_t at = kUnits.find(text.back());
    if (at != std::string_view::npos) {
      unit = int64_t{1} << (10 * (at + 1));
      text.remove_suffix(1);
    }
  }
  const int64_t number = ParseNumber<int64_t>(text).value_or(0);
  constexpr int64_t kBytesMax = int64_t{1} << 60;
  return number >= 1 && number <= kBytesMax / unit ? number * unit : 0;
}

std::string CheckSize(const std::string& text) {
  if (ParseSize(text) > 0) return "";
  return fmt::format("must be a number of bytes, as 500M, 20G or 1T (found {})", Visible(text));
}

TableOption* AddSize(OptionTable* app, const std::string& name, int64_t* bytes,
                     const std::string& help) {
  return app
      ->AddCall(
          name, [bytes](const std::string& text) { *bytes = ParseSize(text); }, help)
      ->Check(CheckSize)
      ->TypeName("SIZE");
}

// The name of an engine's device without its number of threads, which changes no bit.
std::string KindOf(const std::string& device) {
  const size_t end = device.find(", ");
  return end == std::string::npos ? device : device.substr(0, end) + ")";
}

// The name of a model for people: the last part of its directory, or of that of its repository in a
// hub cache, with what tells its caches apart.
std::string NameOf(const std::string& model_dir, const EngineSetup& engine,
                   const std::string& device) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(model_dir, error);
  const std::filesystem::path parent = path.parent_path();
  const std::filesystem::path name =
      parent.filename() == "snapshots" ? parent.parent_path().filename() : path.filename();
  return fmt::format("{}, {}, {}", name.string(), engine.plan.weight_format.Name(), KindOf(device));
}

// Tables of rotations that depend on the longest request.
bool DependsOnLength(const ModelConfig& config) {
  for (const RopeConfig& rope : config.ropes) {
    if (rope.scaling == RopeScaling::kDynamic || rope.scaling == RopeScaling::kLongRope)
      return true;
  }
  return false;
}

}  // namespace

void AddPrefixCacheOptions(OptionTable* app, PrefixCacheOptions* options) {
  const std::string group = "Engine";
  app->Add("--prefix-cache", &options->folder,
           "Keep the prefixes of prompts and answers in DIR, for later starts")
      ->Check(CheckNotEmpty)
      ->TypeName("DIR")
      ->Group(group);
  AddSize(app, "--prefix-cache-size", &options->max_bytes,
          "Largest size of DIR: bytes, or with K, M, G or T (default: a tenth of the free disk)")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--prefix-cache-on-error", &options->on_error, kPrefixCacheErrorChoices,
                 "If a prefix cannot be read: recompute it or fail the request (default recompute)")
      ->TypeName("WHAT")
      ->Group(group)
      ->Advanced();
  AddSize(app, "--host-cache", &options->host_bytes,
          "On CUDA, keep prefixes that leave the KV cache in SIZE bytes of the host's memory")
      ->Group(group)
      ->Advanced();
}

Status CheckPrefixCache(const EngineSetup& engine) {
  const PrefixCacheOptions& options = engine.options.prefix_cache;
  if (options.folder.empty() && options.max_bytes > 0) {
    return UsageError("--prefix-cache-size needs --prefix-cache DIR");
  }
  if (options.folder.empty() && options.host_bytes == 0) return Status();
  if (engine.options.cache == CacheKind::kNaive) {
    return UsageError("--prefix-cache and --host-cache need --cache radix");
  }
  if (engine.plan.limits.num_window_pages > 0) {
    return UsageError(
        "--prefix-cache and --host-cache: this model has layers with a sliding window, whose keys "
        "and values are not kept; leave the options out");
  }
  if (engine.plan.kv_bytes_per_token == 0) {
    return UsageError(
        "--prefix-cache and --host-cache: this model has no layers with keys and values, and "
        "states "
        "alone are not kept; leave the options out");
  }
  return Status();
}

Result<std::string> HashOfModels(const EngineSetup& engine, const ModelList& models,
                                 const ModelFiles& files) {
  const EngineOptions& options = engine.options;
  const std::string folder =
      options.pack_cache.empty() ? options.prefix_cache.folder : options.pack_cache;
  const Result<TrustedFolder> trusted = TrustedFolder::Open(folder);
  if (!trusted.ok()) {
    return trusted.status().WithPrefix(
        fmt::format("{}: {}", options.pack_cache.empty() ? "--prefix-cache" : "--pack-cache",
                    Visible(folder, 400)));
  }
  std::string hash = HashWeights(files[0], *trusted, NumThreads(options));
  for (size_t i = 1; i < models.size(); ++i) {
    if (models[i].role() == ModelRole::kTower && models[i].dir().empty()) continue;
    hash += fmt::format("\n{} {} {}", ModelRoleName(models[i].role()),
                        models[i].PackKey(engine.plan.models[i].weight_format),
                        HashWeights(files[i], *trusted, NumThreads(options)));
  }
  return hash;
}

std::string KvIdentity(const EngineSetup& engine, const ModelConfig& config,
                       const std::string& config_text, const std::string& weights_hash,
                       const std::string& device) {
  Sha256 config_hash;
  config_hash.Add(config_text);
  return fmt::format(
      "minisgl {} kv {}\nweights {}\nconfig {}\nformat {}, {}\nbytes {}\ndevice {}{}{}{}{}\n",
      MINISGL_VERSION, kNumericsVersion, weights_hash, config_hash.FinishHex(),
      engine.plan.weight_format.Name(), DTypeName(engine.plan.weight_format.dtype),
      engine.plan.kv_bytes_per_token, KindOf(device),
      engine.options.deterministic ? " deterministic" : "",
      engine.options.all_reduce == RankSumsBy::kNccl ? " nccl" : "",
      engine.plan.kv_kind == KvKind::kFp8 ? "\nkeys and values fp8" : "",
      DependsOnLength(config) ? fmt::format("\nlength {}", engine.plan.limits.max_seq_len) : "");
}

namespace {

int64_t BlockBytes(const EngineSetup& engine) {
  return static_cast<int64_t>(engine.plan.kv_bytes_per_token) * kKvBlockTokens;
}

int64_t StateBytes(const EngineSetup& engine) {
  const int64_t num_slots = engine.plan.limits.num_state_slots;
  return num_slots == 0 ? 0 : static_cast<int64_t>(engine.plan.state_bytes) / num_slots;
}

}  // namespace

Result<std::shared_ptr<KvBlockStore>> OpenPrivatePrefixStore(const EngineSetup& engine) {
  const PrefixCacheOptions& options = engine.options.prefix_cache;
  if (options.folder.empty()) return std::shared_ptr<KvBlockStore>();
  MINISGL_RETURN_IF_ERROR(CheckPrefixCache(engine));
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  KvBlockFolderOptions folder;
  folder.folder = options.folder;
  folder.max_bytes = options.max_bytes;
  folder.identity = fmt::format("of process {} at {}", getpid(), now);
  folder.model_name = "a benchmark's";
  folder.block_bytes = BlockBytes(engine);
  folder.state_bytes = StateBytes(engine);
  MINISGL_ASSIGN_OR_RETURN(auto store, OpenKvBlockFolder(folder));
  return std::shared_ptr<KvBlockStore>(std::move(store));
}

PrivatePrefixFolder::~PrivatePrefixFolder() {
  if (is_open_) static_cast<void>(ClearPrefixCache(folder_));
}

Status PrivatePrefixFolder::Open() {
  std::error_code error;
  if (std::filesystem::exists(folder_, error) && !std::filesystem::is_empty(folder_, error)) {
    return UsageError("--prefix-cache: {} must be empty, or not exist yet", Visible(folder_, 400));
  }
  is_open_ = true;
  return Status();
}

Result<std::shared_ptr<KvBlockStore>> OpenPrefixStore(const EngineSetup& engine, bool is_cuda,
                                                      const ModelList& models,
                                                      const ModelFiles& files,
                                                      const std::string& model_dir,
                                                      const std::string& device) {
  const PrefixCacheOptions& options = engine.options.prefix_cache;
  const int64_t block_bytes = BlockBytes(engine);
  const int64_t state_bytes = StateBytes(engine);
  int64_t host_bytes = options.host_bytes;
  if (host_bytes > 0 && !is_cuda) {
    Log(LogLevel::kWarning,
        "--host-cache: on the CPU the KV cache is in the host's memory already; not used");
    host_bytes = 0;
  }
  if (host_bytes > 0 && host_bytes < block_bytes) {
    return UsageError("--host-cache: {} bytes hold no block of {} tokens, which takes {}",
                      host_bytes, kKvBlockTokens, block_bytes);
  }
  if (host_bytes > 0 && host_bytes < state_bytes) {
    return UsageError("--host-cache: {} bytes hold no state of this model, which takes {}",
                      host_bytes, state_bytes);
  }
  if (options.folder.empty() && host_bytes == 0) return std::shared_ptr<KvBlockStore>();
  std::unique_ptr<KvBlockStore> store;
  std::string identity;  // of this process alone
  if (!options.folder.empty()) {
    KvBlockFolderOptions folder;
    folder.folder = options.folder;
    folder.max_bytes = options.max_bytes;
    MINISGL_ASSIGN_OR_RETURN(std::string config_text, ModelConfigText(model_dir));
    if (models.merged() != nullptr) config_text += HashText(models.merged()->hash);
    MINISGL_ASSIGN_OR_RETURN(const std::string hash, HashOfModels(engine, models, files));
    folder.identity = identity = KvIdentity(engine, models.target(), config_text, hash, device);
    folder.model_name = NameOf(model_dir, engine, device);
    folder.block_bytes = block_bytes;
    folder.state_bytes = state_bytes;
    MINISGL_ASSIGN_OR_RETURN(store, OpenKvBlockFolder(folder));
  }
  if (host_bytes > 0) {
    auto memory = MakeKvBlockMemory({.max_bytes = host_bytes,
                                     .identity = identity,
                                     .block_bytes = block_bytes,
                                     .state_bytes = state_bytes});
    store = store == nullptr ? std::move(memory)
                             : MakeKvBlockTiers(std::move(memory), std::move(store));
  }
  return std::shared_ptr<KvBlockStore>(std::move(store));
}

void FinishPrefixCache(Runtime* runtime, std::chrono::milliseconds grace) {
  constexpr auto kPoll = std::chrono::milliseconds(5);
  while (runtime->Stats().scheduler.saves > 0 && term::StopOfProcess().reason == 0) {
    std::this_thread::sleep_for(kPoll);
  }
  const auto stop_at = std::chrono::steady_clock::now() + grace;
  while (runtime->Stats().scheduler.saves > 0 && !term::StopOfProcess().at_once &&
         std::chrono::steady_clock::now() < stop_at) {
    std::this_thread::sleep_for(kPoll);
  }
  runtime->FinishSaves(std::chrono::milliseconds(0));
  const int64_t dropped = runtime->Stats().scheduler.dropped_pages;
  if (dropped > 0) {
    Log(LogLevel::kInfo,
        fmt::format("prefix cache: {} pages were dropped before they were saved", dropped));
  }
}

}  // namespace minisgl::load
