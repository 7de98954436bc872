// The expressions come from the tokenizer.json of each family; "default" and "falcon" have
// llama.cpp's.
#include "text/gguf_splits.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
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

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Numbers, then ideographs and kana, then signs with a word behind them, words, signs, spaces.
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Letters of scripts with two cases.
constexpr const char* kDeepseekLlmWords =
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A})"
    R"(\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)";
// Ideographs, kana, Hangul and what lies between, in two forms.
constexpr const char* kDeepseekV3Ideographs =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr const char* kDeepseekIdeographs =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr const char* kDeepseekLlmSigns =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";

// As kLlama3, but spaces end at powers of two.
constexpr const char* kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|)"
    R"(\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
// As kLlama3, but each line end is a word.
constexpr const char* kLfm25 = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                               R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* kBailing = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|)"
                                 R"( ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
    R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As kQwen2 without contractions, which Turkish suffixes look like.
constexpr const char* kUfakzeka =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As kLlama3 with numbers of any length, which are cut before.
constexpr const char* kMiniCpm5 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|)"
                                  R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words with single spaces between them are one.
constexpr const char* kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
// As kO200k, but ideographs are words of their own, and slashes end no word of signs.
constexpr const char* kKimiK2 =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As kO200k with single digits.
constexpr const char* kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Hangul, signs of East Asian scripts, Bopomofo, then ideographs and kana.
constexpr const char* kYoutuScripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|)"
    R"([\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C})"
    R"(\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|)"
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
// As kDeepseekV3, but each line end is a word.
constexpr const char* kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
// Ideographs, kana and scripts of South-East Asia.
constexpr const char* kAfmoeScripts =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})"
    R"(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF})"
    R"(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";
// Digits in threes from the right.
constexpr const char* kThrees = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
constexpr const char* kThreesOfWords = R"(\d{1,3}(?=(?:\d{3})*\b))";
// Words end at spaces and at marks of sentences in several scripts.
constexpr const char* kBloom =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";

constexpr GgufSplit kSplits[] = {
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .expressions = {kLlama3},
     .ignores_merges = true,
     .begins_with_bos = true},
    // "lfm2" in the files of LFM2.5-8B-A1B, too.
    {.names = "lfm2.5", .expressions = {kLfm25}, .ignores_merges = true, .begins_with_bos = true},
    {.names = "dbrx smaug-bpe chatglm-bpe", .expressions = {kLlama3}},
    {.names = "glm4 glm5", .expressions = {kLlama3}, .ignores_merges = true},
    {.names = "jais-2", .expressions = {kJais2}},
    {.names = "qwen2 deepseek-r1-qwen megrez kormo f2llmv2",
     .expressions = {kQwen2},
     .composes = true},
    {.names = "stablelm2 hunyuan grok-2 solar-open", .expressions = {kQwen2}},
    {.names = "laguna", .expressions = {R"([^\n]+|[\n]+)", kQwen2}},
    {.names = "ufakzeka", .expressions = {kUfakzeka}},
    {.names = "seed-coder", .expressions = {kSeedCoder}},
    {.names = "bailingmoe bailingmoe2 llada-moe", .expressions = {kBailing}},
    {.names = "minicpm5", .expressions = {R"(\p{N}{1,3})", kMiniCpm5}, .ignores_merges = true},
    {.names = "exaone-moe", .expressions = {kExaoneMoe}},
    {.names = "qwen35", .expressions = {kQwen35}, .composes = true},
    {.names = "gpt-4o llama4 kanana2 granite-embed-multi-97m",
     .expressions = {kO200k},
     .ignores_merges = true},
    {.names = "minimax-m2 talkie", .expressions = {kO200k}},
    {.names = "tiny_aya cohere2moe", .expressions = {kThreesOfWords, kO200k}},
    {.names = "youtu", .expressions = {kYoutuScripts, kYoutu}, .ignores_merges = true},
    {.names = "kimi-k2", .expressions = {kKimiK2}},
    {.names = "tekken", .expressions = {kTekken}, .ignores_merges = true, .begins_with_bos = true},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .expressions = {R"(\p{N}{1,3})", kDeepseekV3Ideographs, kDeepseekV3}},
    {.names = "spark2_5",
     .expressions = {R"(\p{N}{1,3})", kDeepseekV3Ideographs, kSpark, R"(\p{N})"}},
    {.names = "afmoe", .expressions = {kThrees, kAfmoeScripts, kDeepseekV3}},
    {.names = "deepseek-llm",
     .expressions = {R"([\r\n])", kDeepseekLlmWords, kDeepseekLlmSigns, R"(\s+$)",
                     kDeepseekIdeographs, R"(\p{N})"}},
    {.names = "deepseek-coder",
     .expressions = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekIdeographs, R"(\p{N})"}},
    {.names = "default",
     .expressions = {R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    {.names = "falcon", .expressions = {R"([\p{P}$+<=>^~|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
    {.names = "chameleon",
     .expressions = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", R"([\t\n]|    |  )", R"(\p{N})",
                     R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
     .begins_with_bos = true},
    {.names = "superbpe", .expressions = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
    {.names = "bloom poro-chat gpt3-finnish", .expressions = {kBloom}},
    {.names = "viking", .expressions = {kBloom, R"(\p{N})"}},
    {.names = "gpt-2 phi-2 mpt olmo exaone4 jais trillion granite-docling gigachat a.x-4.0 mellum "
              "modern-bert roberta-bpe jina-es jina-de jina-v1-en jina-v2-code jina-v2-es "
              "jina-v2-de"},
    {.names = "starcoder refact smollm command-r codeshell exaone minerva-7b mellum2",
     .single_digits = true},
};

constexpr const char* kUncut[] = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"};

}  // namespace

const GgufSplit* FindGgufSplit(std::string_view name, size_t num_tokens) {
  constexpr size_t kLfm2Tokens = size_t{1} << 16;
  if (name == "lfm2" && num_tokens > kLfm2Tokens) name = "lfm2.5";
  for (const GgufSplit& split : kSplits) {
    std::istringstream names(split.names);
    for (std::string known; names >> known;) {
      if (known == name) return &split;
    }
  }
  return nullptr;
}

bool IsUncut(std::string_view name) {
  return std::find(std::begin(kUncut), std::end(kUncut), name) != std::end(kUncut);
}

std::string GgufSplitNames() {
  std::string all;
  for (const GgufSplit& split : kSplits) {
    std::istringstream names(split.names);
    for (std::string known; names >> known;) all += (all.empty() ? "" : ", ") + known;
  }
  for (const char* name : kUncut) all += fmt::format(", {}", name);
  return all;
}

}  // namespace minisgl::text
