// The adapters of a model: those that --adapter names, and one that is folded into the weights
// (--merge-adapter).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/model/model_list.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/adapter_names.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

// Check of --adapter: NAME=DIR, or DIR.
std::string CheckAdapterOption(const std::string& text);

// Reads the adapters. Null: none are given. kUsage, with the option; errors of LoadAdapter. `dir`:
// of the model.
Result<std::shared_ptr<const AdapterNames>> LoadAdapterNames(const ModelOptions& options,
                                                             const std::string& dir);

// What the adapter changes: kinds of modules and their ranks, on one line.
std::string ChangesText(const Adapter& adapter);
// Errors of CheckAdapterFits (minisgl/model/adapters.h).
Status CheckFits(const ModelConfig& config, const Adapter& adapter);

// Names of the modules that the adapter lacks (LackedModules), a few and their number; "": none.
std::string LackedText(const ModelConfig& config, const Adapter& adapter);

// Has the prompt go through the adapter. Its tokens share keys and values with those of prompts
// that have an equal one alone.
void SetAdapter(const NamedAdapter& adapter, Prompt* prompt);

// Reads the adapter of --merge-adapter. Null: none is given. kUsage, errors of LoadAdapter.
Result<std::shared_ptr<const Adapter>> LoadMergedAdapter(const ModelOptions& options);
// The configuration of the model with that adapter. Errors of CheckAdapterFits.
Status SetMergedConfig(const TextModel& text, ModelConfig* config);

// Adds the adapters to the list, each content once. Errors of CheckAdapterFits; kUsage if there are
// more than may be in memory at once, and one has a module that can only be loaded at the start.
Status AddAdapters(const TextModel& text, int32_t max_loaded, ModelList* models);

}  // namespace minisgl::load
