// Searches over derivatives: can an expression match at all, and what is its shortest text.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "grammar/expression_search.h"
#include "grammar/expression_table.h"

namespace minisgl {

namespace grammar {

namespace {

constexpr uint8_t kUnknown = 0;
constexpr uint8_t kLive = 1;
constexpr uint8_t kDead = 2;

// Searches that wait to go on; past that the oldest one is given up.
constexpr size_t kStoppedMax = 16;

// The cost of looking at an expression. A derivative costs 1, and 1 for each operand.
constexpr size_t kVisitCost = 32;

// True if infinitely many texts match `id`; false if that does not follow from its form.
bool IsInfinite(const ExpressionTable& set, Id id) {
  if (set.nodes[id].has_boolean) return false;
  if (set.Is(id, NodeKind::kOr)) id = set.Operands(set.nodes[id]).back();
  ExpressionTable::RepeatHead head{};
  for (; set.Is(id, NodeKind::kConcat); id = set.Operands(set.nodes[id])[1]) {
    if (set.SplitRepeat(id, &head) && head.max == ExpressionTable::kUnbounded) return true;
  }
  return set.SplitRepeat(id, &head) && head.max == ExpressionTable::kUnbounded;
}

// A & ~B matches something if A matches infinitely many texts and B finitely many: a name that is
// none of a few.
bool IsLiveAnd(const ExpressionTable& set, Id id) {
  if (!set.Is(id, NodeKind::kAnd)) return false;
  int num_infinite = 0;
  for (const Id part : set.Operands(set.nodes[id])) {
    const bool is_finite_not =
        set.Is(part, NodeKind::kNot) && set.nodes[set.Operands(set.nodes[part])[0]].finite;
    if (is_finite_not) continue;
    if (++num_infinite > 1 || !IsInfinite(set, part)) return false;
  }
  return num_infinite == 1;
}

// True if each part of a concatenation matches something; false if that does not follow from its
// form.
bool IsLiveConcat(const ExpressionTable& set, Id id) {
  // A state of an automaton that leads to no end is Nothing.
  const auto is_live = [&](Id part) {
    return !set.nodes[part].has_boolean || set.Is(part, NodeKind::kAutomaton) ||
           IsLiveAnd(set, part);
  };
  for (; set.Is(id, NodeKind::kConcat); id = set.Operands(set.nodes[id])[1]) {
    if (!is_live(set.Operands(set.nodes[id])[0])) return false;
    if (!set.nodes[set.Operands(set.nodes[id])[1]].has_boolean) return true;
  }
  return is_live(id);
}

bool IsLiveByForm(const ExpressionTable& set, Id id) {
  if (!set.Is(id, NodeKind::kOr)) return IsLiveConcat(set, id);
  const std::span<const uint32_t> alternatives = set.Operands(set.nodes[id]);
  return std::any_of(alternatives.begin(), alternatives.end(),
                     [&](Id alternative) { return IsLiveConcat(set, alternative); });
}

// The liveness of `id` as far as it is known without a search.
uint8_t KnownLiveness(const ExpressionTable& set, Id id) {
  if (id == kNothingId) return kDead;
  // Constructors leave no part that matches nothing, except under And and Not.
  if (set.nodes[id].nullable || !set.nodes[id].has_boolean) return kLive;
  const uint8_t known = id < set.liveness.size() ? set.liveness[id] : kUnknown;
  return known == kUnknown && IsLiveByForm(set, id) ? kLive : known;
}

void Remember(ExpressionTable* set, Id id, uint8_t liveness) {
  if (set->liveness.size() <= id) set->liveness.resize(set->nodes.size(), kUnknown);
  set->liveness[id] = liveness;
}

}  // namespace

// The expressions that a search has seen but not followed to the end. It takes in turn
//   the one that may be nearest to the end of a text, most often the right one,
//   the oldest: the nearest may stay behind a condition that its bound does not show,
//   and the newest: the oldest alone would look at every short text before a long one.
class Frontier {
 public:
  enum Order : uint8_t { kNearest, kOldest, kNewest, kNumOrders };
  struct Visit {
    Id id;
    size_t parent;            // index
    uint32_t next_class = 0;  // classes of bytes below it were followed
  };

  void Add(Id id, size_t parent, uint16_t distance) {
    const auto index = static_cast<uint32_t>(visits_.size());
    visits_.push_back({id, parent});
    newest_.push_back(index);
    nearest_.push_back({distance, index});
    std::push_heap(nearest_.begin(), nearest_.end(), IsFarther);
  }

  // The next one to look at; nothing if there is none. It stays here until all classes are
  // followed.
  std::optional<size_t> Take(uint32_t num_classes, Order order) {
    const auto is_done = [&](size_t index) { return visits_[index].next_class >= num_classes; };
    while (oldest_ < visits_.size() && is_done(oldest_)) ++oldest_;
    if (oldest_ == visits_.size()) return std::nullopt;
    if (order == kOldest) return oldest_;
    if (order == kNewest) {
      while (is_done(newest_.back())) newest_.pop_back();
      return newest_.back();
    }
    while (is_done(nearest_.front().index)) {
      std::pop_heap(nearest_.begin(), nearest_.end(), IsFarther);
      nearest_.pop_back();
    }
    return nearest_.front().index;
  }

