// See draft_choice.h.
#include "load/draft_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/draft_head.h"
#include "minisgl/weights/find_model_dir.h"
#include "minisgl/weights/prediction_layer.h"

namespace minisgl::load {
namespace {

constexpr int32_t kDraftsMax = 16;
// A layer that drafts token by token is right less often the further it goes.
constexpr int32_t kMtpDrafts = 3;
constexpr int32_t kNgramDrafts = 4;
constexpr int32_t kModelDrafts = 4;

struct NamedKind {
  std::string_view prefix;
  DraftKind kind;
};
constexpr NamedKind kKindsOfModels[] = {
    {"draft:", DraftKind::kModel}, {"eagle:", DraftKind::kEagle}, {"dflash:", DraftKind::kBlock}};

std::optional<int32_t> ParseCount(std::string_view text) {
  const auto count = ParseNumber<int64_t>(text).value_or(-1);
  if (count < 1 || count > kDraftsMax) return std::nullopt;
  return static_cast<int32_t>(count);
}

// A directory may have colons in its name; what follows the last one is a count if it is one.
std::optional<DraftOption> ParseModel(DraftKind kind, std::string_view text) {
  DraftOption option = {kind, 0, std::string(text)};
  if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    if (const auto count = ParseCount(text.substr(colon + 1))) {
      option.max_drafts = *count;
      option.model = text.substr(0, colon);
    }
  }
  if (option.model.empty()) return std::nullopt;
  return option;
}

// Ids of the two models must have the same meaning, or each draft would be another token.
Status CheckSameIds(const std::string& target_dir, const std::string& drafter_dir) {
  MINISGL_ASSIGN_OR_RETURN(const auto target, Tokenizer::Load(target_dir));
  MINISGL_ASSIGN_OR_RETURN(const auto drafter, Tokenizer::Load(drafter_dir));
  const TokenId count = std::min(target->vocab_size(), drafter->vocab_size());
  for (TokenId id = 0; id < count; ++id) {
    const std::string own = target->PieceText(id), other = drafter->PieceText(id);
    if (own == other) continue;
    return BadInput("its tokenizer is another: token {} is \"{}\" there and \"{}\" in {}", id,
                    Visible(other, 100), Visible(own, 100), Visible(target_dir, 400));
  }
  return Status();
}

Result<std::shared_ptr<const ListedModel>> SmallModel(const std::string& target_dir,
                                                      const std::string& dir) {
  MINISGL_ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(dir));
  if (HasStates(config)) {
    return BadInput("{} has layers with states, which a drafter may not have",
                    Visible(config.architecture, 200));
  }
  if (config.lacks_head || config.attends_both_ways) {
    return BadInput("{} has no answers", Visible(config.architecture, 200));
  }
  MINISGL_RETURN_IF_ERROR(CheckSameIds(target_dir, dir));
  return MakeDecoderModel(ModelRole::kDrafter, std::move(config), dir);
}

// A head of the kind that was asked for, and how many drafts it makes at most.
Result<std::shared_ptr<const ListedModel>> Head(const ModelConfig& target, const std::string& dir,
                                                DraftOption* drafts) {
  MINISGL_ASSIGN_OR_RETURN(ModelConfig config, LoadDraftHead(dir, target));
  const bool is_block = config.prediction == PredictionLayer::kBlock;
  const DraftKind kind = is_block ? DraftKind::kBlock : DraftKind::kEagle;
  if (drafts->kind != DraftKind::kModel && drafts->kind != kind) {
    return BadInput("it is {} head", is_block ? "a DFlash or DSpark" : "an EAGLE-3");
  }
  if (is_block) {
    // A block of more places than the head was trained with has no meaning.
    const DraftHeadConfig& head = config.draft_head;
    const int32_t most = std::min(head.block_size - (head.predicts_next ? 0 : 1), kDraftsMax);
    if (drafts->max_drafts > most) {
      return BadInput("its blocks have {} tokens to draft, and {} are asked for", most,
                      drafts->max_drafts);
    }
    if (drafts->max_drafts == 0) drafts->max_drafts = most;
  }
  return MakeDecoderModel(ModelRole::kDrafter, std::move(config), dir);
}

