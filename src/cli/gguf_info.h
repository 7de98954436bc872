// The description of a GGUF file by minisgl info.
#pragma once

#include <string>

#include "minisgl/gguf/gguf_file.h"

namespace minisgl::cli {

// Appends a line of a model's description: a name and its value.
void InfoLine(const std::string& name, const std::string& value, std::string* out);

// Appends a description of a file: the model, and the element types of its tensors with their
// shares.
void DescribeGguf(const GgufFile& file, std::string* out);

// Appends all metadata of a file.
void DescribeGgufMetadata(const GgufFile& file, std::string* out);

}  // namespace minisgl::cli
