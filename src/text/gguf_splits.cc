// The expressions are those of the tokenizer.json of each family.
#include "text/gguf_splits.h"

#include <sstream>

namespace minisgl::text {
namespace {

// Contractions, words with a character before them, up to three digits, signs, line ends, spaces.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The same with single digits.
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                               R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// And marks are parts of words.
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words end where capital letters begin.
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The same with single digits and without contractions.
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr GgufSplit kSplits[] = {
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2",
     .expression = kLlama3,
     .ignores_merges = true,
     .begins_with_bos = true},
    {.names = "dbrx smaug-bpe chatglm-bpe", .expression = kLlama3},
    {.names = "glm4", .expression = kLlama3, .ignores_merges = true},
    {.names = "qwen2 deepseek-r1-qwen megrez", .expression = kQwen2, .composes = true},
    {.names = "stablelm2 hunyuan", .expression = kQwen2},
    {.names = "qwen35", .expression = kQwen35, .composes = true},
    {.names = "gpt-4o llama4", .expression = kO200k, .ignores_merges = true},
    {.names = "tekken", .expression = kTekken, .ignores_merges = true, .begins_with_bos = true},
    {.names = "gpt-2 phi-2 mpt olmo exaone4"},
    {.names = "starcoder refact smollm command-r codeshell exaone", .single_digits = true},
};

}  // namespace

const GgufSplit* FindGgufSplit(std::string_view name) {
  for (const GgufSplit& split : kSplits) {
    std::istringstream names(split.names);
    for (std::string known; names >> known;) {
      if (known == name) return &split;
    }
  }
  return nullptr;
}

std::string GgufSplitNames() {
  std::string all;
  for (const GgufSplit& split : kSplits) {
    std::istringstream names(split.names);
    for (std::string known; names >> known;) all += (all.empty() ? "" : ", ") + known;
  }
  return all;
}

}  // namespace minisgl::text
