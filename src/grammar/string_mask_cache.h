// Masks of tokens of string characters, by what is left of the terminal that they are a part of.
//
// They depend on the expression alone as long as no such token passes an end of it, so grammars of
// one vocabulary share them: what an e-mail address may go on with is found once. Thread-safe.
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
