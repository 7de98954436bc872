#include "cli/grammar_rows.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <unordered_map>
#include <utility>

#include "minisgl/base/json_scanner.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Token = JsonScanner::Token;

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

int SurrogateAt(std::string_view line, size_t at) {
  // \uD800: 0 for a high one, 1 for a low one, -1 for anything else.
  if (at + 6 > line.size() || line[at] != '\\' || line[at + 1] != 'u') return -1;
  if ((line[at + 2] | 0x20) != 'd') return -1;
  const char nibble = static_cast<char>(line[at + 3] | 0x20);
  if (nibble == '8' || nibble == '9' || nibble == 'a' || nibble == 'b') return 0;
  return nibble >= 'c' && nibble <= 'f' ? 1 : -1;
}

// `line` with lone surrogates and ill-formed bytes replaced by something of the same length, so
// that it can be scanned: parts that changed are not Unicode.
std::string WithoutNonUnicode(std::string_view line) {
  std::string sound(line);
  for (size_t i = 0; i < line.size();) {
    const size_t length = Utf8CharLength(line.substr(i));
    if (length == 0) sound[i] = '?';
    if (line[i] != '\\') {
      i += std::max<size_t>(length, 1);
      continue;
    }
    const int surrogate = SurrogateAt(line, i);
    if (surrogate == 0 && SurrogateAt(line, i + 6) == 1) {
      i += 12;
    } else {
      if (surrogate >= 0) sound.replace(i, 6, "\\uFFFD");
      i += 2;
    }
  }
  return sound;
}

class RowReader {
 public:
  RowReader(const std::string& line, GrammarRow* row)
      : line_(line), sound_(WithoutNonUnicode(line)), row_(*row) {}

  Status Read() {
    JsonScanner scanner(sound_, kJsonDepthMax);
    if (!scanner.Next()) return scanner.status();
    if (scanner.token() != Token::kBeginObject) return BadInput("a row must be an object");
    Status first_error;
    const auto note = [&](Status status) {
      if (first_error.ok()) first_error = std::move(status);
    };
    while (scanner.Next() && scanner.token() == Token::kKey) {
      const std::string key = UnquoteJson(scanner.raw());
      std::string_view raw;
      if (!scanner.SkipValue(&raw)) break;
      if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) {
        note(BadInput("a second field \"{}\"", Visible(key)));
        continue;
      }
      keys_.push_back(key);
      note(ReadMember(key, raw));
    }
    if (scanner.status().ok()) scanner.Next();
    MINISGL_RETURN_IF_ERROR(scanner.status());
    MINISGL_RETURN_IF_ERROR(first_error);
    if (num_constraints_ != 1) {
      return BadInput("{} constraints; give one of json_schema, regex, choice, grammar",
                      num_constraints_ == 0 ? "no" : "several");
    }
    if (!has_texts_) return BadInput("texts is missing; give an array of strings");
    return {};
  }

 private:
  bool IsUnicode(std::string_view raw) const {
    const auto begin = static_cast<size_t>(raw.data() - sound_.data());
    return std::string_view(line_).substr(begin, raw.size()) == raw;
  }

  Status ReadMember(const std::string& key, std::string_view raw) {
    if (key == "texts") return ReadTexts(raw);
    if (key == "id") {
      MINISGL_ASSIGN_OR_RETURN(Json id, ParseJson(raw));
      if (id.is_array() || id.is_object()) return BadInput("id must be a string or a number");
      // A number as it is spelled: it may have more digits than a Json keeps.
      row_.id = id.is_number() ? std::string(raw) : id.Dump();
      return {};
    }
    GrammarText& grammar = row_.grammar;
    if (key == "json_schema") {
      grammar.kind = GrammarKind::kJsonSchema;
      grammar.text = std::string(raw);
    } else if (key == "regex" || key == "grammar") {
      grammar.kind = key == "regex" ? GrammarKind::kRegularExpression : GrammarKind::kGbnf;
      if (raw[0] == '"') grammar.text = UnquoteJson(raw);
    } else if (key == "choice") {
      grammar.kind = GrammarKind::kChoice;
    } else {
      return BadInput("unknown field \"{}\"", Visible(key));
    }
    ++num_constraints_;
    if (!IsUnicode(raw)) return BadInput("{} is not Unicode", key);
    if (key == "choice") return ReadChoices(raw);
    if (key == "json_schema") {
      if (raw[0] != '{' && raw[0] != 't' && raw[0] != 'f') {
        return BadInput("json_schema must be an object or a boolean (found {})", JsonTypeName(raw));
      }
    } else if (raw[0] != '"') {
      return BadInput("{} must be a string (found {})", key, JsonTypeName(raw));
    }
    return {};
  }

  Status ReadTexts(std::string_view raw) {
    has_texts_ = true;
    return ReadStrings("texts", raw, [&](std::string_view element) {
      row_.texts.emplace_back();
      if (IsUnicode(element)) row_.texts.back() = UnquoteJson(element);
    });
  }

  Status ReadChoices(std::string_view raw) {
    return ReadStrings("choice", raw, [&](std::string_view element) {
      row_.grammar.choices.push_back(UnquoteJson(element));
    });
  }

  template <typename Take>
  Status ReadStrings(const char* key, std::string_view raw, const Take& take) {
    JsonScanner scanner(raw, kJsonDepthMax);
    if (!scanner.Next()) return scanner.status();
    bool all_strings = scanner.token() == Token::kBeginArray;
    while (all_strings && scanner.Next() && scanner.token() != Token::kEndArray) {
      all_strings = scanner.token() == Token::kString;
      if (all_strings) take(scanner.raw());
    }
    if (!all_strings) return BadInput("{} must be an array of strings", key);
    return {};
  }

  const std::string& line_;
  const std::string sound_;
  GrammarRow& row_;
  std::vector<std::string> keys_;
  int num_constraints_ = 0;
  bool has_texts_ = false;
};

