// Which row first had an id, in about 25 bytes a row: ids themselves are not kept.
//
// An entry is 80 bits of the SHA-256 of the id and 48 of the row's number: among a million rows the
// chance that two ids are taken for one is 4e-13. Extendible hashing: pages of one size split one
// at a time as they fill, so that growing copies no table and leaves no holes in the heap.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "minisgl/base/json.h"

namespace minisgl::batch {

class IdTable {
 public:
  IdTable();

  // The number noted with `id` before; nothing where there is none, and `number` is noted then. Ids
  // of different types never match: 1 is not "1". Null is no id. REQUIRES 0 <= number < 2^48.
  std::optional<int64_t> Note(const Json& id, int64_t number);
  std::optional<int64_t> Find(const Json& id) const;

 private:
  struct Entry {
    uint64_t hash;      // its high bits choose the page
    uint64_t low_half;  // 16 more bits of the hash, then the number
  };
  // Somewhat less than 1 KiB with the heap's own words.
  static constexpr int kEntriesMax = 61;
  struct Page {
    int depth = 0;  // bits of the hash that all entries share
    int num_entries = 0;
    Entry entries[kEntriesMax];
  };

  static Entry EntryOf(const Json& id, int64_t number);
  Page* PageOf(uint64_t hash) const { return pages_[directory_[Slot(hash)]].get(); }
  size_t Slot(uint64_t hash) const { return depth_ == 0 ? 0 : hash >> (64 - depth_); }
  static std::optional<int64_t> FindIn(const Page& page, const Entry& entry);
  void Split(uint64_t hash);

  int depth_ = 0;                    // the directory has 2^depth_ slots
  std::vector<uint32_t> directory_;  // the page of each beginning of a hash
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace minisgl::batch
