// See draft_choice.h.
#include "load/draft_choice.h"

#include <fmt/core.h>

#include <utility>

#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/prediction_layer.h"

namespace minisgl::load {
namespace {

constexpr int32_t kDraftsMax = 16;
// A layer that drafts token by token is right less often the further it goes.
constexpr int32_t kMtpDrafts = 3;
constexpr int32_t kNgramDrafts = 4;

}  // namespace

std::optional<DraftOption> ParseDrafts(std::string_view text) {
  if (text == "none") return DraftOption();
  if (text == "mtp") return DraftOption{DraftKind::kMtp, kMtpDrafts};
  if (text == "auto") return DraftOption{DraftKind::kAuto, kNgramDrafts};
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view name = text.substr(0, colon);
  if (name != "ngram" && name != "mtp") return std::nullopt;
  const auto count = ParseNumber<int64_t>(text.substr(colon + 1)).value_or(-1);
  if (count < 1 || count > kDraftsMax) return std::nullopt;
  return DraftOption{name == "mtp" ? DraftKind::kMtp : DraftKind::kNgram,
                     static_cast<int32_t>(count)};
}

std::string CheckDrafts(const std::string& text) {
  if (ParseDrafts(text)) return "";
  return fmt::format(
      "must be none or ngram:K with K from 1 to {}, mtp or mtp:K, or auto (found {})", kDraftsMax,
      Visible(text));
}

Result<std::shared_ptr<const ListedModel>> ChooseDrafter(const ModelConfig& target,
                                                         const std::string& model_dir,
                                                         bool on_device, DraftOption* drafts) {
  std::shared_ptr<const ListedModel> none;
  if (drafts->kind != DraftKind::kMtp && drafts->kind != DraftKind::kAuto) return none;
  const bool is_auto = drafts->kind == DraftKind::kAuto;
  const DraftOption ngram = {DraftKind::kNgram, kNgramDrafts};
  if (!is_auto && (on_device || model_dir.empty())) {
    return UsageError("--speculate mtp: {}",
                      on_device ? "only --device cpu runs the layer that drafts"
                                : "there is no checkpoint here with a layer that drafts");
  }
  if (on_device || model_dir.empty()) {
    *drafts = ngram;
    return none;
  }
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  if (is_auto && !HasPredictionLayer(target, *checkpoint)) {
    *drafts = ngram;
    return none;
  }
  auto layer = PredictionLayerOf(target, *checkpoint);
  if (!layer.ok()) {
    return UsageError("--speculate mtp: {}: {}; ngram:4 drafts from repetitions in the text",
                      Visible(model_dir, 400), layer.status().message());
  }
  *drafts = {DraftKind::kMtp, is_auto ? kMtpDrafts : drafts->max_drafts};
  return MakeDecoderModel(ModelRole::kDrafter, std::move(layer).value());
}

}  // namespace minisgl::load
