// Finds stop strings in a text that comes in pieces, and lets nothing through that may still become
// a part of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl::runtime {

class StopFilter {
 public:
  // Empty strings in `stops` are ignored.
  explicit StopFilter(std::vector<std::string> stops);

  struct Output {
    std::string text;  // certain: can no longer be part of a stop string
    bool stopped =
        false;  // a stop string was found; `text` ends before it, and what followed it is gone
  };
  // Where several stop strings match, the one that is complete first counts. Without `may_stop` one
  // that is complete is ordinary text; one that only begins is held back all the same. REQUIRES no
  // stop string found before.
  Output Push(std::string_view text, bool may_stop = true);
  // The end of the text: what was held back, which became no stop string.
  std::string Finish();

 private:
  size_t HeldBack() const;  // bytes at the end of pending_ that a stop string may begin with

  std::vector<std::string> stops_;
  std::string pending_;
};

}  // namespace minisgl::runtime
