// Search and replacement. Literals are searched from left to right, without overlap.
#include "text/tokenizer_json/pattern.h"

#include "minisgl/base/utf8.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::text {

Result<Pattern> Pattern::Read(const JsonPlace& place) {
  if (!place.json().is_object()) return place.MustBe("an object with \"String\" or \"Regex\"");
  const JsonPlace literal = place["String"], regex = place["Regex"];
  if (!literal.is_null()) {
    MINISGL_ASSIGN_OR_RETURN(std::string text, literal.String());
    if (text.empty()) return literal.Error("is empty");
    if (text.size() > kPieceBytesMax) return literal.Error("has {} bytes", text.size());
    return Literal(std::move(text));
  }
  MINISGL_ASSIGN_OR_RETURN(const std::string text, regex.String());
  Result<Regex> compiled = Regex::Compile(text);
  if (!compiled.ok()) return compiled.status().WithPrefix(regex.path());
  return Pattern(std::move(*compiled));
}

Status Pattern::FindAllIn(std::string_view text, const std::vector<TextRange>& words,
                          std::vector<TextRange>* matches) const {
  if (regex_) return regex_->FindAllIn(text, words, matches);
  for (const TextRange& word : words) {
    const std::string_view whole = text.substr(0, word.end);
    for (size_t at = whole.find(literal_, word.begin); at != std::string_view::npos;) {
      matches->push_back({at, at + literal_.size()});
      at = whole.find(literal_, at + literal_.size());
    }
  }
  return {};
}

Status Pattern::ReplaceAll(std::string_view by, std::string* text) const {
  constexpr size_t kMatchesAtOnce = 1024;
  MINISGL_ASSIGN_OR_RETURN(Search search, Search::Create(this, *text));
  search.Begin({0, text->size()});
  std::vector<TextRange> matches;
  std::string replaced;
  size_t at = 0;
  bool any = false;
  for (bool more = true; more && replaced.size() <= kTextBytesMax;) {
    matches.clear();
    MINISGL_ASSIGN_OR_RETURN(more, search.Next(kMatchesAtOnce, &matches));
    for (const TextRange& match : matches) {
      replaced.append(*text, at, match.begin - at);
      replaced += by;
      at = match.end;
    }
    any = any || !matches.empty();
  }
  if (!any) return {};
  replaced.append(*text, at, std::string::npos);
  if (replaced.size() > kTextBytesMax) {
    return BadInput("the text is too long after normalisation (more than {} MiB); shorten it",
                    kTextBytesMax >> 20);
  }
  *text = std::move(replaced);
  return {};
}

Result<Pattern::Search> Pattern::Search::Create(const Pattern* pattern, std::string_view text) {
  Search search(pattern, text);
  search.whole_text_ = text;
  if (pattern->regex_) {
    MINISGL_ASSIGN_OR_RETURN(RegexSearch regex, RegexSearch::Create(&*pattern->regex_, text));
    search.regex_.emplace(std::move(regex));
  }
  return search;
}

void Pattern::Search::Begin(const TextRange& word) {
  if (regex_) return regex_->Begin(word);
  text_ = whole_text_.substr(0, word.end);
  at_ = word.begin;
}

Result<bool> Pattern::Search::Next(size_t count, std::vector<TextRange>* matches) {
  if (regex_) return regex_->Next(count, matches);
  const std::string& literal = pattern_->literal_;
  for (; count > 0; --count) {
    const size_t found = text_.find(literal, at_);
    if (found == std::string_view::npos) return false;
    at_ = found + literal.size();
    matches->push_back({found, at_});
  }
  return true;
}

Result<std::string> ReadOneCharacter(const JsonPlace& place, std::string_view otherwise) {
  if (place.is_null() && !otherwise.empty()) return std::string(otherwise);
  MINISGL_ASSIGN_OR_RETURN(std::string text, place.String());
  if (text.empty() || Utf8CharLength(text) != text.size()) {
    return place.Error("is \"{}\"; it must be one character", Visible(text));
  }
  return text;
}

}  // namespace minisgl::text