// What stands in the directory, GGUF file or cache entry of drafts->model.
Result<std::shared_ptr<const ListedModel>> ModelBeside(const ModelConfig& target,
                                                       const std::string& target_dir,
                                                       DraftOption* drafts) {
  MINISGL_ASSIGN_OR_RETURN(const std::string dir, FindModelDir(drafts->model));
  const bool is_head = IsDraftHead(dir);
  if (!is_head && drafts->kind != DraftKind::kModel) {
    return BadInput("it is no head that drafts; draft:DIR runs a small model");
  }
  MINISGL_ASSIGN_OR_RETURN(auto model,
                           is_head ? Head(target, dir, drafts) : SmallModel(target_dir, dir));
  if (drafts->max_drafts == 0) drafts->max_drafts = kModelDrafts;
  return model;
}

Status RunsOnDevice(const ModelConfig& drafter, const ModelConfig& target) {
  const Status fits = CheckDeviceDrafts(drafter, target);
  return fits.ok() ? fits : UsageError("{}; use --device cpu", fits.message());
}

const char* OptionOf(DraftKind kind) {
  switch (kind) {
    case DraftKind::kModel:
      return "--speculate draft";
    case DraftKind::kEagle:
      return "--speculate eagle";
    case DraftKind::kBlock:
      return "--speculate dflash";
    default:
      return "--speculate mtp";
  }
}

}  // namespace

std::optional<DraftOption> ParseDrafts(std::string_view text) {
  if (text == "none") return DraftOption();
  if (text == "mtp") return DraftOption{DraftKind::kMtp, kMtpDrafts, ""};
  if (text == "auto") return DraftOption{DraftKind::kAuto, kNgramDrafts, ""};
  for (const auto& [prefix, kind] : kKindsOfModels) {
    if (text.starts_with(prefix)) return ParseModel(kind, text.substr(prefix.size()));
  }
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view name = text.substr(0, colon);
  const std::optional<int32_t> count = ParseCount(text.substr(colon + 1));
  if ((name != "ngram" && name != "mtp") || !count) return std::nullopt;
  return DraftOption{name == "mtp" ? DraftKind::kMtp : DraftKind::kNgram, *count, ""};
}

std::string CheckDrafts(const std::string& text) {
  if (ParseDrafts(text)) return "";
  return fmt::format(
      "must be none or ngram:K with K from 1 to {}, mtp:K, draft:DIR:K, eagle:DIR:K, dflash:DIR:K, "
      "or auto (found {})",
      kDraftsMax, Visible(text));
}

Result<std::shared_ptr<const ListedModel>> ChooseDrafter(const ModelConfig& target,
                                                         const std::string& model_dir,
                                                         bool on_device, DraftOption* drafts) {
  std::shared_ptr<const ListedModel> none;
  if (drafts->kind == DraftKind::kNone || drafts->kind == DraftKind::kNgram) return none;
  const bool is_auto = drafts->kind == DraftKind::kAuto, is_beside = !drafts->model.empty();
  const char* const option = OptionOf(drafts->kind);
  const bool runs = !model_dir.empty();
  if (!runs && !is_auto) {
    return UsageError("{}: a model that drafts needs one with files, which it drafts for", option);
  }
  if (is_beside) {
    auto model = ModelBeside(target, model_dir, drafts);
    Status fits = model.status();
    if (fits.ok() && on_device) fits = RunsOnDevice(*(*model)->layers(), target);
    if (fits.ok()) return model;
    return fits.WithPrefix(fmt::format("{}: {}", option, Visible(drafts->model, 400)));
  }
  std::unique_ptr<Checkpoint> files;
  if (runs) {
    MINISGL_ASSIGN_OR_RETURN(files, Checkpoint::Open(model_dir));
  }
  if (is_auto && (!runs || !HasPredictionLayer(target, *files))) {
    *drafts = {DraftKind::kNgram, kNgramDrafts, ""};
    return none;
  }
  auto layer = PredictionLayerOf(target, *files);
  if (!layer.ok()) {
    return UsageError("{}: {}: {}; ngram:4 drafts from repetitions in the text", option,
                      Visible(model_dir, 400), layer.status().message());
  }
  if (on_device) {
    layer->copied_head.clear();  // a copy in fewer bits, which the CPU alone makes
    const Status fits = RunsOnDevice(*layer, target);
    if (!fits.ok()) return fits.WithPrefix(option);
  }
  *drafts = {DraftKind::kMtp, is_auto ? kMtpDrafts : drafts->max_drafts, ""};
  return MakeDecoderModel(ModelRole::kDrafter, std::move(layer).value());
}

}  // namespace minisgl::load
