// How byte-level tokenizers of GGUF files cut a text into words: "tokenizer.ggml.pre" by name.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace minisgl::text {

struct GgufSplit {
  const char* names = "";  // separated by spaces
  // Each finds the parts that the next one cuts further; the last finds words. None: GPT-2's.
  std::array<const char*, 6> expressions = {};
  bool single_digits = false;    // the text is cut at every digit first
  bool ignores_merges = false;   // a word that is a token is not merged
  bool composes = false;         // the text is normalised to NFC first
  bool begins_with_bos = false;  // unless the file says otherwise
};

// The name in files that do not know their split, and the split of files without a name.
inline constexpr std::string_view kDefaultSplit = "default";

// Null for a name that is not known. `num_tokens` are of the whole vocabulary.
const GgufSplit* FindGgufSplit(std::string_view name, size_t num_tokens = 0);
// True for a name of texts that are not cut: spaces are spelled as a sign of their own, and text
// without a token as bytes.
bool IsUncut(std::string_view name);
// All names, for messages.
std::string GgufSplitNames();

}  // namespace minisgl::text
