// Models whose GGUF file is split into parts: NAME-00001-of-00003.gguf and so on.
//
// The first part has the metadata of the model. Each part has some of its tensors and three keys:
// "split.no" (from 0), "split.count", and "split.tensors.count", the number of tensors in all
// parts.
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/gguf/gguf_file.h"

namespace minisgl {

struct GgufPart {
  std::string path;  // for messages, too
  GgufHeader header;
};

// Returns the paths of all parts, in order, if `path` is named like a part; otherwise `path` alone.
// Looks at no file.
std::vector<std::string> GgufPartPaths(const std::string& path);

// Returns the paths of all parts of the model that `part` belongs to; its own path if the file is
// whole. kBadInput if the name of a part does not tell the names of the others.
Result<std::vector<std::string>> GgufPartsOf(const GgufPart& part);

// Joins the headers of all parts, given in order: the metadata of the first and the tensors of all.
// kBadInput, beginning with the path, for a part that is out of place, counts wrong, contradicts
// the metadata of the first, or has a tensor that another part has, too.
Result<GgufHeader> JoinGgufParts(std::vector<GgufPart> parts);

}  // namespace minisgl
