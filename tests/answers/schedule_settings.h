// Settings of a run that must not change its rows, and the check that they do not.
#pragma once

#include <string>
#include <vector>

namespace minisgl::answers {

struct Setting {
  int page_size, max_prefill, max_running, threads;
  const char* cache;
  bool overlap;
  const char *schedule, *admission, *policy;
  int num_pages;   // 0: the memory plan's
  int max_drafts;  // 0: none
  int num_ranks = 1;

  std::string Name() const;
  std::vector<std::string> Args() const;
};

// The smallest pool that holds one request with the prompts of the demo: 640 tokens.
int SmallestPool(int page_size);

// Every value of every option occurs.
std::vector<Setting> Settings();

// The rows of `file` are the same byte for byte under all of them.
void ExpectIdenticalRows(const std::string& model, const std::string& file,
                         const std::vector<Setting>& settings = Settings());

}  // namespace minisgl::answers
