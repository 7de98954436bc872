// The prefix cache as a radix tree over whole pages of tokens, with the marks in them.
//
// Invariants (I3, I5):
//  - A node's key is a whole number of pages: their tokens, and the marks that stand in them. The
//    children of one node differ in their first page, in its tokens or its marks. So a mark at
//    place 0 divides whole trees below the root.
//  - refs(node) = locks on the node and below it, so refs(parent) >= refs(child).
//  - A node is in the LRU list if and only if its refs are 0 and it is not the root.
//  - In the list every parent is fresher than its children, because a path is always touched and
//    unlocked from its deepest node up. The oldest entry is therefore a leaf, and eviction pops the
//    end of the list without a search.
//  - A snapshot is the state at the end of its node. So a node with one does not grow, a split
//    leaves it to the lower node, and a node that loses its end loses it.
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "minisgl/base/check.h"
#include "minisgl/kv/prefix_cache.h"

namespace minisgl {

namespace {

// The first page of a child.
struct PageKey {
  explicit PageKey(const PrefixKey& key)
      : tokens(key.tokens().begin(), key.tokens().end()),
        marks(key.marks().begin(), key.marks().end()) {}
  operator PrefixKey() const { return {tokens, marks}; }

  std::vector<TokenId> tokens;
  std::vector<KeyMark> marks;
};

// Orders pages that begin at the same place.
struct PageKeyLess {
  using is_transparent = void;
  bool operator()(const PrefixKey& a, const PrefixKey& b) const {
    const auto order = std::lexicographical_compare_three_way(a.tokens().begin(), a.tokens().end(),
                                                              b.tokens().begin(), b.tokens().end());
    if (order != 0) return order < 0;
    return std::lexicographical_compare(a.marks().begin(), a.marks().end(), b.marks().begin(),
                                        b.marks().end());
  }
};

}  // namespace

struct PrefixNode {
  PrefixKey key() const { return {tokens, marks, begin}; }

  PrefixNode* parent = nullptr;
  int64_t begin = 0;            // place of its first token
  std::vector<TokenId> tokens;  // the tree's own copy: pages.size() * page_size
  std::vector<KeyMark> marks;   // in them
  std::vector<PageId> pages;
  std::map<PageKey, PrefixNode*, PageKeyLess> children;  // by first page
  int64_t refs = 0;
  // LRU list links; null if not listed.
  PrefixNode* fresher = nullptr;
  PrefixNode* older = nullptr;
};

namespace {

// A list from freshest to oldest, linked through the nodes.
class LruList {
 public:
  LruList() {
    ends_.fresher = &ends_;
    ends_.older = &ends_;
  }
  bool Contains(const PrefixNode* node) const { return node->older != nullptr; }
  void PushFreshest(PrefixNode* node) { InsertFresherThan(ends_.older, node); }
  void InsertFresherThan(PrefixNode* place, PrefixNode* node) {
    node->older = place;
    node->fresher = place->fresher;
    place->fresher->older = node;
    place->fresher = node;
  }
  void Remove(PrefixNode* node) {
    node->fresher->older = node->older;
    node->older->fresher = node->fresher;
    node->fresher = node->older = nullptr;
  }
  PrefixNode* oldest() const { return ends_.fresher; }
  const PrefixNode* end() const { return &ends_; }

 private:
  PrefixNode ends_;  // ends_.older is the freshest, ends_.fresher the oldest: a ring
};

class RadixCache : public PrefixCache {
 public:
  RadixCache(int32_t page_size, CacheObserver* observer, StatePool* states)
      : page_size_(static_cast<size_t>(page_size)), observer_(observer), states_(states) {
    MINISGL_CHECK(page_size >= 1, "page size {}", page_size);
    root_ = NewNode(nullptr);
  }
  PrefixMatch Match(const PrefixKey& key) override;
  void Lock(PrefixNode* node) override;
  void Unlock(PrefixNode* node) override;
  PrefixInsertion Insert(PrefixNode* from, int32_t first_page, const PrefixKey& key,
                         std::span<const PageId> pages) override;
  bool AttachState(const PrefixKey& key, StateSlot slot) override;
  void Evict(int32_t count, std::vector<PageId>* freed) override;
  int32_t num_evictable() const override { return num_evictable_; }
  int32_t num_locked() const override { return num_locked_; }
  bool keeps_pages() const override { return true; }
  void CheckInvariants(std::span<PrefixNode* const> locked_nodes) const override;
  std::vector<PageId> PathPages(const PrefixNode* node) const override;
  std::vector<PathState> PathStates(const PrefixNode* node) const override;
  std::vector<PageId> AllPages() const override;

