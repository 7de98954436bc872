// See tower_choice.h.
#include "load/tower_choice.h"

#include <optional>
#include <utility>

#include "minisgl/base/json.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/tower.h"
#include "minisgl/text/image_text.h"
#include "minisgl/vision/image_rules.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/projector.h"
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

Status CheckFiles(const TowerConfig& tower, const std::string& model_dir) {
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  return CheckTowerTensors(tower, *checkpoint);
}

// A tower that the user names must run: another answer would not be about the picture.
Result<ModelList> WithProjector(ModelConfig config, const TextModel& text) {
  MINISGL_ASSIGN_OR_RETURN(Projector projector, LoadProjector(text.projector, text.dir));
  MINISGL_RETURN_IF_ERROR(CheckFiles(projector.tower, text.projector));
  const Status fits = PrepareText(projector, &config);
  if (!fits.ok()) return fits.WithPrefix(Visible(text.dir, 400));
  ModelList models(config);
  MINISGL_RETURN_IF_ERROR(models.Add(MakeTowerModel(std::move(projector.tower), text.projector)));
  return models;
}

}  // namespace

Result<ModelList> ModelsOf(const ModelConfig& config, const TextModel& text,
                           const EngineOptions& options, Status* why_not) {
  ModelList models(config);
  *why_not = BadInput("{}: the model reads no images", Visible(text.dir, 400));
  if (config.wrapper.empty() && text.projector.empty()) return models;
  if (options.no_images) {
    *why_not = MakeStatus(StatusCode::kUsage, "images are not read (--no-images)");
    return models;
  }
  if (!text.projector.empty()) {
    *why_not = Status();
    return WithProjector(config, text);
  }
  Result<std::optional<TowerConfig>> tower = LoadTowerConfig(text.dir);
  if (tower.ok() && !tower->has_value()) return models;
  *why_not = tower.status();
  if (tower.ok()) *why_not = CheckFiles(**tower, text.dir);
  if (!why_not->ok()) {
    Log(LogLevel::kVerbose, "images are not read: " + why_not->message());
    return models;
  }
  MINISGL_RETURN_IF_ERROR(models.Add(MakeTowerModel(std::move(**tower))));
  return models;
}

Status LoadProjectorImages(TextModel* text) {
  MINISGL_ASSIGN_OR_RETURN(const Projector projector, LoadProjector(text->projector, text->dir));
  MINISGL_ASSIGN_OR_RETURN(
      ImageRules rules,
      ReadImageRules(projector.config, projector.preprocessor, projector.processor));
  MINISGL_ASSIGN_OR_RETURN(text->images, ReadImageText(projector.config, projector.processor,
                                                       std::move(rules), *text->tokenizer));
  return Status();
}

void CheckTower(TextModel* text) {
  if (!text->images) return;
  Result<std::optional<TowerConfig>> tower = LoadTowerConfig(text->dir);
  if (tower.ok() && tower->has_value()) return;
  LeaveOutImages(tower.ok() ? BadInput("{}: the model reads no images", Visible(text->dir, 400))
                            : tower.status(),
                 text);
}

Status ImagesStatus(const EngineSetup& engine) {
  const Status& why_not = engine.device.no_tower;
  if (why_not.ok()) return why_not;
  return MakeStatus(StatusCode::kUnavailable, "{}; use --device cpu", why_not.message());
}

void CheckTowerIsLoaded(const ModelList& models, const Status& why_not, TextModel* text) {
  if (!text->images || models.tower() != nullptr) return;
  LeaveOutImages(why_not, text);
}

}  // namespace minisgl::load
