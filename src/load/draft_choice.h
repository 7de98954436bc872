// What drafts the tokens of answers (--speculate), and the model that an engine loads for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/model/model_list.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

enum class DraftKind : uint8_t {
  kNone,
  kNgram,  // repetitions in the text
  kMtp,    // the checkpoint's layer for multi-token prediction
  kModel,  // a small model, or a head of any kind
  kEagle,  // an EAGLE-3 head
  kBlock,  // a DFlash or DSpark head
  kAuto,   // the layer if there is one, else repetitions
};

// With more decoding rows than this a model does not draft: on the CPU eight rows with drafts that
// are all right gain 1.1 times, and 16 lose (tests/bench/RESULTS.md).
inline constexpr int32_t kModelDraftRowsMax = 8;

struct DraftOption {
  DraftKind kind = DraftKind::kNone;
  // Upper bound on drafts of one request in one step; 0 of kModel, kEagle and kBlock: the kind's
  // default, which ChooseDrafter sets.
  int32_t max_drafts = 0;
  std::string model;  // of those: its directory, GGUF file, or name in the hub cache

  bool operator==(const DraftOption&) const = default;
};

// "none", "ngram:K", "mtp", "mtp:K", "auto", or "draft:DIR", "eagle:DIR" and "dflash:DIR" with ":K"
// or without, K from 1 to 16; nullopt for other text.
std::optional<DraftOption> ParseDrafts(std::string_view text);
// What a text must be that ParseDrafts does not take; "" if it takes it.
std::string CheckDrafts(const std::string& text);

// Returns the model that drafts for `target`, which is in `model_dir`, and replaces kAuto by what
// there is; null: no model drafts. Engines on a device run none: to ask for one is then an error,
// with advice. kUsage, and errors of the files.
Result<std::shared_ptr<const ListedModel>> ChooseDrafter(const ModelConfig& target,
                                                         const std::string& model_dir,
                                                         bool on_device, DraftOption* drafts);

}  // namespace minisgl::load
