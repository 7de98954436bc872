// Window of rows that are read but not yet submitted; chooses the next row so that rows with a
// common prefix run one after another. Thus the prefix is computed once even if the cache is small.
//
// Order: rows are sorted by token ids, and by marks where more than ids decides the prefix, so that
// rows with one picture stand together. The next row is the one after the last submitted row,
// wrapping around at the end; it shares the longest prefix with it. A smaller priority value goes
// first. Starvation is bounded: after `passed_max` other rows were submitted since the earliest row
// of the input arrived, that row is next. Used by one thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "batch/row.h"
#include "batch/said_so_far.h"
#include "minisgl/base/ids.h"
#include "minisgl/base/prefix_key.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl::batch {

struct ReadyRow {
  Row row;
  std::shared_ptr<SaidSoFar> said;  // that its prompt is of; null: none
  std::vector<Prompt> prompts;      // one for each answer; not empty
  size_t bytes = 0;                 // of the row as read
  bool goes_on = false;             // with a conversation that is not empty
};

class RowWindow {
 public:
  explicit RowWindow(int64_t passed_max) : passed_max_(passed_max) {}

  void Add(ReadyRow row);
  // REQUIRES !empty().
  ReadyRow TakeNext();
  // The row that stands before the others in the input.
  ReadyRow TakeFirst();
  // The row with this id, if it is here.
  std::optional<ReadyRow> TakeById(const Json& id);

  bool empty() const { return in_order_.empty(); }
  int64_t num_answers() const { return num_answers_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    ReadyRow ready;
    int64_t number;           // order of arrival
    int64_t taken_at_coming;  // rows that had been taken when it arrived
  };
  // Sort key of an entry or of the row taken last.
  struct Key {
    int32_t priority;
    std::span<const TokenId> ids;
    std::span<const KeyMark> marks;
    int64_t number;
  };
  using Place = std::list<Entry>::iterator;
  static Key KeyOf(const Place& place);
  struct Less {
    using is_transparent = void;
    bool operator()(const Key& a, const Key& b) const;
    bool operator()(const Place& a, const Place& b) const { return (*this)(KeyOf(a), KeyOf(b)); }
    bool operator()(const Place& a, const Key& b) const { return (*this)(KeyOf(a), b); }
    bool operator()(const Key& a, const Place& b) const { return (*this)(a, KeyOf(b)); }
  };
  ReadyRow Take(Place place);
  ReadyRow Remove(Place place);

  const int64_t passed_max_;
  std::list<Entry> in_order_;  // of the input
  std::set<Place, Less> by_prefix_;
  std::vector<TokenId> last_ids_;  // of the row taken last, like the next
  std::vector<KeyMark> last_marks_;
  int64_t last_number_ = -1;
  int64_t num_added_ = 0, num_taken_ = 0;
  int64_t num_answers_ = 0;
  size_t bytes_ = 0;
};

}  // namespace minisgl::batch
