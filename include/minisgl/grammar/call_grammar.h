// Calls of tools as what an answer must be: by the schema of each tool's arguments, in the notation
// of one family of models.
//
// The marks of a notation may be control tokens: their spelling then has a byte before it that no
// text has, as in the vocabulary that the answer is matched with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace minisgl {

struct GrammarText;  // grammar.h

// One function that may be called.
struct CallFunction {
  std::string name;
  // JSON text of the schema of its arguments, which are an object; "": any arguments.
  std::string parameters;
  bool operator==(const CallFunction&) const = default;
};

// How arguments are written.
enum class ArgumentNotation : uint8_t {
  kJson,      // the JSON text of the object
  kElements,  // each argument between marks: a string as bare text, anything else as JSON text
  kMembers,   // each argument as its name and JSON text
  // As kMembers, but strings stand between two `text_end` and have no escapes, and names of members
  // no quotes, also in objects within.
  kQuotedMembers,
};

// Calls are written as
//   section_begin CALL (separator CALL)... section_end
// and each CALL as
//   call_begin NAME [:NUMBER] name_end ARGUMENTS call_end
struct CallNotation {
  std::string section_begin, section_end, separator;
  std::string call_begin, name_end, call_end;
  bool quotes_name = false;  // the name is within a JSON string
  bool is_numbered = false;  // a colon and a number stand behind the name
  ArgumentNotation arguments = ArgumentNotation::kJson;
  // kElements: each argument is written as key_begin KEY key_end VALUE value_end, in the order of
  // the schema's properties; a string with string_key_end in place of key_end.
  std::string key_begin, key_end, string_key_end, value_end;
  // What ends bare text if it stands in it: the part of value_end that readers look for.
  std::string text_end;
  // kMembers and kQuotedMembers: KEY key_end VALUE, with key_separator between two.
  std::string key_separator;
  // Text beside calls has none of these.
  std::vector<std::string> marks;
  // A text beside calls has no line that begins with one of these bytes, white space aside.
  std::string not_first;
  // A text beside calls has no beginning of a JSON object with members.
  bool excludes_objects = false;
  bool stands_alone = false;  // no text stands before calls
  // A call stands in the header of a message (ThoughtForm::Channels), not in its text; there is
  // one.
  bool in_header = false;
  bool operator==(const CallNotation&) const = default;
};

struct CallGrammar {
  CallNotation notation;
  std::vector<CallFunction> functions;
  bool only_one = false;     // call
  bool may_be_text = false;  // a text without calls is allowed, too, and one before calls
  // With may_be_text: what a text without calls must be, and no text stands before calls; null: any
  // text.
  std::shared_ptr<const GrammarText> text;
};

}  // namespace minisgl
