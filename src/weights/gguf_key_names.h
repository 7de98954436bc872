// Names of the keys of config.json in GGUF files.
#pragma once

#include <string>

#include "minisgl/base/status.h"

namespace minisgl::weights {

// An error of the configuration that was made of the file `path`, in the words of the file: each
// key of config.json becomes the name of the metadata, or of the tensor, that stands for it.
Status InMetadataTerms(const Status& error, const std::string& path, const char* architecture);

}  // namespace minisgl::weights
