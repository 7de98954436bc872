// Models whose GGUF file is split into parts: NAME-00001-of-00003.gguf and so on.
//
// The first part has the metadata of the model, and each has some of its tensors and three keys:
// "split.no" (from 0), "split.count", and "split.tensors.count", which counts the tensors of all.
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

// The paths of all parts, in order, if the name of `path` is that of one; otherwise `path` alone.
// Looks at no file.
std::vector<std::string> GgufPartPaths(const std::string& path);

// The paths of the model that `part` belongs to: its own, if the file is whole. kBadInput for a
// part whose name does not tell those of the others.
Result<std::vector<std::string>> GgufPartsOf(const GgufPart& part);

// The header of all parts together, which are given in order: the metadata of the first, and the
// tensors of all. kBadInput, beginning with the path, for a part that is not the one of its place,
// counts wrong, has metadata that differ from the first's, or a tensor that another has.
Result<GgufHeader> JoinGgufParts(std::vector<GgufPart> parts);

}  // namespace minisgl
