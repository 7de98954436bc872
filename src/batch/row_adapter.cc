// The adapter of a row: the one that it names, as `adapter` or as `model`, or the run's.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "batch/row_prompt.h"
#include "load/adapter_choice.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/adapter_names.h"

namespace minisgl::batch {
namespace {

RowError UnknownAdapter(const std::string& name, const AdapterNames* names, const char* field) {
  if (names == nullptr) {
    return InvalidRow(fmt::format("there is no adapter \"{}\": the run has none (--adapter "
                                  "NAME=DIR)",
                                  Visible(name)),
                      field);
  }
  return InvalidRow(
      fmt::format("there is no adapter \"{}\"; there are {}, and {} for the model without one",
                  Visible(name), names->Text(), kNoAdapterName),
      field);
}

// The name that a row gives, or the run's; "": none.
std::string NameOf(const Row& row, const AdapterNames& names) {
  if (row.adapter) return *row.adapter == kNoAdapterName ? "" : *row.adapter;
  if (row.model && names.Find(*row.model) != nullptr) return *row.model;
  return names.default_name;
}

// True if the row's `model` is one that has no adapter. With adapters, a name of neither is an
// error: the row asks for another model.
bool IsOfBase(const Row& row, const AdapterNames& names) {
  const auto& own = names.base_names;
  return !row.model || row.model->empty() || *row.model == kNoAdapterName ||
         names.Find(*row.model) != nullptr ||
         std::find(own.begin(), own.end(), *row.model) != own.end();
}

}  // namespace

std::optional<RowError> PromptBuilder::SetAdapter(const Row& row, Prompt* prompt) const {
  const AdapterNames* const names = text_->adapters.get();
  if (names == nullptr) {
    if (!row.adapter || *row.adapter == kNoAdapterName) return std::nullopt;
    return UnknownAdapter(*row.adapter, names, "adapter");
  }
  if (!row.adapter && !IsOfBase(row, *names)) return UnknownAdapter(*row.model, names, "model");
  const std::string name = NameOf(row, *names);
  if (name.empty()) return std::nullopt;
  const NamedAdapter* const adapter = names->Find(name);
  if (adapter == nullptr) return UnknownAdapter(name, names, "adapter");
  load::SetAdapter(*adapter, prompt);
  return std::nullopt;
}

}  // namespace minisgl::batch
