// The kinds of projector files: how the metadata of each is said in the files of a model directory,
// and the names of its tensors.
//
// Source: the converter of llama.cpp, which defines both, and its changes to tensors.
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/weights/projector.h"
#include "weights/gguf_model.h"

namespace minisgl::weights {

// True if the file holds a projector, not a text model.
bool IsProjector(const GgufHeader& header);

// What the file says by itself: without the sections, and with 1e-5 for the eps of the text's norms
// where the projector has one of those. Errors without the file's name.
Result<Projector> ReadProjector(const GgufHeader& header);

// The tensors of its tower, under the names that a model directory has for them. kBadInput for one
// that the tower has no use for.
Result<std::vector<GgufModelTensor>> FindProjectorTensors(const GgufHeader& header,
                                                          const TowerConfig& tower);

}  // namespace minisgl::weights
