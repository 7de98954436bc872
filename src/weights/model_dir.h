// The files of a model directory, and the errors of a directory that cannot be used.
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::weights {

// OK if `path` is a directory; else an error that says what it is. GGUF files are recognised by
// name.
Status CheckModelDir(const std::string& path);

// The names in `model_dir` that end with `suffix`, sorted. Empty if it cannot be read.
std::vector<std::string> FilesEndingWith(const std::string& model_dir, const std::string& suffix);

// The error of a model directory without the file `missing`: kBadInput, with names, if it has
// weights of another format instead or an incomplete download; else kNoInput.
Status MissingFile(const std::string& model_dir, const std::string& missing);

// The file of a running or interrupted download to `model_dir` (a snapshot in the hub cache or any
// other folder), or "" if there is none.
std::string IncompleteDownload(const std::string& model_dir);

// True if `name` is in `model_dir`. A dangling symbolic link counts: opening it gives the error.
bool IsListed(const std::string& model_dir, const std::string& name);

std::string JoinPath(const std::string& model_dir, const std::string& name);

}  // namespace minisgl::weights
