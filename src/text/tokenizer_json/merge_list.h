// The merges of a byte-pair encoding as a file has them, pairs of spellings, and their ids.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "text/tokenizer_json/bpe.h"
#include "text/tokenizer_json/vocabulary.h"

namespace minisgl::text {

struct MergeEntry {
  enum class Kind {
    kPair,
    kSkipped,  // the first line of a merges file, "#version", which some converters keep
    kBad,      // no pair
  };
  Kind kind = Kind::kBad;
  std::string_view left, right;  // a pair's spellings; valid as long as the file
};

// Reads "a b".
MergeEntry ReadMergeLine(std::string_view line);
// Reads "a b", or ["a", "b"] in files whose tokens may contain spaces.
MergeEntry ReadMerge(const Json& merge);

// A file's merges in the order of their ranks. Readable from any thread.
class MergeList {
 public:
  virtual ~MergeList() = default;
  virtual size_t size() const = 0;
  virtual MergeEntry At(size_t index) const = 0;
};

// Returns the ids of all pairs. A merge makes the left spelling and the right one without its first
// `prefix_bytes` bytes. Long lists are read by two threads. kBadInput names the first entry that is
// not a pair, or has or makes a spelling that is not in the vocabulary, as `path`[index].
Result<std::vector<BpeMerge>> ResolveMerges(const Vocabulary& vocabulary, const MergeList& list,
                                            size_t prefix_bytes, const std::string& path);

}  // namespace minisgl::text
