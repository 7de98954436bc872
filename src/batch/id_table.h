// Table from an id to the first row that had it, in about 25 bytes a row: the ids themselves are
// not stored.
//
// An entry holds 80 bits of the SHA-256 of the id and 48 bits of the row number. Among a million
// rows, the probability that two different ids are taken for the same is 4e-13.
//
// Extendible hashing: fixed-size pages are split one at a time when full, so that growing neither
// copies the whole table nor leaves holes in the heap.
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

  // Returns the number stored with `id`; if there is none, stores `number` and returns nullopt. Ids
  // of different types never match: 1 is not "1". Null is not an id. REQUIRES 0 <= number < 2^48.
  std::optional<int64_t> Note(const Json& id, int64_t number);
  std::optional<int64_t> Find(const Json& id) const;

 private:
  struct Entry {
    uint64_t hash;      // its high bits select the page
    uint64_t low_half;  // 16 more bits of the hash, then the number
  };
  // A page is slightly smaller than 1 KiB, including the allocator's overhead.
  static constexpr int kEntriesMax = 61;
  struct Page {
    int depth = 0;  // number of leading hash bits that all entries share
    int num_entries = 0;
    Entry entries[kEntriesMax];
  };

  static Entry EntryOf(const Json& id, int64_t number);
  Page* PageOf(uint64_t hash) const { return pages_[directory_[Slot(hash)]].get(); }
  size_t Slot(uint64_t hash) const { return depth_ == 0 ? 0 : hash >> (64 - depth_); }
  static std::optional<int64_t> FindIn(const Page& page, const Entry& entry);
  void Split(uint64_t hash);

  int depth_ = 0;                    // the directory has 2^depth_ slots
  std::vector<uint32_t> directory_;  // page number for each hash prefix
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace minisgl::batch
