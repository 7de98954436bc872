// What minisgl info says of a GGUF file.
#pragma once

#include <string>

#include "minisgl/base/status.h"

namespace minisgl::cli {

// Appends a line of the description of a model: a name and what it has.
void InfoLine(const std::string& name, const std::string& value, std::string* out);

// Appends a description of the file at `path` to `out`: what the model is, the element types of its
// tensors with their shares, and all metadata. Reads only the header.
Status DescribeGguf(const std::string& path, std::string* out);

}  // namespace minisgl::cli
