// The types of a tool's parameters, by which values that are written as bare text are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "minisgl/base/json.h"

namespace minisgl::text {

class ToolTypes {
 public:
  explicit ToolTypes(const Json& tools);

  // Returns the JSON text of a value that is written as `text`. `unknown`: how it is read if the
  // schema has no type for it, as the readers do that the models were published with.
  enum class Unknown : uint8_t { kString, kJson };
  std::string ValueOf(const std::string& tool, const std::string& parameter, std::string_view text,
                      Unknown unknown) const;

 private:
  using Types = uint8_t;  // a bit for each type that the schema allows; 0: it says nothing
  std::map<std::string, std::map<std::string, Types, std::less<>>, std::less<>> tools_;
};

}  // namespace minisgl::text
