// Times of compiling and of masks, for grammar_masks.py.
//
//   bench_grammar_masks VOCABULARY CASES
//
// VOCABULARY: a token a line, its bytes in hexadecimal; an empty line is a control token, the last
// one the end. CASES: JSON Lines of {"name", "gbnf" or "json_schema", "texts"}. Texts are cut into
// the longest tokens; before each a mask is filled. Prints a JSON object a case: compile_us, and
// mask_us in order, each grammar compiled anew for its texts: processor time of the thread.
#include <fmt/core.h>
#include <time.h>

#include <chrono>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/matcher.h"
#include "minisgl/grammar/token_masks.h"

namespace minisgl {
namespace {

// Other processes of a busy machine do not count.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using time_point = duration;
  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

int HexValue(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

std::vector<std::string> ReadVocabulary(const char* path) {
  std::vector<std::string> tokens;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::string token;
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      token.push_back(static_cast<char>(HexValue(line[i]) * 16 + HexValue(line[i + 1])));
    }
    tokens.push_back(token);
  }
  return tokens;
}

class Cutter {
 public:
  explicit Cutter(const std::vector<std::string>& tokens) {
    for (size_t id = 0; id < tokens.size(); ++id) {
      ids_.emplace(tokens[id], id);
      longest_ = std::max(longest_, tokens[id].size());
    }
  }
  // The bytes of each token of `text`; what begins with no token is left out.
  std::vector<size_t> Lengths(std::string_view text) const {
    std::vector<size_t> lengths;
    while (const size_t length = Length(text)) {
      lengths.push_back(length);
      text.remove_prefix(length);
    }
    return lengths;
  }

 private:
  // Bytes of the longest token at the beginning of `text`; 0 if there is none.
  size_t Length(std::string_view text) const {
    size_t length = std::min(longest_, text.size());
    while (length > 0 && ids_.count(std::string(text.substr(0, length))) == 0) --length;
    return length;
  }

  std::unordered_map<std::string, size_t> ids_;
  size_t longest_ = 0;
};

Json RunCase(const Json& test, const TokenMasks& masks, const Cutter& cutter) {
  GrammarText text;
  const Json* gbnf = test.Find("gbnf");
  text.kind = gbnf != nullptr ? GrammarKind::kGbnf : GrammarKind::kJsonSchema;
  text.text = gbnf != nullptr ? gbnf->as_string() : test.Find("json_schema")->Dump();
  Json result;
  result.Set("name", *test.Find("name"));
  const Clock::time_point compile_begin = Clock::now();
  auto grammar = CompileGrammar(text);
  result.Set("compile_us", MicrosecondsSince(compile_begin));
  if (!grammar.ok()) return result.Set("error", grammar.status().message());
  Json::Array times, allowed;
  std::vector<uint32_t> mask(masks.num_words());
  bool all = true;
  for (const Json& answer : test.Find("texts")->as_array()) {
    Matcher matcher(*grammar);
    std::string_view rest = answer.as_string();
    // Cut before masks are timed: the table of tokens would push the masks' out of the caches.
    const std::vector<size_t> lengths = cutter.Lengths(rest);
    for (size_t token = 0;; ++token) {
      const Clock::time_point begin = Clock::now();
      masks.Fill(matcher, mask);
      times.emplace_back(MicrosecondsSince(begin));
      int64_t bits = 0;
      for (const uint32_t word : mask) bits += __builtin_popcount(word);
      allowed.emplace_back(bits);
      if (rest.empty()) break;
      if (token == lengths.size() || !matcher.Accept(rest.substr(0, lengths[token]))) {
        all = false;
        break;
      }
      rest.remove_prefix(lengths[token]);
    }
    all = all && matcher.IsAccepting();
  }
  result.Set("accepted", all).Set("mask_us", Json(std::move(times)));
  return result.Set("allowed", Json(std::move(allowed)));
}

int Run(const char* vocabulary, const char* cases) {
  const std::vector<std::string> tokens = ReadVocabulary(vocabulary);
  const Clock::time_point begin = Clock::now();
  const TokenMasks masks(tokens, std::vector<TokenId>{static_cast<TokenId>(tokens.size()) - 1});
  fmt::print(stderr, "{} tokens prepared in {:.0f} ms\n", tokens.size(),
             MicrosecondsSince(begin) / 1000);
  const Cutter cutter(tokens);
  std::ifstream in(cases);
  for (std::string line; std::getline(in, line);) {
    auto test = ParseJson(line);
    if (!test.ok()) {
      fmt::print(stderr, "{}\n", test.status().message());
      return 1;
    }
    fmt::print("{}\n", RunCase(*test, masks, cutter).Dump());
  }
  return 0;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return minisgl::Run(argv[1], argv[2]);
}
