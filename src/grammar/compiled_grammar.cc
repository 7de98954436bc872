#include <algorithm>
#include <mutex>
#include <utility>

#include "grammar/expression_search.h"
#include "grammar/machine.h"
#include "grammar/rules.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl {

using grammar::FindLiveness;
using grammar::Liveness;

namespace {

constexpr size_t kCopyBytesMax = size_t{100} << 20;
// About 0.3 ms. The first masks of most schemas need that much.
constexpr uint64_t kPreparedWork = 6000;

}  // namespace

CompiledGrammar::~CompiledGrammar() = default;

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::Build(
    GrammarBuilder builder, Symbol start, std::vector<std::string> warnings) {
  MINISGL_RETURN_IF_ERROR(builder.status());
  GrammarBuilder::Impl& parts = *builder.impl_;
  std::unique_ptr<grammar::ExpressionTable> table = std::move(parts.expressions.impl_);
  std::vector<grammar::Id> terminals;
  std::vector<bool> dead, nullable;
  const uint64_t searched_before = table->num_searched;
  for (const ExpressionId terminal : parts.terminals) {
    const auto id = static_cast<grammar::Id>(terminal);
    // Many terminals that each take much would take long together.
    const uint64_t searched = table->num_searched - searched_before;
    const size_t limit = parts.limits.emptiness_work_max;
    const size_t work_max = limit - static_cast<size_t>(std::min<uint64_t>(searched, limit));
    const Liveness liveness = FindLiveness(table.get(), id, work_max);
    if (liveness == Liveness::kUndecided) {
      const auto place = parts.place_of.find(static_cast<uint32_t>(terminals.size()));
      return BadInput(
          "{}the conditions of a text are too complex: more than {} states of their intersection",
          place == parts.place_of.end() ? "" : place->second + ": ", limit);
    }
    terminals.push_back(id);
    dead.push_back(liveness == Liveness::kDead);
    nullable.push_back(table->nodes[id].nullable);
  }
  auto rules = grammar::Rules::Make(parts, start.value, dead, nullable);
  if (!rules.ok()) return rules.status();
  table->ForgetWorkLimit();
  parts.limits.expressions.work_max = UINT64_MAX;
  parts.limits.expressions.out_of_work = nullptr;
  std::shared_ptr<CompiledGrammar> compiled(new CompiledGrammar());
  compiled->warnings_ = std::move(warnings);
  compiled->machine_ = std::make_unique<grammar::Machine>(std::move(table), std::move(terminals),
                                                          std::move(rules).value(), parts.limits);
  {
    // Drop the tables that only the build needed, unless a copy would take too much memory beside
    // them.
    const std::lock_guard lock(compiled->machine_->mutex);
    if (compiled->machine_->memory_bytes() <= kCopyBytesMax) compiled->machine_->DropCaches();
    compiled->machine_->Prepare(kPreparedWork);
    compiled->machine_->ReportMemory();
  }
  return std::shared_ptr<const CompiledGrammar>(std::move(compiled));
}

size_t CompiledGrammar::memory_bytes() const {
  const std::lock_guard lock(machine_->mutex);
  return machine_->memory_bytes();
}

}  // namespace minisgl
