// A projector file: the tower and the projector of a multimodal model whose text is a GGUF file, as
// llama.cpp's converter writes them ("mmproj-*.gguf", architecture "clip").
//
// Files are untrusted. Errors name the file and the key or the tensor.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/weights/model_config.h"
#include "minisgl/weights/tower_config.h"

namespace minisgl {

struct Projector {
  // What the files of a model directory with these names say of its pictures. Bounds of a picture's
  // size that the file does not state are those that the family publishes.
  Json config, preprocessor, processor;
  TowerConfig tower;
  // Frequencies of the text's rotary embedding for each part of a position; zeros: it has one part.
  std::array<int32_t, 3> sections = {};
  bool sections_mixed = false;                             // RopeConfig::sections_mixed
  PictureAttention attention = PictureAttention::kCausal;  // of the text
};

// The projector at `path` beside the text model at `model_file`. kBadInput: a damaged file, one
// that is no projector, or one of another text. kUnavailable: a tower that this program has not,
// with its name. kUsage: `model_file` is a directory, which has a tower of its own.
Result<Projector> LoadProjector(const std::string& path, const std::string& model_file);

// kBadInput, with advice, if the model at `path` is a projector. Damaged files are left to others.
Status CheckIsNoProjector(const std::string& path);

// Tells the text model what pictures need of it: how their tokens attend, and the parts of
// positions of its rotary embeddings. kBadInput: these are not those of the text.
Status PrepareText(const Projector& projector, ModelConfig* text);

}  // namespace minisgl