std::vector<std::string> TokenBytes(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    bytes.push_back(tokenizer.IsSpecial(id) ? std::string() : tokenizer.PieceBytes(id));
  }
  return bytes;
}

std::vector<TokenId> EndOf(const Tokenizer& tokenizer) {
  const auto end = tokenizer.eos_id();
  return end ? std::vector<TokenId>{*end} : std::vector<TokenId>{};
}

struct MaskTimes {
  double sum_us = 0, max_us = 0;
  int64_t count = 0;
};

// Fills a mask before each token of `text`, which is cut into the longest tokens that the masks
// allow.
void TimeMasks(const std::shared_ptr<const CompiledGrammar>& grammar, const std::string& text,
               const Vocabulary& vocabulary, const std::unordered_map<std::string, TokenId>& ids,
               MaskTimes* times) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(vocabulary.masks.num_words());
  for (size_t at = 0;;) {
    const Clock::time_point begin = Clock::now();
    vocabulary.masks.Fill(matcher, mask);
    const double us = MicrosecondsSince(begin);
    times->sum_us += us;
    times->max_us = std::max(times->max_us, us);
    ++times->count;
    size_t length = std::min(text.size() - at, vocabulary.bytes_max);
    for (; length > 0; --length) {
      const auto found = ids.find(text.substr(at, length));
      if (found == ids.end()) continue;
      const auto id = static_cast<size_t>(found->second);
      if ((mask[id / 32] >> (id % 32) & 1) != 0) break;
    }
    if (length == 0 || !matcher.Accept(std::string_view(text).substr(at, length))) return;
    at += length;
  }
}

}  // namespace

Status ParseGrammarRow(const std::string& line, GrammarRow* row) {
  return RowReader(line, row).Read();
}

Vocabulary::Vocabulary(const Tokenizer& tokenizer)
    : bytes(TokenBytes(tokenizer)), masks(bytes, EndOf(tokenizer)) {
  for (const std::string& token : bytes) bytes_max = std::max(bytes_max, token.size());
}

std::string JudgeGrammarRow(const GrammarRow& row, const Status& read, const Vocabulary* vocabulary,
                            bool* compiled) {
  Json error;
  std::shared_ptr<const CompiledGrammar> grammar;
  const Clock::time_point compile_begin = Clock::now();
  if (read.ok()) {
    auto result = CompileGrammar(row.grammar);
    if (result.ok()) {
      grammar = *result;
    } else {
      error.Set("code", "invalid_grammar").Set("message", result.status().message());
    }
  } else {
    error.Set("code", "invalid_row").Set("message", read.message());
  }
  const double compile_us = read.ok() ? MicrosecondsSince(compile_begin) : 0;
  Json::Array accepted;
  const Clock::time_point check_begin = Clock::now();
  for (const auto& text : row.texts) {
    bool accepts = false;
    if (grammar != nullptr && text) MatchText(*grammar, *text, &accepts);
    accepted.emplace_back(accepts);
  }
  const double check_us = grammar != nullptr ? MicrosecondsSince(check_begin) : 0;
  Json out;
  out.Set("compiled", grammar != nullptr).Set("error", std::move(error));
  if (grammar != nullptr && !grammar->warnings().empty()) {
    Json::Array warnings;
    for (const std::string& warning : grammar->warnings()) warnings.emplace_back(warning);
    out.Set("warnings", Json(std::move(warnings)));
  }
  out.Set("accepted", Json(std::move(accepted)));
  out.Set("compile_us", compile_us).Set("check_us", check_us);
  if (vocabulary != nullptr && grammar != nullptr) {
    std::unordered_map<std::string, TokenId> ids;
    for (size_t id = 0; id < vocabulary->bytes.size(); ++id) {
      if (!vocabulary->bytes[id].empty()) {
        ids.emplace(vocabulary->bytes[id], static_cast<TokenId>(id));
      }
    }
    MaskTimes times;
    for (const auto& text : row.texts) {
      if (text) TimeMasks(grammar, *text, *vocabulary, ids, &times);
    }
    const double mean = times.count == 0 ? 0 : times.sum_us / static_cast<double>(times.count);
    out.Set("mask_us_mean", mean).Set("mask_us_max", times.max_us);
  }
  *compiled = grammar != nullptr;
  return "{\"id\": " + row.id + ", " + out.Dump().substr(1) + '\n';
}

}  // namespace minisgl::cli
