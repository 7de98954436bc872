// Rows whose texts become vectors, labels or scores of documents: what such a row must have, and
// the text that the model gets of a document.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "minisgl/base/json.h"
#include "minisgl/text/rerank_template.h"

namespace minisgl::batch {

// The URL that a line of a Batch file must name, or the other one if that is not null, and the
// format of such a line.
struct TextsUrl {
  RowFormat format = RowFormat::kBatchEmbed;
  const char* url = nullptr;
  const char* other = nullptr;
};
// `url`: what the line names; null: nothing.
TextsUrl TextsUrlOf(RowPurpose purpose, const Json* url);

// "; minisgl embed makes vectors": what an error adds of a URL that is another command's; or "".
const char* CommandFor(const Json& url);

// Checks the row when all of its members are taken. `seen`: their canonical names.
std::optional<RowError> CheckTexts(Row* row, RowPurpose purpose,
                                   std::span<const std::string_view> seen);

// What the run has for rows that do not say it.
struct RankDefaults {
  std::optional<std::string> query;
  std::string instruction;
};

// Whether the row, or the run, has a query, and one that is not too long to be put before each
// document.
std::optional<RowError> CheckRanking(const RankDefaults& defaults, const Row& row);
// kInvalid: the row, or the run, has an instruction, for a model that takes none.
std::optional<RowError> CheckNoInstruction(const RankDefaults& defaults, const Row& row);
// The queries of the row, one for all documents or one for each. REQUIRES CheckRanking.
std::vector<std::string> QueriesOf(const RankDefaults& defaults, const Row& row);
// The text that stands within `form` for document i of the row. REQUIRES CheckRanking.
std::string RankedTextOf(const RerankTemplate& form, const RankDefaults& defaults, const Row& row,
                         size_t i);

}  // namespace minisgl::batch
