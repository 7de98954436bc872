// Any text as the config.json of a multimodal model: either rejected with one readable line, or
// every number by which a tower divides or allocates is in its range, and its bytes can be counted.
#include <algorithm>
#include <cstdint>
#include <string>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/tower.h"
#include "minisgl/weights/tower_config.h"

namespace {

using namespace minisgl;

void CheckTower(const TowerConfig& config) {
  MINISGL_CHECK(config.text_hidden_size > 0 && config.hidden_size > 0 &&
                    config.intermediate_size > 0 && config.num_layers > 0,
                "a size is not positive");
  MINISGL_CHECK(config.num_heads > 0 && config.head_dim > 0, "heads are out of range");
  MINISGL_CHECK(config.rotation == TowerRotation::kNone || config.head_dim % 4 == 0,
                "heads of {} cannot turn", config.head_dim);
  MINISGL_CHECK(config.patch_size > 0 && config.num_frames > 0 && config.unit_side > 0,
                "patches are out of range");
  MINISGL_CHECK(config.tile_side >= 0 && config.window_units >= 0, "tiles are out of range");
  MINISGL_CHECK(config.norm_eps > 0 && config.attention_scale > 0, "a number is out of range");
  MINISGL_CHECK(config.deepstack_layers.size() == config.deepstack_steps.size(),
                "layers are amiss");
  for (const int32_t layer : config.deepstack_layers) {
    MINISGL_CHECK(layer >= 0 && layer < config.num_layers, "layer {}", layer);
  }
  for (const TowerStep& step : config.steps) MINISGL_CHECK(step.width >= 0, "width {}", step.width);
  // Counts are cheap, with one layer.
  TowerConfig small = config;
  small.num_layers = 1;
  const auto model = MakeTowerModel(small);
  const DecoderOptions options;
  MINISGL_CHECK(model->WeightBytes(options).value_or(1) > 0, "no weights");
  MINISGL_CHECK(model->WorkspaceBytes(options).value_or(1) > 0, "no workspace");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = ParseJson({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  const auto config = ReadTowerConfig(*json);
  if (config.ok()) {
    if (config->has_value()) CheckTower(**config);
    return 0;
  }
  const std::string& message = config.status().message();
  MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
  return 0;
}
