// The first stage of a prompt's way (minisgl/text/conversation.h) for rows: what a checked row asks
// of a model, as a conversation.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/image_reader.h"
#include "batch/row.h"
#include "minisgl/base/json.h"
#include "minisgl/text/conversation.h"
#include "minisgl/text/text_model.h"

namespace minisgl::batch {

// Moves the parts of the row that only the prompt needs to *conversation, and passes its switches
// (ApplySwitches) to the template. Returns an error if the model has no template for the row's
// messages, or, with --no-parse-special, if the row's ids contain a control token.
std::optional<RowError> TakeConversation(const TextModel& text, Row* row,
                                         Conversation* conversation);

// Reads the pictures of the row's messages [begin, end) into *images: bad_image, with the field. An
// error before anything is read if the model of `text` reads none.
std::optional<RowError> TakeImages(const TextModel& text, const ImageReader& reader, const Row& row,
                                   size_t begin, size_t end,
                                   std::vector<ConversationImage>* images);

// The parts of TakeConversation, for rows whose prompt goes on with what was said before them.
std::optional<RowError> CheckTemplate(const TextModel& text);
std::optional<RowError> CheckControlIds(const TextModel& text, const Row& row);

// Passes row->reasoning_effort to the template as a variable in template_kwargs: the level if the
// template knows levels, else its reasoning switch. row->verbosity is passed as it is. A template
// that reads neither is a note of the row; one that does not read its tools or documents is a note
// and a warning. Returns an error if template_kwargs has the variable.
std::optional<RowError> ApplySwitches(const TextModel& text, Row* row);

// Returns what is said of rows with `field`, reasoning_effort, verbosity, tools or documents, if
// the template of `text` does not read it; "" if it does.
std::string MissingSwitch(const TextModel& text, const std::string& field);

// Returns the messages of a chat: a system message if one is given, and a user message, in which
// `num_images` pictures stand before the text.
Json ChatMessages(const std::optional<std::string>& system, std::string text,
                  size_t num_images = 0);

// True if the row's prompt is completed as it is even if the model has a chat template. In a user's
// first file such a prompt is usually meant as a question.
bool IsRawPrompt(const Row& row);
// Warning about such rows, to be logged once. `count`: number of rows, if known.
std::string RawPromptsWarning(const std::string& file, std::optional<int64_t> count);

}  // namespace minisgl::batch
