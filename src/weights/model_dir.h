// What stands in a model directory, for the errors of a directory that cannot be used.
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::weights {

// OK where `path` is a directory; else an error that says what it is. A GGUF file is refused by
// name.
Status CheckModelDir(const std::string& path);

// The names in `model_dir` that end with `suffix`, sorted. Empty where the directory cannot be
// read.
std::vector<std::string> FilesEndingWith(const std::string& model_dir, const std::string& suffix);

// The error of a model directory in which `missing` was looked for in vain: kBadInput where weights
// of another format are there in its place, and names them, or where a download was interrupted;
// else kNoInput.
Status MissingFile(const std::string& model_dir, const std::string& missing);

// The file of a download that goes on, or was interrupted, into `model_dir`, a snapshot of the hub
// cache or a folder of its own; "" where there is none.
std::string IncompleteDownload(const std::string& model_dir);

// True where `name` is in `model_dir`, a symbolic link that leads nowhere included (opening it says
// so).
bool IsListed(const std::string& model_dir, const std::string& name);

std::string JoinPath(const std::string& model_dir, const std::string& name);

}  // namespace minisgl::weights
