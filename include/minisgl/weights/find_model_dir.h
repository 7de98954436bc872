// Finds the directory of a model: a path, or owner/name[@revision] in the hub cache. A GGUF file is
// a model of its own, and stands for such a directory wherever one is read.
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

// The directory that `model` names: a directory, or FindHubSnapshot of owner/name. Or a GGUF file,
// the first part if it has several: `model` itself, or the only one in such a directory without
// config.json. kNoInput if it does not exist; kBadInput for a directory with several such models,
// and for the folder of snapshots itself.
Result<std::string> FindModelDir(const std::string& model);
// True for OWNER/NAME or OWNER/NAME@REVISION in the characters that a hub allows, "." and ".."
// excepted.
bool IsHubModel(const std::string& model);
// The directory of a snapshot of `model` in the hub cache. Of OWNER/NAME: the snapshot that
// refs/main names, or the only one. Of OWNER/NAME@REVISION: the snapshot of that branch, tag or
// commit; a commit may be cut to its first digits. Errors as above; kBadInput for digits that
// several commits begin with.
Result<std::string> FindHubSnapshot(const std::string& model);

// The error of a directory without config.json and tokenizer files: see MissingFile() in
// src/weights/model_dir.h. OK if it has any of them, and for a GGUF file.
Status CheckHasModelFiles(const std::string& model_dir);

}  // namespace minisgl
