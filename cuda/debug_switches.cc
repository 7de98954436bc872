// See debug_switches.h.
#include "debug_switches.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cuda {
namespace {

struct DebugWord {
  std::string_view word;
  bool DebugSwitches::*set;
};
constexpr DebugWord kWords[] = {{"no-dependent-launch", &DebugSwitches::no_dependent_launch},
                                {"no-gemv", &DebugSwitches::no_gemv},
                                {"ring", &DebugSwitches::ring},
                                {"no-fused-norm", &DebugSwitches::no_fused_norm},
                                {"no-fused-activation", &DebugSwitches::no_fused_activation},
                                {"no-fused-add", &DebugSwitches::no_fused_add},
                                {"no-graphs", &DebugSwitches::no_graphs},
                                {"no-timed-plans", &DebugSwitches::no_timed_plans},
                                {"no-prefetch", &DebugSwitches::no_prefetch},
                                {"no-carveout", &DebugSwitches::no_carveout},
                                {"no-peers", &DebugSwitches::no_peers},
                                {"decode-by-extend", &DebugSwitches::decode_by_extend},
                                {"short-splits", &DebugSwitches::short_splits},
                                {"keep-codes", &DebugSwitches::keep_codes},
                                {"expand-codes", &DebugSwitches::expand_codes},
                                {"small-pieces", &DebugSwitches::small_pieces},
                                {"product-ends", &DebugSwitches::product_ends},
                                {"l2-hint", &DebugSwitches::l2_hint},
                                {"whole-lines", &DebugSwitches::whole_lines},
                                {"fetch-far", &DebugSwitches::fetch_far},
                                {"chain", &DebugSwitches::chain},
                                {"code-tiles", &DebugSwitches::code_tiles},
                                {"w8a8", &DebugSwitches::w8a8},
                                {"sync", &DebugSwitches::sync}};

std::string AllWords() {
  std::string words;
  for (const DebugWord& known : kWords) {
    words += fmt::format("{}{}", words.empty() ? "" : ", ", known.word);
  }
  return words;
}

}  // namespace

Result<DebugSwitches> ParseDebugSwitches(std::string_view words) {
  DebugSwitches switches;
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(','));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    if (word.empty()) continue;
    const auto* const known = std::find_if(std::begin(kWords), std::end(kWords),
                                           [&](const DebugWord& k) { return k.word == word; });
    if (known == std::end(kWords)) {
      return UsageError("{}: unknown word {}; the words are {}, separated by commas",
                        kDebugVariable, Visible(std::string(word)), AllWords());
    }
    switches.*known->set = true;
  }
  return switches;
}

Result<DebugSwitches> ReadDebugSwitches() {
  const char* const words = std::getenv(kDebugVariable);
  if (words == nullptr || *words == '\0') return DebugSwitches();
  MINISGL_ASSIGN_OR_RETURN(const DebugSwitches switches, ParseDebugSwitches(words));
  Log(LogLevel::kWarning,
      fmt::format("{}={}: parts of the CUDA engine are off or replaced", kDebugVariable, words));
  return switches;
}

}  // namespace minisgl::cuda
