// Finds the directory of a model: a path, or owner/name in the hub cache.
//
// Looks at names only and reads no file of a model. Thread-safe, except for changes of the
// environment.
#pragma once

#include <string>

#include "minisgl/base/status.h"

namespace minisgl {

// The hub cache: $HF_HUB_CACHE, $HF_HOME/hub, or huggingface/hub in the user's cache. It need not
// exist.
std::string HubCacheDir();

// The directory that `model` names: a directory, or the snapshot of owner/name in the hub cache:
// the one that refs/main names, or the only one. kNoInput if it does not exist; kBadInput for a
// GGUF file, for a directory that holds one in place of config.json, and for the folder of
// snapshots itself.
Result<std::string> FindModelDir(const std::string& model);

// True if the name of the file ends as those of GGUF files do, in any case of letters.
bool HasGgufName(const std::string& path);

// The error of a directory without config.json and tokenizer files: see MissingFile() in
// src/weights/model_dir.h. OK if it has any of them.
Status CheckHasModelFiles(const std::string& model_dir);

}  // namespace minisgl
