// Rows with pictures for runs with drafts: a picture's embeddings are those of ids of the target.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/drafted_run.h"
#include "engine/made_up_tower.h"

namespace minisgl {

// Tokens of the picture of a row, and its place.
inline constexpr int32_t kDraftedPicture = 10, kDraftedFirst = 4;

inline std::shared_ptr<const ListedModel> DraftedTower(const ModelConfig& config,
                                                       int64_t* num_pieces) {
  return std::make_shared<MadeUpTowerModel>(config, 0, num_pieces);
}

// Texts of 30 and more ids, whose tokens from kDraftedFirst on are a picture of the same ids.
inline std::vector<Request> WithPictures(std::vector<Request> requests) {
  for (Request& request : requests) {
    if (std::ssize(request.prompt) < kDraftedFirst + kDraftedPicture + 1) continue;
    auto picture = std::make_shared<MadeUpPicture>();
    picture->ids.assign(request.prompt.begin() + kDraftedFirst,
                        request.prompt.begin() + kDraftedFirst + kDraftedPicture);
    picture->count = kDraftedPicture;
    uint64_t sum = 1;
    for (const TokenId id : picture->ids) sum = sum * 1000003 + static_cast<uint64_t>(id);
    const ContentHash hash = {sum, kDraftedPicture};
    auto extras = std::make_shared<RowExtras>();
    extras->embeddings.push_back({kDraftedFirst, kDraftedPicture, 0, 0});
    extras->inputs.push_back({.token = kDraftedFirst,
                              .length = kDraftedPicture,
                              .num_embeddings = kDraftedPicture,
                              .hash = hash,
                              .content = picture});
    request.marks.push_back({kDraftedFirst, hash});
    request.extras = extras;
    std::fill_n(request.prompt.begin() + kDraftedFirst, kDraftedPicture, 5);
  }
  return requests;
}

}  // namespace minisgl
