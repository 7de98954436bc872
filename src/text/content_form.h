// Finds out from a template's syntax tree in which form it takes the content of messages.
#pragma once

#include "minisgl/text/chat_template.h"
#include "text/jinja/ast.h"

namespace minisgl::text {

// Returns kParts if the template reads the text of parts of a content, as
//   {% for part in message['content'] %}{{ part['text'] }}
// does, at a place that string contents reach, too; otherwise kString.
//
// A template that asks first whether the content is a string, and iterates over it only if it is
// not, takes both forms: kString. Such a template renders a string with every role, while its
// branch for lists may know some roles only, trim each part, or read the first part alone.
//
// In time linear in the size of the tree.
ContentForm FindContentForm(const jinja::Block& block);

}  // namespace minisgl::text
