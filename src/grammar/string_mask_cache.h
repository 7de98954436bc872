// Masks of tokens of string characters, by the rest of the terminal around them.
//
// They depend on that expression alone as long as no such token passes its end, so the grammars of
// a vocabulary share them: the tokens that may continue an e-mail address are found once.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace minisgl::grammar {

class StringMaskCache {
 public:
  explicit StringMaskCache(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Copies the mask of `spelling` to the beginning of `mask`; false if there is none.
  bool Find(const std::string& spelling, std::span<uint32_t> mask);
  // Drops the masks that were used the longest time ago if there are too many.
  void Keep(std::string spelling, std::span<const uint32_t> mask);

 private:
  struct Entry {
    std::string spelling;
    std::vector<uint32_t> mask;
  };
  static size_t BytesOf(const Entry& entry);

  const size_t bytes_max_;
  std::mutex mutex_;          // guards what follows
  std::list<Entry> entries_;  // the one used last is the first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> places_;
  size_t bytes_ = 0;
};

}  // namespace minisgl::grammar
