// Extracts what must come from a row's text instead of its parsed values: the bytes of some
// values, and the id of a row that is not valid JSON.
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/json.h"

namespace minisgl::batch {

// Returns the bytes of a value of the row, on one line: line breaks between its values become
// spaces. `path`: the names of members that lead to it, with dots between them ("body.metadata").
// REQUIRES that `text` is valid JSON and has the value.
std::string RawValue(std::string_view text, std::string_view path);

// Members that were not read are null.
struct RowBeginning {
  Json id, custom_id, session;
  Json url;
  // True if there is a body, a url or a method: it is a row of an OpenAI Batch file.
  bool has_frame = false;
};
// Reads any text as far as it is the beginning of a JSON object.
RowBeginning ReadRowBeginning(std::string_view text);

}  // namespace minisgl::batch
