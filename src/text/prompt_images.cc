#include "minisgl/text/prompt_images.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/encode_prompt.h"
#include "minisgl/text/prepared_pictures.h"
#include "minisgl/text/text_model.h"

namespace minisgl {
namespace {

// The contents of all pictures.
Result<std::vector<PreparedPicture>> PrepareAll(const ImageRules& rules,
                                                const std::vector<PlacedImage>& placed,
                                                PreparedPictures* known) {
  std::vector<PreparedPicture> contents;
  for (const PlacedImage& image : placed) {
    const ConversationImage& picture = image.laid_out.image;
    MINISGL_ASSIGN_OR_RETURN(PreparedPicture prepared,
                             known->Get(rules, picture, static_cast<int>(placed.size())));
    if (prepared.content->image.layout.num_tokens != image.laid_out.layout.num_tokens) {
      return MakeStatus(StatusCode::kInternal, "{}: the picture was laid out in two ways",
                        Visible(picture.name, 400));
    }
    contents.push_back(std::move(prepared));
  }
  return contents;
}

// Checks that the pictures' tokens stand where they stood when the prompt was encoded.
Status CheckPlaces(const EncodedPrompt& prompt, TokenId token_id) {
  for (const PlacedImage& image : prompt.images) {
    for (const ImageRun& run : image.runs) {
      const bool is_there = run.token + run.count <= std::ssize(prompt.ids) &&
                            prompt.ids[static_cast<size_t>(run.token)] == token_id;
      if (!is_there) return MakeStatus(StatusCode::kInternal, "a prompt with pictures is cut");
    }
  }
  return Status();
}

// The runs of picture `index` as the model replaces them.
void AddRuns(const PlacedImage& image, size_t index, RowExtras* extras) {
  int32_t first = 0;
  for (const ImageRun& run : image.runs) {
    extras->embeddings.push_back({run.token, run.count, first, index});
    first += run.count;
  }
}

// The positions of three parts. A text token has its place three times, counted on from the token
// before it; the tokens of a picture have the place of the first one, and their row and column
// beyond it. The text goes on behind the longer side of the picture's grid.
GivenPositions GridPositions(const std::vector<PlacedImage>& placed, int64_t num_tokens) {
  GivenPositions positions;
  positions.of_prompt.reserve(static_cast<size_t>(num_tokens));
  int32_t next = 0;
  const auto add_text = [&](int64_t end) {
    while (std::ssize(positions.of_prompt) < end) {
      positions.of_prompt.push_back({next, next, next});
      ++next;
    }
  };
  for (const PlacedImage& image : placed) {
    add_text(image.runs.front().token);
    const ImageLayout& layout = image.laid_out.layout;
    for (int32_t i = 0; i < layout.num_tokens; ++i) {
      positions.of_prompt.push_back(
          {next, next + i / layout.token_columns, next + i % layout.token_columns});
    }
    next += std::max(layout.token_rows, layout.token_columns);
  }
  add_text(num_tokens);
  positions.shift = static_cast<int32_t>(next - num_tokens);
  return positions;
}

// Checks that each picture is one run of a grid, as those with grids of positions are.
Status CheckGrids(const std::vector<PlacedImage>& placed) {
  for (const PlacedImage& image : placed) {
    const ImageLayout& layout = image.laid_out.layout;
    if (image.runs.size() == 1 &&
        int64_t{layout.token_rows} * layout.token_columns == layout.num_tokens) {
      continue;
    }
    return BadInput("{}: the picture's tokens do not stand together",
                    Visible(image.laid_out.image.name, 400));
  }
  return Status();
}

}  // namespace

Result<PromptImages> MakePromptImages(const TextModel& text, const EncodedPrompt& prompt,
                                      PreparedPictures* known) {
  PromptImages result;
  const std::vector<PlacedImage>& placed = prompt.images;
  if (placed.empty()) return result;
  MINISGL_CHECK(text.images.has_value(), "pictures for a model that reads none");
  MINISGL_RETURN_IF_ERROR(CheckPlaces(prompt, text.images->token_id));
  PreparedPictures of_prompt;
  MINISGL_ASSIGN_OR_RETURN(
      const std::vector<PreparedPicture> contents,
      PrepareAll(text.images->rules, placed, known == nullptr ? &of_prompt : known));
  RowExtras extras;
  for (size_t i = 0; i < placed.size(); ++i) {
    const ImageRun first = placed[i].runs.front(), last = placed[i].runs.back();
    extras.inputs.push_back({.token = first.token,
                             .length = last.token + last.count - first.token,
                             .num_embeddings = placed[i].laid_out.layout.num_tokens,
                             .hash = contents[i].hash,
                             .attends_both_ways = text.images->attends_both_ways,
                             .content = contents[i].content});
    AddRuns(placed[i], i, &extras);
    result.marks.push_back({first.token, contents[i].hash});
  }
  if (text.images->has_grid_positions) {
    MINISGL_RETURN_IF_ERROR(CheckGrids(placed));
    extras.positions = GridPositions(placed, std::ssize(prompt.ids));
  }
  MINISGL_RETURN_IF_ERROR(CheckExtras(extras, std::ssize(prompt.ids), result.marks));
  result.extras = std::make_shared<const RowExtras>(std::move(extras));
  return result;
}

}  // namespace minisgl