 private:
  PrefixKey FirstPage(const PrefixKey& key) const { return key.first(page_size_); }
  // The page before the children of `node`; unset for the root.
  static std::optional<PageId> LastPage(const PrefixNode* node) {
    if (node->pages.empty()) return std::nullopt;
    return node->pages.back();
  }
  PrefixNode* NewNode(PrefixNode* parent);
  void DeleteLeaf(PrefixNode* leaf);
  PrefixNode* FindChild(const PrefixNode* node, const PrefixKey& key) const;
  // How many pages of `node` are the first of `key`, which begins where the node does.
  size_t CommonPages(const PrefixNode* node, const PrefixKey& key) const;
  // The child of `node` with which `key` begins, cut to the pages that they share; null: none has
  // the first page.
  PrefixNode* Descend(const PrefixNode* node, const PrefixKey& key);
  PrefixNode* Split(PrefixNode* lower, size_t num_pages);
  // Keeps the first `num_pages` pages of the key of `node`.
  void CutKey(PrefixNode* node, size_t num_pages) const;
  void Append(PrefixNode* node, const PrefixKey& key, std::span<const PageId> pages);
  void Touch(PrefixNode* node);
  void CutToSnapshot(PrefixMatch* match) const;
  bool HasSnapshot(const PrefixNode* node) const {
    return states_ != nullptr && states_->SnapshotAt(node) != kZeroState;
  }
  void CheckNode(const PrefixNode* node) const;

