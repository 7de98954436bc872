// A user's template that makes a text from the columns of a row: `Classify: {{ text }}`.
//
// It has the language and the bounds of chat templates (chat_template.h), except that a missing
// variable is an error instead of an empty text, also in a filter other than `default`. Tests may
// still ask for one ({% if note %}, {{ note is defined }}). Immutable; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl {

class TextTemplate {
 public:
  // Errors name `name` (an option or a file) and the template's line.
  static Result<std::unique_ptr<TextTemplate>> Parse(std::string_view source,
                                                     const std::string& name);
  virtual ~TextTemplate() = default;

  // Each member of the object `columns` is a variable. `row` is the whole object:
  // {{ row["Product name"] }}. If a column has that name, {{ row }} is its value, and members
  // that this lacks are those of the whole object. kBadInput with the template's line if a variable
  // is missing, if the template calls raise_exception or exceeds a bound.
  virtual Result<std::string> Render(const Json& columns) const = 0;
};

}  // namespace minisgl
