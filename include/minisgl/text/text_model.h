// The text side of a model: its tokenizer and its chat template. How a conversation becomes token
// ids with it: conversation.h.
//
// Immutable after loading, and thus thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/adapter_names.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/image_text.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl {

struct TextModel {
  std::string dir;        // the model directory, or a GGUF file
  std::string projector;  // of a GGUF file: the file of its tower, which `images` is of; "": none
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;    // null if the model has none
  Json template_args;                             // variables of every rendering: null or an object
  std::optional<ToolDialect> tool_dialect;        // that was set; see ToolDialectOf
  bool parse_special = false;                     // control tokens count in message content too
  bool no_parse_special = false;                  // control tokens do not count in raw prompts
  std::optional<ImageText> images;                // unset if the model reads none
  std::shared_ptr<const AdapterNames> adapters;   // null: none
  std::shared_ptr<const Adapter> merged_adapter;  // that is folded into the weights; null: none
  Status images_status;                           // why `images` is unset; OK if it is set
};

// Returns the dialect in which the model calls tools: the one that was set, or that its template
// and its vocabulary tell of.
ToolDialect ToolDialectOf(const TextModel& text);

// Sets text->images, or else text->images_status, from the files in text->dir: a model whose files
// for pictures are damaged still reads text. REQUIRES the tokenizer.
void LoadImages(TextModel* text);

}  // namespace minisgl
