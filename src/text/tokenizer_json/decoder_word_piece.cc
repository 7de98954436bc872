// See decoder_word_piece.h.
#include "text/tokenizer_json/decoder_word_piece.h"

#include <string>
#include <string_view>
#include <utility>

namespace minisgl::text {
namespace {

// What the reference takes out of each token, after the space before it.
std::string CleanUp(std::string token) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    for (size_t at = token.find(from); at != std::string::npos; at = token.find(from, at)) {
      token.replace(at, from.size(), to);
      at += to.size();
    }
  }
  return token;
}

struct Rules {
  std::string prefix;
  bool cleans_up = true;

  std::string Decode(std::string token, bool is_first) const {
    if (!is_first) {
      if (!prefix.empty() && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else {
        token.insert(0, 1, ' ');
      }
    }
    return cleans_up ? CleanUp(std::move(token)) : token;
  }
};

class Stage : public DecoderStage {
 public:
  Stage(const Rules& rules, bool at_start) : rules_(rules), is_first_(at_start) {}
  void Push(std::string_view part, bool ends_token) override {
    token_ += part;
    if (!ends_token) return;
    next->Push(rules_.Decode(std::exchange(token_, std::string()), is_first_), true);
    is_first_ = false;
  }
  void Finish() override { next->Finish(); }

 private:
  const Rules& rules_;
  bool is_first_;
  std::string token_;
};

class WordPieceKind : public SpellingDecoder::Kind {
 public:
  explicit WordPieceKind(Rules rules) : rules_(std::move(rules)) {}
  std::unique_ptr<DecoderStage> Begin(bool at_start, bool) const override {
    return std::make_unique<Stage>(rules_, at_start);
  }
  std::string Bytes(std::string part, bool) const override {
    return rules_.Decode(std::move(part), /*is_first=*/false);
  }

 private:
  Rules rules_;
};

}  // namespace

Result<std::unique_ptr<const SpellingDecoder::Kind>> ReadWordPieceDecoder(const JsonPlace& place) {
  Rules rules;
  MINISGL_ASSIGN_OR_RETURN(rules.prefix, place["prefix"].String("##"));
  MINISGL_ASSIGN_OR_RETURN(rules.cleans_up, place["cleanup"].Bool(true));
  return std::unique_ptr<const SpellingDecoder::Kind>(
      std::make_unique<WordPieceKind>(std::move(rules)));
}

}  // namespace minisgl::text
