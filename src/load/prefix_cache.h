// Prefixes that outlive the process: the options of the prefix cache on disk and of the tier in
// memory, the store that they name, and what is left to save at the end of a command.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "load/device_choice.h"
#include "load/option_table.h"
#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/model/model_list.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/store/kv_block_store.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

// Adds --prefix-cache, --prefix-cache-size, --prefix-cache-on-error and --host-cache.
void AddPrefixCacheOptions(OptionTable* app, PrefixCacheOptions* options);

// Returns kUsage if the options contradict each other or the engine's, or if the model's keys and
// values cannot be kept. Before weights are loaded.
Status CheckPrefixCache(const EngineSetup& engine);

// Returns a hash of the target's files, and for each model beside it, whose layers are in the same
// pages, a line with its role, what decides its packing, and a hash of its files. A tower in the
// target's files needs none: text has the same keys and values with it and without. Hashes are kept
// in the folder of --pack-cache or --prefix-cache.
Result<std::string> HashOfModels(const EngineSetup& engine, const ModelList& models,
                                 const ModelFiles& files);

// Returns the text that is equal for engines that compute the same bits of keys and values, in the
// same layout. `device`: the name of the engine's device. `weights_hash`: of HashOfModels.
std::string KvIdentity(const EngineSetup& engine, const ModelConfig& config,
                       const std::string& config_text, const std::string& weights_hash,
                       const std::string& device);

// Opens what the options name; null if they name nothing. `is_cuda`: the engine's device.
// Errors are those of OpenKvBlockFolder. REQUIRES CheckPrefixCache.
Result<std::shared_ptr<KvBlockStore>> OpenPrefixStore(const EngineSetup& engine, bool is_cuda,
                                                      const ModelList& models,
                                                      const ModelFiles& files,
                                                      const std::string& model_dir,
                                                      const std::string& device);

// As OpenPrefixStore, of the folder alone, for a model without a directory: what it keeps is found
// by no other process.
Result<std::shared_ptr<KvBlockStore>> OpenPrivatePrefixStore(const EngineSetup& engine);

// The folder of such a store, which is empty, or is made, and is emptied by the destructor.
class PrivatePrefixFolder {
 public:
  explicit PrivatePrefixFolder(std::string folder) : folder_(std::move(folder)) {}
  PrivatePrefixFolder(const PrivatePrefixFolder&) = delete;
  PrivatePrefixFolder& operator=(const PrivatePrefixFolder&) = delete;
  ~PrivatePrefixFolder();
  // kUsage if the folder is not empty; it is left alone.
  Status Open();

 private:
  const std::string folder_;
  bool is_open_ = false;
};

// Waits until the prefixes of ended requests are saved; after a stop (term/signals.h) for `grace`
// at most. Says how many pages were dropped.
void FinishPrefixCache(Runtime* runtime, std::chrono::milliseconds grace);

}  // namespace minisgl::load