  Visit& at(size_t index) { return visits_[index]; }
  const std::vector<Visit>& visits() const { return visits_; }

 private:
  struct Entry {
    uint16_t distance;
    uint32_t index;
  };
  // Between two entries at the same distance the newer one comes first.
  static bool IsFarther(const Entry& a, const Entry& b) {
    return a.distance != b.distance ? a.distance > b.distance : a.index < b.index;
  }

  std::vector<Visit> visits_;
  std::vector<Entry> nearest_;  // a heap
  std::vector<uint32_t> newest_;
  size_t oldest_ = 0;
};

// A search that can be stopped and go on later.
class LivenessSearch {
 public:
  LivenessSearch(const ExpressionTable& set, Id expression) : expression_(expression) {
    frontier_.Add(expression, 0, set.nodes[expression].distance);
    seen_.Insert(expression, 0);
  }

  Id expression() const { return expression_; }
  size_t num_searched() const { return work_ / kVisitCost; }

  Liveness Run(ExpressionTable* set, size_t work_max) {
    for (;; ++turn_) {
      if (set->work >= set->work_stop) return Liveness::kStopped;
      const auto order = static_cast<Frontier::Order>(turn_ % Frontier::kNumOrders);
      const std::optional<size_t> taken = frontier_.Take(set->num_classes, order);
      if (!taken) break;
      const Liveness found = LookAt(set, *taken, order, work_max);
      if (found != Liveness::kDead) return found;
    }
    for (const Frontier::Visit& visit : frontier_.visits()) Remember(set, visit.id, kDead);
    return Liveness::kDead;
  }

 private:
  // Follows the classes of one visit that are left. kDead: nothing was found.
  Liveness LookAt(ExpressionTable* set, size_t index, Frontier::Order order, size_t work_max) {
    const Id id = frontier_.at(index).id;
    const uint16_t distance = set->nodes[id].distance;
    const size_t derivative_cost = 1 + set->nodes[id].count;
    work_ += kVisitCost;
    MergedClasses merged;
    set->work += 1 + set->MergeClasses({&id, 1}, &merged);
    const ByteSet first_bytes = set->FirstBytes(id);
    for (bool nearer = false; !nearer && frontier_.at(index).next_class < set->num_classes;) {
      const uint32_t byte_class = frontier_.at(index).next_class++;
      if (merged.of[byte_class] != byte_class) continue;
      if (!first_bytes.Contains(set->byte_of_class[byte_class])) continue;
      work_ += derivative_cost;
      if (work_ / kVisitCost >= work_max) return Liveness::kUndecided;
      const Id next = set->Derive(id, byte_class);
      if (!set->status.ok()) return Liveness::kUndecided;
      const uint8_t liveness = KnownLiveness(*set, next);
      if (liveness == kLive) {
        RememberWay(set, index);
        return Liveness::kLive;
      }
      if (liveness == kDead || seen_.Find(next) != nullptr) continue;
      seen_.Insert(next, 0);
      frontier_.Add(next, index, set->nodes[next].distance);
      // The way to the end of a text most often, and then other classes are not needed.
      nearer = order == Frontier::kNearest && set->nodes[next].distance < distance;
    }
    return Liveness::kDead;
  }

  void RememberWay(ExpressionTable* set, size_t index) {
    for (size_t at = index;; at = frontier_.at(at).parent) {
      Remember(set, frontier_.at(at).id, kLive);
      if (at == 0) break;
    }
  }

  Id expression_;
  Frontier frontier_;
  KeyMap seen_;
  size_t work_ = 0;
  int turn_ = 0;
};

Liveness FindLiveness(ExpressionTable* set, Id expression, size_t work_max) {
  const uint8_t known = KnownLiveness(*set, expression);
  if (known != kUnknown) return known == kLive ? Liveness::kLive : Liveness::kDead;
  std::vector<std::shared_ptr<LivenessSearch>>& stopped = set->stopped_searches;
  const auto place = std::find_if(stopped.begin(), stopped.end(),
                                  [&](const auto& one) { return one->expression() == expression; });
  std::shared_ptr<LivenessSearch> search;
  if (place != stopped.end()) {
    search = std::move(*place);
    stopped.erase(place);
  } else {
    search = std::make_shared<LivenessSearch>(*set, expression);
  }
  const size_t before = search->num_searched();
  const Liveness found = search->Run(set, work_max);
  set->num_searched += search->num_searched() - before;
  if (found == Liveness::kStopped) {
    if (stopped.size() == kStoppedMax) stopped.erase(stopped.begin());
    stopped.push_back(std::move(search));
  }
  return found;
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
    grammar::MergedClasses merged;
    impl_->MergeClasses({&visits[index].id, 1}, &merged);
    for (uint32_t byte_class = 0; byte_class < impl_->num_classes; ++byte_class) {
      if (merged.of[byte_class] != byte_class) continue;
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
