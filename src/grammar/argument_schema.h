// The parts of a schema of arguments that are not written as one JSON text: which members an object
// has, what a string without quotes may be, and values that are JSON after all.
//
// Work is bounded, whatever the schema. Keywords that are not enforced there are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::grammar {

inline constexpr size_t kTypesMax = 7;  // that JSON schemas know

class ArgumentSchema {
 public:
  struct Member {
    std::string key;
    const Json* schema = nullptr;
    bool is_needed = false;
  };
  // What a member of an object is written as.
  struct Written {
    Symbol symbol;
    bool is_needed = false;
  };

  // All outlive it. `root`: the schema of all arguments. `excluded`: stands in no string of a JSON
  // text.
  ArgumentSchema(const Json& root, GrammarBuilder* builder, std::vector<std::string>* warnings,
                 std::string_view excluded = "")
      : root_(root), builder_(*builder), warnings_(*warnings), excluded_(excluded) {}

  // The members of objects that `schema` allows, in its order. Others are not written.
  Result<std::vector<Member>> MembersOf(const Json& schema) const;
  // `members` in their order, those that are not needed or not, `separator` between two.
  Symbol Join(const std::vector<Written>& members, const std::string& separator);

  // What the references to definitions in `schema` lead to. kBadInput for other references.
  Result<const Json*> Resolve(const Json& schema) const;
  // A value as JSON text.
  Result<Symbol> JsonValue(const Json& schema);
  // The texts of a string, without those that hold `end`.
  Result<ExpressionId> StringText(const Json& schema, const std::string& end);
  // Valid UTF-8 without `end`.
  ExpressionId AnyText(const std::string& end, uint32_t least = 0,
                       uint32_t most = ExpressionSet::kUnbounded);

  // kBadInput if `schema` has a keyword that constrains and is none of `known`.
  static Status CheckKeywords(const Json& schema, std::initializer_list<std::string_view> known,
                              std::string_view of);
  // kBadInput once too many parts of the schema were read, because definitions may refer to
  // themselves.
  Status CountPart();

  // A count in `schema`, or `absent`.
  static Result<uint32_t> Count(const Json& schema, const char* name, uint32_t absent);

 private:
  const Json& root_;
  GrammarBuilder& builder_;
  std::vector<std::string>& warnings_;
  const std::string_view excluded_;
  size_t num_parts_ = 0;
  size_t num_bytes_ = 0;  // of all JSON schemas compiled, definitions each time
};

}  // namespace minisgl::grammar
