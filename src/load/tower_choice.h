// Which tower an engine loads beside its target, and why there may be none.
#pragma once

#include <string>

#include "load/device_choice.h"
#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/model/model_list.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

// The target `config`, and the tower of the model in text.dir if it has one that this program
// knows, its files hold it, and `options` want pictures read. A tower that cannot be read is none:
// the model's text runs without it. If there is none, *why_not says why. A tower in a projector
// that the user names must be read.
Result<ModelList> ModelsOf(const ModelConfig& config, const TextModel& text,
                           const EngineOptions& options, Status* why_not);

// Sets text->images from the file text->projector, which the user names: it must be read. REQUIRES
// the tokenizer.
Status LoadProjectorImages(TextModel* text);
// Takes the pictures from `text` if its model has no tower that could read them, and keeps the
// reason for rows that have some.
void CheckTower(TextModel* text);
// Why the engine's device reads no images, with advice, though the list has a tower; OK if it does.
Status ImagesStatus(const EngineSetup& engine);
// Likewise, after the engine of `models` was chosen, if it has no tower: `why_not` from ModelsOf or
// ImagesStatus.
void CheckTowerIsLoaded(const ModelList& models, const Status& why_not, TextModel* text);

}  // namespace minisgl::load
