// Prompt lookup. An index for each request maps every run of 2, 3 and 4 tokens to the place after
// its last occurrence. It grows with the answer, a bounded part at a time, so the cost of a draft
// does not depend on the length of the text.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "minisgl/sched/drafter.h"

namespace minisgl {
namespace {

constexpr std::array<size_t, 3> kRunLengths = {4, 3, 2};  // tried in this order

// Upper bound on the places of a long prompt that one call adds to its index: indexing all of them
// at once would delay the step.
constexpr size_t kIndexedMax = 2048;

uint64_t HashRun(std::span<const TokenId> run) {
  uint64_t hash = 0x9E3779B97F4A7C15ull * run.size();
  for (const TokenId token : run) {
    // The finalizer of splitmix64 over (hash, token).
    hash += static_cast<uint32_t>(token) + 0x9E3779B97F4A7C15ull;
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
    hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
    hash ^= hash >> 31;
  }
  return hash;
}

class NgramDrafter final : public Drafter {
 public:
  void Draft(RequestId id, std::span<const TokenId> tokens, int32_t count,
             std::vector<TokenId>* drafts) override {
    Index& index = indexes_[id];
    const size_t size = tokens.size();
    // A run that ends at the last token has nothing after it yet.
    const size_t indexed = std::min(size - 1, index.num_ends + kIndexedMax);
    for (; index.num_ends < indexed; ++index.num_ends) {
      const size_t end = index.num_ends + 1;
      for (const size_t length : kRunLengths) {
        if (end >= length) index.after[HashRun(tokens.subspan(end - length, length))] = end;
      }
    }
    const size_t start = FindContinuation(index, tokens);
    if (start == 0) return;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      // Past the end of the text, the draft repeats itself.
      const size_t place = start + i;
      drafts->push_back(place < size ? tokens[place] : (*drafts)[drafts->size() - (size - start)]);
    }
  }

  void Forget(RequestId id) override { indexes_.erase(id); }

 private:
  struct Index {
    size_t num_ends = 0;  // runs that end before this place are indexed
    std::unordered_map<uint64_t, size_t> after;
  };

  // Returns the place after the last earlier occurrence of the longest run that ends the text, or 0
  // if there is none. Compares tokens, so two runs with one hash are not confused.
  static size_t FindContinuation(const Index& index, std::span<const TokenId> tokens) {
    for (const size_t length : kRunLengths) {
      if (tokens.size() <= length) continue;
      const auto run = tokens.last(length);
      const auto found = index.after.find(HashRun(run));
      if (found == index.after.end() || found->second < length) continue;
      const auto before = tokens.subspan(found->second - length, length);
      if (std::equal(run.begin(), run.end(), before.begin())) return found->second;
    }
    return 0;
  }

  std::unordered_map<RequestId, Index> indexes_;
};

}  // namespace

std::unique_ptr<Drafter> MakeNgramDrafter() { return std::make_unique<NgramDrafter>(); }

}  // namespace minisgl
