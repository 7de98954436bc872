// Rows that are read and not yet asked, and which of them is asked next: rows that share a prefix
// follow each other, so that it is computed once also where the cache holds few prefixes.
//
// They are asked in the order of their token ids, going on from the row asked last and round at the
// end: the row after it is the one that shares the longest prefix with it. A smaller priority goes
// first. No row waits for ever: once `passed_max` others were asked since it came, the oldest is
// next. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <set>
#include <span>
#include <vector>

#include "batch/row.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl::batch {

struct ReadyRow {
  Row row;
  std::vector<Prompt> prompts;  // one for each answer; not empty
  size_t bytes = 0;             // of the row as read
};

class RowWindow {
 public:
  explicit RowWindow(int64_t passed_max) : passed_max_(passed_max) {}

  void Add(ReadyRow row);
  // REQUIRES !empty().
  ReadyRow TakeNext();
  ReadyRow TakeOldest();

  bool empty() const { return by_age_.empty(); }
  int64_t num_answers() const { return num_answers_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    ReadyRow ready;
    int64_t number;           // of its coming
    int64_t taken_at_coming;  // how many had been asked
  };
  // What is compared: of an entry, or of the row asked last.
  struct Key {
    int32_t priority;
    std::span<const TokenId> ids;
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

  const int64_t passed_max_;
  std::list<Entry> by_age_;  // the oldest first
  std::set<Place, Less> by_prefix_;
  std::vector<TokenId> last_ids_;  // of the row asked last
  int64_t last_number_ = -1;
  int64_t num_added_ = 0, num_taken_ = 0;
  int64_t num_answers_ = 0;
  size_t bytes_ = 0;
};

}  // namespace minisgl::batch
