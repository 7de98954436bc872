// Searches over derivatives: can an expression match at all, and what is its shortest text.
#include <algorithm>
#include <vector>

#include "grammar/expression_search.h"
#include "grammar/expression_table.h"

namespace minisgl {

namespace grammar {

namespace {

constexpr uint8_t kUnknown = 0;
constexpr uint8_t kLive = 1;
constexpr uint8_t kDead = 2;

// Of looking at an expression; a derivative costs 1, and 1 for each operand.
constexpr size_t kVisitCost = 32;

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

// The expressions that a search has seen and not looked at to the end. They are looked at from the
// one that may be nearest to the end of a text, and from the oldest, in turn: the oldest alone would
// look at every short text before a long one, and the nearest alone may stay behind a condition that
// its bound does not show.
class Frontier {
 public:
  struct Visit {
    Id id;
    size_t parent;            // index
    uint32_t next_class = 0;  // classes of bytes below it were followed
  };

  void Add(Id id, size_t parent, uint16_t shortest) {
    const auto index = static_cast<uint32_t>(visits_.size());
    visits_.push_back({id, parent});
    nearest_.push_back({shortest, index});
    std::push_heap(nearest_.begin(), nearest_.end(), IsFarther);
  }

  // The next one to look at; null if there is none. It stays here until all classes are followed.
  Visit* Take(uint32_t num_classes, bool oldest) {
    const auto is_done = [&](size_t index) { return visits_[index].next_class >= num_classes; };
    while (oldest_ < visits_.size() && is_done(oldest_)) ++oldest_;
    while (!nearest_.empty() && is_done(nearest_.front().index)) {
      std::pop_heap(nearest_.begin(), nearest_.end(), IsFarther);
      nearest_.pop_back();
    }
    if (nearest_.empty()) return nullptr;
    return &visits_[oldest ? oldest_ : nearest_.front().index];
  }

  size_t IndexOf(const Visit* visit) const { return static_cast<size_t>(visit - visits_.data()); }
  Visit& at(size_t index) { return visits_[index]; }
  const std::vector<Visit>& visits() const { return visits_; }

 private:
  struct Entry {
    uint16_t shortest;
    uint32_t index;
  };
  // Of two that are as near, the newer one comes first.
  static bool IsFarther(const Entry& a, const Entry& b) {
    return a.shortest != b.shortest ? a.shortest > b.shortest : a.index < b.index;
  }

  std::vector<Visit> visits_;
  std::vector<Entry> nearest_;  // a heap
  size_t oldest_ = 0;
};

Liveness FindLiveness(ExpressionTable* set, Id expression, size_t work_max) {
  const uint8_t known = KnownLiveness(*set, expression);
  if (known != kUnknown) return known == kLive ? Liveness::kLive : Liveness::kDead;
  Frontier frontier;
  frontier.Add(expression, 0, set->nodes[expression].shortest);
  KeyMap seen;
  seen.Insert(expression, 0);
  size_t work = 0;
  for (bool oldest = false;; oldest = !oldest) {
    const Frontier::Visit* visit = frontier.Take(set->num_classes, oldest);
    if (visit == nullptr) break;
    const size_t index = frontier.IndexOf(visit);
    const Id id = visit->id;
    const uint16_t shortest = set->nodes[id].shortest;
    const size_t derivative_cost = 1 + set->nodes[id].count;
    work += kVisitCost;
    for (bool nearer = false; !nearer && frontier.at(index).next_class < set->num_classes;) {
      work += derivative_cost;
      if (work / kVisitCost >= work_max) return Liveness::kUndecided;
      const Id next = set->Derive(id, frontier.at(index).next_class++);
      if (!set->status.ok()) return Liveness::kUndecided;
      const uint8_t liveness = KnownLiveness(*set, next);
      if (liveness == kLive) {
        for (size_t at = index;; at = frontier.at(at).parent) {
          Remember(set, frontier.at(at).id, kLive);
          if (at == 0) break;
        }
        return Liveness::kLive;
      }
      if (liveness == kDead || seen.Find(next) != nullptr) continue;
      seen.Insert(next, 0);
      frontier.Add(next, index, set->nodes[next].shortest);
      // The way to the end of a text most often, and then other classes are not needed.
      nearer = !oldest && set->nodes[next].shortest < shortest;
    }
  }
  for (const Frontier::Visit& visit : frontier.visits()) Remember(set, visit.id, kDead);
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
