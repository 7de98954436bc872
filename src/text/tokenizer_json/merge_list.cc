// Merges are resolved in groups whose spellings are looked up together (Vocabulary::FindAll).
#include "text/tokenizer_json/merge_list.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <iterator>
#include <span>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"

namespace minisgl::text {
namespace {

// A thread takes so many merges at a time. Fewer parts are resolved sooner than a thread has
// started.
constexpr size_t kPartMerges = 4096;
constexpr size_t kLongListParts = 4;
constexpr size_t kPairsTogether = 64;

// The merges at some places of a list.
class MergeResolver {
 public:
  MergeResolver(const Vocabulary& vocabulary, const MergeList& list, size_t prefix_bytes,
                const std::string& path)
      : vocabulary_(vocabulary), list_(list), prefix_bytes_(prefix_bytes), path_(path) {}

  Result<std::vector<BpeMerge>> Run(size_t begin, size_t end) {
    std::vector<BpeMerge> merges;
    merges.reserve(end - begin);
    for (size_t at = begin; at < end; at += kPairsTogether) {
      MINISGL_RETURN_IF_ERROR(AddGroup(at, std::min(at + kPairsTogether, end), &merges));
    }
    return merges;
  }

 private:
  Status AddGroup(size_t begin, size_t end, std::vector<BpeMerge>* merges) {
    size_t num_bytes = 0, num_pairs = 0;
    for (size_t index = begin; index < end; ++index) {
      const MergeEntry entry = list_.At(index);
      if (entry.kind == MergeEntry::Kind::kSkipped) continue;
      // Entries before a bad one may have errors of their own, which are told first.
      if (entry.kind == MergeEntry::Kind::kBad || entry.right.size() < prefix_bytes_) {
        MINISGL_RETURN_IF_ERROR(AddPairs(num_pairs, num_bytes, merges));
        return RefusePair(index, entry);
      }
      pairs_[num_pairs] = entry;
      indices_[num_pairs++] = index;
      num_bytes += entry.left.size() + entry.right.size() - prefix_bytes_;
    }
    return AddPairs(num_pairs, num_bytes, merges);
  }

  Status RefusePair(size_t index, const MergeEntry& entry) const {
    if (entry.kind == MergeEntry::Kind::kBad) {
      return Error(index, "is not a pair; it must be two tokens");
    }
    for (const std::string_view spelling : {entry.left, entry.right}) {
      if (!vocabulary_.Find(spelling)) return RefuseSpelling(index, "has", spelling);
    }
    return Error(index, fmt::format("has \"{}\", which is shorter than continuing_subword_prefix",
                                    Visible(entry.right)));
  }

  // Appends the first `num_pairs` of pairs_, which make spellings of `num_bytes` bytes.
  Status AddPairs(size_t num_pairs, size_t num_bytes, std::vector<BpeMerge>* merges) {
    joined_.clear();
    joined_.reserve(num_bytes);  // views of it stay valid
    for (size_t i = 0; i < num_pairs; ++i) {
      const size_t at = joined_.size();
      joined_ += pairs_[i].left;
      joined_ += pairs_[i].right.substr(prefix_bytes_);
      spellings_[3 * i] = pairs_[i].left;
      spellings_[3 * i + 1] = pairs_[i].right;
      spellings_[3 * i + 2] = std::string_view(joined_).substr(at);
    }
    vocabulary_.FindAll(std::span(spellings_).first(3 * num_pairs),
                        std::span(ids_).first(3 * num_pairs));
    for (size_t i = 0; i < num_pairs; ++i) {
      for (size_t part = 0; part < 3; ++part) {
        if (ids_[3 * i + part] >= 0) continue;
        return RefuseSpelling(indices_[i], part < 2 ? "has" : "makes", spellings_[3 * i + part]);
      }
      merges->push_back({ids_[3 * i], ids_[3 * i + 1], ids_[3 * i + 2]});
    }
    return {};
  }

  Status RefuseSpelling(size_t index, const char* verb, std::string_view spelling) const {
    return Error(
        index, fmt::format("{} \"{}\", which model.vocab does not have", verb, Visible(spelling)));
  }
  Status Error(size_t index, const std::string& what) const {
    return BadInput("{}[{}] {}", path_, index, what);
  }

  const Vocabulary& vocabulary_;
  const MergeList& list_;
  const size_t prefix_bytes_;
  const std::string& path_;
  // A group's pairs, their indices in the list, and for each the left, the right and the joined
  // spelling with their ids.
  std::array<MergeEntry, kPairsTogether> pairs_;
  std::array<size_t, kPairsTogether> indices_;
  std::array<std::string_view, 3 * kPairsTogether> spellings_;
  std::array<TokenId, 3 * kPairsTogether> ids_;
  std::string joined_;
};

}  // namespace

MergeEntry ReadMergeLine(std::string_view line) {
  if (line.starts_with("#version")) return {MergeEntry::Kind::kSkipped, {}, {}};
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return {};
  }
  return {MergeEntry::Kind::kPair, line.substr(0, space), line.substr(space + 1)};
}

MergeEntry ReadMerge(const Json& merge) {
  if (merge.is_string()) return ReadMergeLine(merge.as_string());
  if (!merge.is_array() || merge.as_array().size() != 2) return {};
  const Json& left = merge.as_array()[0];
  const Json& right = merge.as_array()[1];
  if (!left.is_string() || !right.is_string()) return {};
  return {MergeEntry::Kind::kPair, left.as_string(), right.as_string()};
}

Result<std::vector<BpeMerge>> ResolveMerges(const Vocabulary& vocabulary, const MergeList& list,
                                            size_t prefix_bytes, const std::string& path) {
  const size_t num_parts = CeilDiv(list.size(), kPartMerges);
  std::vector<Result<std::vector<BpeMerge>>> parts(num_parts, std::vector<BpeMerge>());
  std::atomic<size_t> next = 0;
  const auto resolve_parts = [&] {
    MergeResolver resolver(vocabulary, list, prefix_bytes, path);
    for (size_t part; (part = next.fetch_add(1)) < num_parts;) {
      const size_t begin = part * kPartMerges;
      parts[part] = resolver.Run(begin, std::min(begin + kPartMerges, list.size()));
    }
  };
  std::future<void> beside;
  if (num_parts >= kLongListParts) beside = std::async(std::launch::async, resolve_parts);
  resolve_parts();
  if (beside.valid()) beside.get();
  std::vector<BpeMerge> merges;
  merges.reserve(list.size());
  for (const Result<std::vector<BpeMerge>>& part : parts) {
    MINISGL_RETURN_IF_ERROR(part.status());
    merges.insert(merges.end(), part->begin(), part->end());
  }
  return merges;
}

}  // namespace minisgl::text
