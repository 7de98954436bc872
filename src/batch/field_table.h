// The table of all fields that rows may hold, and that other programs' requests may, with what
// becomes of each: what `minisgl help rows` prints and minisgl-rows(7) has.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row_fields.h"

namespace minisgl::batch {

// The fields of one kind of request of another program.
struct RequestFields {
  const char* program;
  char letter;             // for the table
  uint8_t places;          // the places of a row that each of them may stand in
  std::string_view names;  // separated by white space
};
std::span<const RequestFields> KnownRequests();

// A row of the table.
struct FieldLine {
  std::string_view name;
  std::string letters;  // of the programs that have it, such as "OVS"; "" if none does
  std::string outcome;  // "taken", "as max_tokens", "refused: must be ..."
};
// Sorted by name, each once.
std::vector<FieldLine> FieldLines();

// The table as text, of lines of at most `columns` characters, except for longer words.
std::string FieldTable(size_t columns);

}  // namespace minisgl::batch
