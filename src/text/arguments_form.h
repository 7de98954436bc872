// The form in which a template takes the arguments of tool calls: an object or its JSON text.
#pragma once

#include "minisgl/base/json.h"
#include "minisgl/text/chat_template.h"

namespace minisgl::text {

// Finds the form by renderings of short conversations that have a call. kObject, the form of the
// transformers library, unless the template writes the arguments of such a call only if they are a
// text: it concatenates them, for example, or prints them as they are, which would spell an object
// in Python's notation instead of JSON. `with_tools`: of conversations that have tools.
//
// Costs up to 24 renderings of a few lines each, and usually one.
ArgumentsForm FindArgumentsForm(const ChatTemplate& chat, bool with_tools);

// True if a message has tool calls.
bool HasCalls(const Json& messages);

// Brings the arguments of every call in `messages` into `form`.
// - kObject: the text of a JSON object becomes that object, with its order of keys and all digits
//   of its integers; of keys that are given twice the last counts, as in Python. An empty text,
//   null and missing arguments become an object without members. Any other text stays as it is.
// - kText: an object or array becomes its JSON text; null and missing arguments become "{}". A text
//   stays as it is.
// A second call changes nothing. `messages` that are no array of objects stay as they are.
void ShapeArguments(ArgumentsForm form, Json* messages);

}  // namespace minisgl::text
