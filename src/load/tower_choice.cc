// See tower_choice.h.
#include "load/tower_choice.h"

#include <optional>
#include <utility>

#include "minisgl/base/json.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/tower.h"
#include "minisgl/weights/tower_config.h"

namespace minisgl::load {
namespace {

void LeaveOutImages(Status why, TextModel* text) {
  text->images.reset();
  text->images_status = std::move(why);
}

Result<std::optional<TowerConfig>> LoadTowerConfig(const std::string& model_dir) {
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ModelConfigText(model_dir));
  MINISGL_ASSIGN_OR_RETURN(const Json config, ParseJson(text));
  return ReadTowerConfig(config);
}

}  // namespace

Result<ModelList> ModelsOf(const ModelConfig& config, const std::string& model_dir,
                           const EngineOptions& options) {
  ModelList models(config);
  if (options.no_images || config.wrapper.empty()) return models;
  Result<std::optional<TowerConfig>> tower = LoadTowerConfig(model_dir);
  if (!tower.ok()) {
    Log(LogLevel::kVerbose, "no images: " + tower.status().message());
    return models;
  }
  if (!tower->has_value()) return models;
  MINISGL_RETURN_IF_ERROR(models.Add(MakeTowerModel(std::move(**tower))));
  return models;
}

void CheckTower(TextModel* text) {
  if (!text->images) return;
  Result<std::optional<TowerConfig>> tower = LoadTowerConfig(text->dir);
  if (tower.ok() && tower->has_value()) return;
  LeaveOutImages(tower.ok() ? BadInput("{}: the model reads no images", Visible(text->dir, 400))
                            : tower.status(),
                 text);
}

void CheckTowerIsLoaded(const ModelList& models, const EngineOptions& options, bool is_device,
                        TextModel* text) {
  if (!text->images || models.tower() != nullptr) return;
  if (is_device) {
    return LeaveOutImages(
        MakeStatus(StatusCode::kUnavailable, "images are read on the CPU alone; use --device cpu"),
        text);
  }
  LeaveOutImages(!options.no_images
                     ? BadInput("{}: the files have no tower for images", Visible(text->dir, 400))
                     : MakeStatus(StatusCode::kUsage, "images are not read (--no-images)"),
                 text);
}

}  // namespace minisgl::load
