// The field `messages` of a row: each message is checked in place, and its pictures are taken out.
#pragma once

#include "batch/row_fields.h"
#include "minisgl/base/json.h"

namespace minisgl::batch {

// Takes `value`, an array of messages. Contents keep strings, null, and parts {"type": "text"} and
// {"type": "image"}, the latter in the order of draft->row.images. As RowField::take.
bool TakeMessages(Json& value, RowDraft* draft);

}  // namespace minisgl::batch