  size_t page_size_;
  CacheObserver* observer_;  // null: none
  StatePool* states_;        // null: none
  PrefixNode* root_;
  // Owns the nodes. Never iterated for decisions.
  std::unordered_map<const PrefixNode*, std::unique_ptr<PrefixNode>> nodes_;
  LruList lru_;
  int32_t num_evictable_ = 0;
  int32_t num_locked_ = 0;
};

PrefixNode* RadixCache::NewNode(PrefixNode* parent) {
  auto owned = std::make_unique<PrefixNode>();
  PrefixNode* node = owned.get();
  node->parent = parent;
  if (parent != nullptr) node->begin = parent->begin + std::ssize(parent->tokens);
  nodes_.emplace(node, std::move(owned));
  return node;
}

void RadixCache::DeleteLeaf(PrefixNode* leaf) {
  MINISGL_CHECK(leaf != root_ && leaf->children.empty(), "only a leaf can be removed");
  const auto place = leaf->parent->children.find(FirstPage(leaf->key()));
  leaf->parent->children.erase(place);
  if (states_ != nullptr) states_->Detach(leaf);
  nodes_.erase(leaf);
}

PrefixNode* RadixCache::FindChild(const PrefixNode* node, const PrefixKey& key) const {
  if (key.size() < page_size_) return nullptr;
  const auto found = node->children.find(FirstPage(key));
  return found == node->children.end() ? nullptr : found->second;
}

size_t RadixCache::CommonPages(const PrefixNode* node, const PrefixKey& key) const {
  return CommonLength(node->key(), key) / page_size_;
}

PrefixNode* RadixCache::Descend(const PrefixNode* node, const PrefixKey& key) {
  PrefixNode* child = FindChild(node, key);
  if (child == nullptr) return nullptr;
  const size_t common = CommonPages(child, key);
  return common < child->pages.size() ? Split(child, common) : child;
}

// A new node takes the first `num_pages` pages of `lower` and its place in the tree. `lower` keeps
// its identity, so locks on it remain locks on the same prefix.
PrefixNode* RadixCache::Split(PrefixNode* lower, size_t num_pages) {
  const auto cut_tokens = static_cast<std::ptrdiff_t>(num_pages * page_size_);
  const auto cut_pages = static_cast<std::ptrdiff_t>(num_pages);
  PrefixNode* upper = NewNode(lower->parent);
  const auto upper_marks = lower->key().first(num_pages * page_size_).marks();
  upper->tokens.assign(lower->tokens.begin(), lower->tokens.begin() + cut_tokens);
  upper->marks.assign(upper_marks.begin(), upper_marks.end());
  upper->pages.assign(lower->pages.begin(), lower->pages.begin() + cut_pages);
  upper->refs = lower->refs;
  upper->parent->children.find(FirstPage(upper->key()))->second = upper;
  lower->tokens.erase(lower->tokens.begin(), lower->tokens.begin() + cut_tokens);
  lower->marks.erase(lower->marks.begin(), lower->marks.begin() + std::ssize(upper_marks));
  lower->pages.erase(lower->pages.begin(), lower->pages.begin() + cut_pages);
  lower->begin += cut_tokens;
  lower->parent = upper;
  upper->children.emplace(FirstPage(lower->key()), lower);
  if (lower->refs == 0) lru_.InsertFresherThan(lower, upper);
  return upper;
}

// Marks the path to `node` as used now, deepest node first, so that parents stay fresher than
// children.
void RadixCache::Touch(PrefixNode* node) {
  for (; node != root_; node = node->parent) {
    if (node->refs > 0) continue;
    if (lru_.Contains(node)) lru_.Remove(node);
    lru_.PushFreshest(node);
  }
}

PrefixMatch RadixCache::Match(const PrefixKey& key) {
  PrefixMatch match;
  match.node = root_;
  PrefixKey rest = key;
  while (PrefixNode* child = Descend(match.node, rest)) {
    match.pages.insert(match.pages.end(), child->pages.begin(), child->pages.end());
    rest = rest.subspan(child->tokens.size());
    match.node = child;
  }
  Touch(match.node);
  match.cached_pages = match.pages.size();
  if (states_ != nullptr) CutToSnapshot(&match);
  return match;
}

void RadixCache::CutToSnapshot(PrefixMatch* match) const {
  while (match->node != root_ && !HasSnapshot(match->node)) {
    match->pages.resize(match->pages.size() - match->node->pages.size());
    match->node = match->node->parent;
  }
  match->state = states_->SnapshotAt(match->node);
  states_->Touch(match->node);
}

bool RadixCache::AttachState(const PrefixKey& key, StateSlot slot) {
  PrefixNode* node = root_;
  PrefixKey rest = key;
  while (!rest.empty()) {
    PrefixNode* child = Descend(node, rest);
    if (child == nullptr) return false;
    rest = rest.subspan(child->tokens.size());
    node = child;
  }
  if (node == root_ || HasSnapshot(node)) return false;
  states_->Attach(node, slot);
  return true;
}

void RadixCache::Lock(PrefixNode* node) {
  for (; node != nullptr; node = node->parent) {
    if (node->refs++ == 0 && node != root_) {
      lru_.Remove(node);
      num_evictable_ -= static_cast<int32_t>(node->pages.size());
      num_locked_ += static_cast<int32_t>(node->pages.size());
    }
  }
}

void RadixCache::Unlock(PrefixNode* node) {
  for (; node != nullptr; node = node->parent) {
    MINISGL_CHECK(node->refs > 0, "unlock without a lock");
    if (--node->refs == 0 && node != root_) {
      lru_.PushFreshest(node);
      num_evictable_ += static_cast<int32_t>(node->pages.size());
      num_locked_ -= static_cast<int32_t>(node->pages.size());
    }
  }
}

void RadixCache::CutKey(PrefixNode* node, size_t num_pages) const {
  node->marks.resize(node->key().first(num_pages * page_size_).marks().size());
  node->tokens.resize(num_pages * page_size_);
}

void RadixCache::Append(PrefixNode* node, const PrefixKey& key, std::span<const PageId> pages) {
  node->tokens.insert(node->tokens.end(), key.tokens().begin(), key.tokens().end());
  node->marks.insert(node->marks.end(), key.marks().begin(), key.marks().end());
  node->pages.insert(node->pages.end(), pages.begin(), pages.end());
  (node->refs > 0 ? num_locked_ : num_evictable_) += static_cast<int32_t>(pages.size());
}

PrefixInsertion RadixCache::Insert(PrefixNode* from, int32_t first_page, const PrefixKey& key,
                                   std::span<const PageId> pages) {
  MINISGL_CHECK(key.size() == pages.size() * page_size_, "{} tokens for {} pages", key.size(),
                pages.size());
  MINISGL_DCHECK(from->refs > 0, "insertion below a prefix that is not locked");
  PrefixInsertion result;
  PrefixNode* node = from;
  auto index = static_cast<size_t>(first_page);
  while (index < pages.size()) {
    const PrefixKey rest = key.subspan(index * page_size_);
    if (PrefixNode* child = Descend(node, rest)) {
      result.pages.insert(result.pages.end(), child->pages.begin(), child->pages.end());
      index += child->pages.size();
      node = child;
      continue;
    }
    // A leaf that only the caller locks grows in place, so that an answer's pages do not become a
    // chain of tiny nodes. Another lock on the leaf would come to hold pages beyond its prefix.
    const bool grows = node != root_ && node->children.empty() &&
                       node->refs <= (node == from ? 1 : 0) && !HasSnapshot(node);
    if (!grows) {
      PrefixNode* leaf = NewNode(node);
      node->children.emplace(FirstPage(rest), leaf);
      node = leaf;
    }
    const std::optional<PageId> parent = LastPage(grows ? node : node->parent);
    Append(node, rest, pages.subspan(index));
    if (observer_ != nullptr) observer_->Stored(parent, rest, pages.subspan(index));
    result.pages.insert(result.pages.end(), pages.begin() + static_cast<std::ptrdiff_t>(index),
                        pages.end());
    index = pages.size();
  }
  result.node = node;
  Touch(node);
  return result;
}

void RadixCache::Evict(int32_t count, std::vector<PageId>* freed) {
  MINISGL_CHECK(count <= num_evictable_, "{} pages to evict, {} evictable", count, num_evictable_);
  const size_t num_freed_before = freed->size();
  while (count > 0) {
    PrefixNode* leaf = lru_.oldest();
    MINISGL_DCHECK(leaf->children.empty(), "the oldest prefix has children");
    const auto taken = std::min(static_cast<size_t>(count), leaf->pages.size());
    const size_t kept = leaf->pages.size() - taken;
    // From the end on, as an observer is promised.
    freed->insert(freed->end(), leaf->pages.rbegin(),
                  leaf->pages.rbegin() + static_cast<std::ptrdiff_t>(taken));
    count -= static_cast<int32_t>(taken);
    num_evictable_ -= static_cast<int32_t>(taken);
    if (kept == 0) {
      lru_.Remove(leaf);
      DeleteLeaf(leaf);
    } else {
      if (states_ != nullptr) states_->Detach(leaf);
      leaf->pages.resize(kept);
      CutKey(leaf, kept);
    }
  }
  if (observer_ != nullptr && freed->size() > num_freed_before) {
    observer_->Evicted(std::span(*freed).subspan(num_freed_before));
  }
}

void RadixCache::CheckNode(const PrefixNode* node) const {
  MINISGL_CHECK(node->tokens.size() == node->pages.size() * page_size_,
                "I3: a key of {} tokens with {} pages", node->tokens.size(), node->pages.size());
  MINISGL_CHECK((node == root_) == node->pages.empty(), "I3: an empty node, or a root with pages");
  const int64_t end = node->begin + std::ssize(node->tokens);
  MINISGL_CHECK(AreMarksOf(node->marks, end) &&
                    (node->marks.empty() || node->marks.front().place >= node->begin),
                "I3: a node of places {} to {} has marks elsewhere", node->begin, end);
  MINISGL_CHECK(lru_.Contains(node) == (node != root_ && node->refs == 0),
                "I5: a node of {} locks is {}listed as evictable", node->refs,
                lru_.Contains(node) ? "" : "not ");
  int64_t child_refs = 0;
  for (const auto& [key, child] : node->children) {
    MINISGL_CHECK(child->parent == node && child->begin == end, "I3: a parent link is wrong");
    const PrefixKey first = FirstPage(child->key());
    MINISGL_CHECK(std::equal(key.tokens.begin(), key.tokens.end(), first.tokens().begin(),
                             first.tokens().end()) &&
                      std::equal(key.marks.begin(), key.marks.end(), first.marks().begin(),
                                 first.marks().end()),
                  "I3: the key of a child is not its first page");
    child_refs += child->refs;
  }
  MINISGL_CHECK(node->refs >= child_refs, "I5: {} locks on a node, {} below it", node->refs,
                child_refs);
}

void RadixCache::CheckInvariants(std::span<PrefixNode* const> locked_nodes) const {
  std::unordered_map<const PrefixNode*, int64_t> refs;
  for (const PrefixNode* locked : locked_nodes) {
    for (const PrefixNode* node = locked; node != nullptr; node = node->parent) ++refs[node];
  }
  int32_t evictable = 0, locked = 0, snapshots = 0;
  size_t num_listed = 0;
  for (const auto& [node, owned] : nodes_) {
    CheckNode(node);
    snapshots += HasSnapshot(node) ? 1 : 0;
    const auto found = refs.find(node);
    MINISGL_CHECK(node->refs == (found == refs.end() ? 0 : found->second),
                  "I5: {} locks counted, {} held", node->refs,
                  found == refs.end() ? 0 : found->second);
    (node->refs > 0 ? locked : evictable) += static_cast<int32_t>(node->pages.size());
    num_listed += lru_.Contains(node) ? 1 : 0;
  }
  MINISGL_CHECK(evictable == num_evictable_ && locked == num_locked_,
                "I5: {} evictable and {} locked pages, counters say {} and {}", evictable, locked,
                num_evictable_, num_locked_);
  MINISGL_CHECK(
      (states_ == nullptr ? 0 : states_->num_snapshots()) == snapshots && !HasSnapshot(root_),
      "I3: {} snapshots in the tree, or one at its root", snapshots);
  // Oldest first: no parent may come before its child.
  std::unordered_set<const PrefixNode*> seen;
  for (const PrefixNode* node = lru_.oldest(); node != lru_.end(); node = node->fresher) {
    MINISGL_CHECK(!seen.contains(node->parent), "I5: a parent is older than its child");
    seen.insert(node);
  }
  MINISGL_CHECK(seen.size() == num_listed, "I5: the eviction list lost a node");
}

std::vector<PageId> RadixCache::PathPages(const PrefixNode* node) const {
  std::vector<PageId> pages;
  for (; node != nullptr; node = node->parent) {
    pages.insert(pages.end(), node->pages.rbegin(), node->pages.rend());
  }
  std::reverse(pages.begin(), pages.end());
  return pages;
}

std::vector<PathState> RadixCache::PathStates(const PrefixNode* node) const {
  std::vector<PathState> states;
  size_t num_pages = 0;
  for (; node != nullptr; node = node->parent) {
    // Pages below it, until all pages of the path are known.
    if (HasSnapshot(node)) {
      states.push_back({static_cast<int32_t>(num_pages), states_->SnapshotAt(node)});
    }
    num_pages += node->pages.size();
  }
  for (PathState& state : states) {
    state.num_pages = static_cast<int32_t>(num_pages) - state.num_pages;
  }
  return states;
}

std::vector<PageId> RadixCache::AllPages() const {
  std::vector<PageId> pages;
  for (const auto& [node, owned] : nodes_) {
    pages.insert(pages.end(), node->pages.begin(), node->pages.end());
  }
  return pages;
}

}  // namespace

std::unique_ptr<PrefixCache> MakeRadixCache(int32_t page_size, CacheObserver* observer,
                                            StatePool* states) {
  return std::make_unique<RadixCache>(page_size, observer, states);
}

}  // namespace minisgl
