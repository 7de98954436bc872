// See image_placeholders.h.
#include "text/image_placeholders.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/text/tokenizer.h"
#include "text/jinja/tracked_text.h"

namespace minisgl::text {
namespace {

// A placeholder in the text of a prompt.
struct PlaceholderPlace {
  size_t piece = 0;
  size_t begin = 0;  // a byte of the piece
  size_t whole = 0;  // the same byte of the whole text
};

std::vector<PlaceholderPlace> FindPlaces(const std::vector<TextPiece>& pieces,
                                         const std::string& placeholder) {
  std::vector<PlaceholderPlace> places;
  size_t before = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string& text = pieces[i].text;
    for (size_t at = 0; pieces[i].trusted; at += placeholder.size()) {
      at = jinja::Find(text, placeholder, at);
      if (at == std::string::npos) break;
      places.push_back({i, at, before + at});
    }
    before += text.size();
  }
  return places;
}

Result<LaidOutImage> LayOut(const ImageText& images, ConversationImage picture, int num_images) {
  const std::string name = Visible(picture.name, 400);
  auto rules = WithTokenBounds(images.rules, picture.tokens_min, picture.tokens_max);
  if (!rules.ok()) return rules.status().WithPrefix(name);
  auto layout = LayOutImageFile(*rules, *picture.bytes, picture.limits, num_images);
  if (!layout.ok()) return layout.status().WithPrefix(name);
  if (layout->num_tokens < 1) return BadInput("{}: a picture of no tokens", name);
  return LaidOutImage{std::move(picture), std::move(layout).value()};
}

// An upper bound on the size of ImageTextOf.
uint64_t TextBytesMax(const ImageText& images, const ImageLayout& layout) {
  constexpr uint64_t kNameBytes = 64;  // of a tile
  const auto parts =
      static_cast<uint64_t>(layout.token_rows) + static_cast<uint64_t>(layout.num_tiles) + 2;
  const uint64_t marks = images.tile_mark.size() + images.row_end.size() + images.last_end.size() +
                         images.overview_mark.size() + kNameBytes;
  return static_cast<uint64_t>(layout.num_tokens) * images.token.size() + parts * marks +
         images.before.size() + images.after.size();
}

// The texts of all pictures, which are laid out one after the other.
Result<std::vector<std::string>> TextsOf(const ImageText& images,
                                         std::vector<ConversationImage> pictures,
                                         std::vector<LaidOutImage>* laid_out) {
  std::vector<std::string> texts;
  uint64_t bytes = 0;
  const auto num_images = static_cast<int>(pictures.size());
  for (ConversationImage& picture : pictures) {
    MINISGL_ASSIGN_OR_RETURN(LaidOutImage image, LayOut(images, std::move(picture), num_images));
    bytes += TextBytesMax(images, image.layout);
    if (bytes > kTextBytesMax) {
      return BadInput("{}: the prompt's pictures take too many tokens (more than {} bytes of text)",
                      Visible(image.image.name, 400), kTextBytesMax);
    }
    texts.push_back(ImageTextOf(images, image.layout));
    laid_out->push_back(std::move(image));
  }
  return texts;
}

// Moves the beginnings of answers, which do not stand in placeholders, behind longer texts.
void MoveAnswers(const std::vector<PlaceholderPlace>& places, const std::vector<std::string>& texts,
                 size_t placeholder_bytes, std::vector<RenderedAnswer>* answers) {
  for (RenderedAnswer& answer : *answers) {
    const size_t begin = answer.begin;
    for (size_t i = 0; i < places.size() && places[i].whole < begin; ++i) {
      answer.begin += texts[i].size() - placeholder_bytes;
    }
  }
}

}  // namespace

Status ExpandPlaceholders(const ImageText& images, std::vector<ConversationImage> pictures,
                          RenderedPrompt* prompt) {
  const std::string& placeholder = images.placeholder;
  const std::vector<PlaceholderPlace> places = FindPlaces(prompt->pieces, placeholder);
  if (places.size() != pictures.size()) {
    return BadInput(
        "the prompt has {} pictures, but its text has {} places for them (\"{}\"){}",
        pictures.size(), places.size(), Visible(placeholder),
        places.size() < pictures.size() ? "; the chat template leaves out the others" : "");
  }
  if (pictures.empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                           TextsOf(images, std::move(pictures), &prompt->images));
  MoveAnswers(places, texts, placeholder.size(), &prompt->answers);
  auto place = places.begin();
  for (size_t i = 0; i < prompt->pieces.size() && place != places.end(); ++i) {
    if (place->piece != i) continue;
    std::string& text = prompt->pieces[i].text;
    std::string expanded;
    size_t at = 0;
    for (; place != places.end() && place->piece == i; ++place) {
      expanded.append(text, at, place->begin - at);
      expanded += texts[static_cast<size_t>(place - places.begin())];
      at = place->begin + placeholder.size();
    }
    expanded.append(text, at);
    text = std::move(expanded);
  }
  return Status();
}

Result<std::vector<PlacedImage>> FindImageRuns(const ImageText& images,
                                               const std::vector<TokenId>& ids,
                                               std::vector<LaidOutImage> pictures) {
  int64_t wanted = 0;
  for (const LaidOutImage& picture : pictures) wanted += picture.layout.num_tokens;
  const int64_t found = std::count(ids.begin(), ids.end(), images.token_id);
  if (found != wanted) {
    return BadInput(
        "the prompt has {} tokens \"{}\", and its pictures take {}; no text may spell it", found,
        Visible(images.token), wanted);
  }
  std::vector<PlacedImage> placed;
  auto at = ids.begin();
  for (LaidOutImage& picture : pictures) {
    PlacedImage image = {std::move(picture), {}};
    int64_t missing = image.laid_out.layout.num_tokens;
    while (missing > 0) {
      at = std::find(at, ids.end(), images.token_id);
      const auto end = std::find_if(at, at + std::min<int64_t>(missing, ids.end() - at),
                                    [&images](TokenId id) { return id != images.token_id; });
      image.runs.push_back({at - ids.begin(), static_cast<int32_t>(end - at)});
      missing -= end - at;
      at = end;
    }
    placed.push_back(std::move(image));
  }
  return placed;
}

}  // namespace minisgl::text
