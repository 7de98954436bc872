#include "minisgl/text/prepared_pictures.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "minisgl/base/sha256.h"
#include "minisgl/base/utf8.h"
#include "minisgl/vision/prepare_image.h"

namespace minisgl {
namespace {

template <typename Number>
void AddNumbers(std::span<const Number> numbers, Sha256* hash) {
  hash->Add({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

// Hashes the values, their shape, and what decides the order of their embeddings.
ContentHash HashOf(const PreparedImage& image) {
  const ImageLayout& layout = image.layout;
  Sha256 hash;
  AddNumbers<int64_t>(layout.shape, &hash);
  const int64_t layout_numbers[] = {static_cast<int64_t>(layout.overview),
                                    layout.tile_rows,
                                    layout.tile_columns,
                                    layout.num_tiles,
                                    layout.patch_rows,
                                    layout.patch_columns,
                                    layout.num_tokens,
                                    layout.token_rows,
                                    layout.token_columns,
                                    layout.cut_rows,
                                    layout.cut_columns};
  AddNumbers<int64_t>(layout_numbers, &hash);
  AddNumbers<float>(image.values, &hash);
  const Sha256::Digest digest = hash.Finish();
  ContentHash first{};
  for (size_t i = 0; i < sizeof(first); ++i) {
    first[i / 8] |= uint64_t{digest[i]} << (8 * (i % 8));
  }
  return first;
}

Result<PreparedPicture> Prepare(const ImageRules& rules, const ConversationImage& picture,
                                int num_images) {
  const std::string name = Visible(picture.name, 400);
  auto bounded = WithTokenBounds(rules, picture.tokens_min, picture.tokens_max);
  if (!bounded.ok()) return bounded.status().WithPrefix(name);
  auto prepared =
      PrepareImageFile(*bounded, *picture.bytes, picture.limits, picture.background, num_images);
  if (!prepared.ok()) return prepared.status().WithPrefix(name);
  const auto content = std::make_shared<ImageContent>();
  content->image = std::move(prepared).value();
  return PreparedPicture{content, HashOf(content->image)};
}

// True if both are prepared alike.
bool IsSame(const ConversationImage& a, const ConversationImage& b) {
  return a.tokens_min == b.tokens_min && a.tokens_max == b.tokens_max &&
         a.background == b.background && (a.bytes == b.bytes || *a.bytes == *b.bytes);
}

}  // namespace

Result<PreparedPicture> PreparedPictures::Get(const ImageRules& rules,
                                              const ConversationImage& picture, int num_images) {
  PreparedPicture prepared;
  if (Find(picture, num_images, &prepared)) return prepared;
  // Outside of the lock: others prepare other pictures meanwhile, or rarely the same one.
  MINISGL_ASSIGN_OR_RETURN(prepared, Prepare(rules, picture, num_images));
  const uint64_t num_bytes =
      prepared.content->image.values.size() * sizeof(float) + picture.bytes->size();
  if (num_bytes <= bytes_max_) Keep({picture, num_images, prepared, num_bytes});
  return prepared;
}

bool PreparedPictures::Find(const ConversationImage& picture, int num_images,
                            PreparedPicture* prepared) {
  const std::lock_guard lock(mutex_);
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->num_images != num_images || !IsSame(kept->picture, picture)) continue;
    kept_.splice(kept_.begin(), kept_, kept);
    *prepared = kept_.front().prepared;
    return true;
  }
  return false;
}

void PreparedPictures::Keep(Kept kept) {
  const std::lock_guard lock(mutex_);
  num_bytes_ += kept.num_bytes;
  kept_.push_front(std::move(kept));
  while (num_bytes_ > bytes_max_) {
    num_bytes_ -= kept_.back().num_bytes;
    kept_.pop_back();
  }
}

}  // namespace minisgl
