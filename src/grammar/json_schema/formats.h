// The formats of the standard, as regular expressions over the whole string.
//
// None allows what its definition forbids. Some allow less: idn-hostname and the domains of
// idn-email are ASCII, hostnames have no `--` as third and fourth letters of a label (which needs
// the tables of IDNA), a leap second is written in UTC, regex has limited nesting and no
// backreferences.
#pragma once

#include <string>
#include <string_view>

namespace minisgl::grammar {

struct StandardFormat {
  std::string_view name;
  std::string expression;
  std::string condition;  // a second expression that must match, or empty
};

// Null if `name` is not in the standard.
const StandardFormat* FindFormat(std::string_view name);

}  // namespace minisgl::grammar
