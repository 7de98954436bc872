// Searches over derivatives: can an expression match at all, and what is its shortest text.
#include <algorithm>
#include <deque>

#include "grammar/expression_search.h"
#include "grammar/expression_table.h"

namespace minisgl {

namespace grammar {

namespace {

constexpr uint8_t kUnknown = 0;
constexpr uint8_t kLive = 1;
constexpr uint8_t kDead = 2;

// What is known of `id` without a search.
uint8_t KnownLiveness(const ExpressionTable& set, Id id) {
  if (id == kNothingId) return kDead;
  // Constructors leave no part that matches nothing, except under And and Not.
  if (set.nodes[id].nullable || !set.nodes[id].has_boolean) return kLive;
  return id < set.liveness.size() ? set.liveness[id] : kUnknown;
}

void Remember(ExpressionTable* set, Id id, uint8_t liveness) {
  if (set->liveness.size() <= id) set->liveness.resize(set->nodes.size(), kUnknown);
  set->liveness[id] = liveness;
}

}  // namespace

Liveness FindLiveness(ExpressionTable* set, Id expression, size_t work_max) {
  const uint8_t known = KnownLiveness(*set, expression);
  if (known != kUnknown) return known == kLive ? Liveness::kLive : Liveness::kDead;
  struct Visit {
    Id id;
    size_t parent;  // index in `visits`
  };
  std::vector<Visit> visits = {{expression, 0}};
  std::deque<size_t> open = {0};
  KeyMap seen;
  seen.Insert(expression, 0);
  // Oldest and newest in turn. The oldest alone would look at every short text before a long one;
  // the newest alone may follow a loop up to the end of its count.
  size_t work = 0;
  for (bool newest = false; !open.empty(); newest = !newest) {
    const size_t index = newest ? open.back() : open.front();
    newest ? open.pop_back() : open.pop_front();
    work += 1 + set->num_classes * (1 + set->nodes[visits[index].id].count) / 32;
    if (work >= work_max) return Liveness::kUndecided;
    for (uint32_t byte_class = 0; byte_class < set->num_classes; ++byte_class) {
      const Id next = set->Derive(visits[index].id, byte_class);
      if (!set->status.ok()) return Liveness::kUndecided;
      const uint8_t liveness = KnownLiveness(*set, next);
      if (liveness == kLive) {
        for (size_t at = index;; at = visits[at].parent) {
          Remember(set, visits[at].id, kLive);
          if (at == 0) break;
        }
        return Liveness::kLive;
      }
      if (liveness == kDead || seen.Find(next) != nullptr) continue;
      seen.Insert(next, 0);
      open.push_back(visits.size());
      visits.push_back({next, index});
    }
  }
  for (const Visit& visit : visits) Remember(set, visit.id, kDead);
  return Liveness::kDead;
}

}  // namespace grammar

using grammar::Id;

Result<bool> ExpressionSet::IsEmptyLanguage(ExpressionId expression, size_t work_max) {
  MINISGL_RETURN_IF_ERROR(status());
  const auto liveness = grammar::FindLiveness(impl_.get(), static_cast<Id>(expression), work_max);
  MINISGL_RETURN_IF_ERROR(status());
  if (liveness == grammar::Liveness::kUndecided) {
    return BadInput("the expressions are too complex: more than {} states of an intersection",
                    work_max);
  }
  return liveness == grammar::Liveness::kDead;
}

Result<bool> ExpressionSet::AreDisjoint(ExpressionId a, ExpressionId b, size_t work_max) {
  return IsEmptyLanguage(And({a, b}), work_max);
}

Result<bool> ExpressionSet::IsContained(ExpressionId part, ExpressionId whole, size_t work_max) {
  return IsEmptyLanguage(Difference(part, whole), work_max);
}

Result<std::optional<std::string>> ExpressionSet::ShortestText(ExpressionId expression,
                                                               size_t work_max) {
  MINISGL_RETURN_IF_ERROR(status());
  struct Visit {
    Id id;
    size_t parent;
    uint8_t byte;
  };
  std::vector<Visit> visits = {{static_cast<Id>(expression), 0, 0}};
  grammar::KeyMap seen;
  seen.Insert(static_cast<Id>(expression), 0);
  for (size_t index = 0; index < visits.size(); ++index) {
    if (impl_->nodes[visits[index].id].nullable) {
      std::string text;
      for (size_t at = index; at != 0; at = visits[at].parent) {
        text.push_back(static_cast<char>(visits[at].byte));
      }
      std::reverse(text.begin(), text.end());
      return std::optional<std::string>(text);
    }
    for (uint32_t byte_class = 0; byte_class < impl_->num_classes; ++byte_class) {
      const Id next = impl_->Derive(visits[index].id, byte_class);
      MINISGL_RETURN_IF_ERROR(status());
      if (next == grammar::kNothingId || seen.Find(next) != nullptr) continue;
      if (visits.size() >= work_max) {
        return BadInput("the expressions are too complex: more than {} states", work_max);
      }
      seen.Insert(next, 0);
      visits.push_back({next, index, impl_->byte_of_class[byte_class]});
    }
  }
  return std::optional<std::string>();
}

}  // namespace minisgl
