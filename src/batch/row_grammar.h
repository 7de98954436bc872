// Fields of a row that say what its answer must be: response_format, structured_outputs and
// guided_*. They are the `take` functions of the table of fields (row_fields.h).
//
// A row may have one of them. What they hold is checked for its shape only; the runtime compiles
// it, and a row whose grammar cannot be compiled has the error invalid_grammar.
#pragma once

#include "batch/row_fields.h"

namespace minisgl::batch {

bool TakeResponseFormat(Json& value, RowDraft* draft);
bool TakeStructuredOutputs(Json& value, RowDraft* draft);
bool TakeGuidedJson(Json& value, RowDraft* draft);
bool TakeGuidedRegex(Json& value, RowDraft* draft);
bool TakeGuidedChoice(Json& value, RowDraft* draft);
bool TakeGuidedGrammar(Json& value, RowDraft* draft);

// Moves the grammar of `draft` to its row. `text`: the text of the row, from which a schema is
// copied byte for byte, so that its numbers keep all their digits.
void FinishGrammar(std::string_view text, RowDraft* draft);

}  // namespace minisgl::batch
