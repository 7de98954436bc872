#include "batch/id_table.h"

#include "minisgl/base/check.h"
#include "minisgl/base/sha256.h"

namespace minisgl::batch {
namespace {

constexpr int kNumberBits = 48;
constexpr uint64_t kNumberMask = (uint64_t{1} << kNumberBits) - 1;
// Reaching this would need more pages than memory holds, unless the hash were broken.
constexpr int kDepthMax = 40;

}  // namespace

IdTable::IdTable() {
  directory_.push_back(0);
  pages_.push_back(std::make_unique<Page>());
}

IdTable::Entry IdTable::EntryOf(const Json& id, int64_t number) {
  Sha256 hasher;
  hasher.Add(id.Dump());
  const Sha256::Digest digest = hasher.Finish();
  Entry entry{0, static_cast<uint64_t>(number)};
  for (int i = 0; i < 8; ++i) entry.hash = entry.hash << 8 | digest[static_cast<size_t>(i)];
  entry.low_half |= (uint64_t{digest[8]} << 8 | digest[9]) << kNumberBits;
  return entry;
}

std::optional<int64_t> IdTable::FindIn(const Page& page, const Entry& entry) {
  for (int i = 0; i < page.num_entries; ++i) {
    const Entry& other = page.entries[i];
    if (other.hash == entry.hash && ((other.low_half ^ entry.low_half) & ~kNumberMask) == 0) {
      return static_cast<int64_t>(other.low_half & kNumberMask);
    }
  }
  return std::nullopt;
}

std::optional<int64_t> IdTable::Find(const Json& id) const {
  if (id.is_null()) return std::nullopt;
  const Entry entry = EntryOf(id, 0);
  return FindIn(*PageOf(entry.hash), entry);
}

std::optional<int64_t> IdTable::Note(const Json& id, int64_t number) {
  MINISGL_CHECK(number >= 0 && static_cast<uint64_t>(number) <= kNumberMask, "row {}", number);
  if (id.is_null()) return std::nullopt;
  const Entry entry = EntryOf(id, number);
  Page* page = PageOf(entry.hash);
  if (const auto before = FindIn(*page, entry)) return before;
  while (page->num_entries == kEntriesMax) {
    Split(entry.hash);
    page = PageOf(entry.hash);
  }
  page->entries[page->num_entries++] = entry;
  return std::nullopt;
}

// Splits the page of `hash`: moves the entries whose next hash bit is set to a new page.
void IdTable::Split(uint64_t hash) {
  const uint32_t old_number = directory_[Slot(hash)];
  Page* old_page = pages_[old_number].get();
  if (old_page->depth == depth_) {
    MINISGL_CHECK(depth_ < kDepthMax, "an id table of {} pages", pages_.size());
    std::vector<uint32_t> doubled(directory_.size() * 2);
    for (size_t slot = 0; slot < doubled.size(); ++slot) doubled[slot] = directory_[slot / 2];
    directory_ = std::move(doubled);
    ++depth_;
  }
  const uint64_t bit = uint64_t{1} << (63 - old_page->depth);
  auto page = std::make_unique<Page>();
  page->depth = ++old_page->depth;
  int kept = 0;
  for (int i = 0; i < old_page->num_entries; ++i) {
    const Entry entry = old_page->entries[i];
    Page* target = (entry.hash & bit) != 0 ? page.get() : old_page;
    target->entries[target == old_page ? kept++ : page->num_entries++] = entry;
  }
  old_page->num_entries = kept;
  const auto new_number = static_cast<uint32_t>(pages_.size());
  pages_.push_back(std::move(page));
  // The slots of the old page are contiguous; the second half now refers to the new page.
  const size_t num_slots = size_t{1} << (depth_ - old_page->depth);
  const size_t first = Slot((hash & ~(bit - 1)) | bit);
  for (size_t slot = first; slot < first + num_slots; ++slot) directory_[slot] = new_number;
}

}  // namespace minisgl::batch
