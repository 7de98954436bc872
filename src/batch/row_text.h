// What is taken from the text of a row and not from its values: the bytes of its metadata, and of a
// row that is no valid JSON what it said of itself before its fault.
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/json.h"

namespace minisgl::batch {

// UTF-8's byte order mark, which a text may begin with.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The bytes of the member `metadata` of the row, or of its `body`; on one line, as line breaks
// between its values become blanks. REQUIRES that `text` is valid JSON and has the member.
std::string RawMetadata(std::string_view text, bool in_body);

// Null where a member was not read.
struct RowBeginning {
  Json id, custom_id;
  Json url;
  bool has_frame = false;  // a body, an url or a method: it is a row of an OpenAI Batch file
};
// Of any text, as far as it is the beginning of a JSON object.
RowBeginning ReadRowBeginning(std::string_view text);

}  // namespace minisgl::batch
