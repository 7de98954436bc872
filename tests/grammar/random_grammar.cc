#include "random_grammar.h"

#include "minisgl/base/check.h"

namespace minisgl {

RandomGrammar::RandomGrammar(uint32_t seed) {
  std::mt19937 random(seed);
  const int num_terminals = 2 + static_cast<int>(random() % 3);
  for (int i = 0; i < num_terminals; ++i) {
    TerminalText terminal;
    for (const char byte : std::string("abc")) {
      if (random() % 3 == 0) terminal.bytes.push_back(byte);
    }
    if (terminal.bytes.empty()) terminal.bytes = "b";
    if (random() % 3 == 0) {
      terminal.min = random() % 3;
      terminal.max = terminal.min + random() % 3;
      if (random() % 4 == 0) terminal.max = GrammarBuilder::kUnbounded;
    }
    terminals_.push_back(terminal);
  }
  const int num_rules = 1 + static_cast<int>(random() % 5);
  const auto symbol = [&] {
    return random() % 2 == 0 ? static_cast<int>(random() % static_cast<uint32_t>(num_rules))
                             : -1 - static_cast<int>(random() % terminals_.size());
  };
  for (int i = 0; i < num_rules; ++i) {
    RuleText rule;
    if (i > 0 && random() % 4 == 0) {
      rule.counted = true;
      rule.repeated = symbol();
      rule.min = random() % 3;
      rule.max = random() % 3 == 0 ? GrammarBuilder::kUnbounded : rule.min + random() % 3;
    } else {
      for (uint32_t j = 0, end = 1 + random() % 3; j < end; ++j) {
        std::vector<int> symbols;
        for (uint32_t k = 0, length = random() % 4; k < length; ++k) symbols.push_back(symbol());
        rule.alternatives.push_back(symbols);
      }
    }
    rules_.push_back(rule);
  }
}

Symbol RandomGrammar::Build(GrammarBuilder* builder) const {
  ExpressionSet& e = builder->expressions();
  std::vector<Symbol> terminals, rules;
  for (const TerminalText& terminal : terminals_) {
    ByteSet bytes;
    for (const char byte : terminal.bytes) bytes.Add(static_cast<uint8_t>(byte));
    terminals.push_back(builder->Terminal(e.Repeat(e.Bytes(bytes), terminal.min, terminal.max)));
  }
  for (size_t i = 0; i < rules_.size(); ++i) rules.push_back(builder->Declare(std::to_string(i)));
  const auto symbol = [&](int code) {
    return code < 0 ? terminals[static_cast<size_t>(-1 - code)] : rules[static_cast<size_t>(code)];
  };
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].counted) {
      const Symbol repeated = symbol(rules_[i].repeated);
      builder->AddAlternative(rules[i], {builder->Repeat(repeated, rules_[i].min, rules_[i].max)});
    }
    for (const auto& alternative : rules_[i].alternatives) {
      std::vector<Symbol> symbols;
      for (const int code : alternative) symbols.push_back(symbol(code));
      builder->AddAlternative(rules[i], symbols);
    }
  }
  return rules[0];
}

// Which rules derive which spans, by iteration until nothing changes. Sets of places in the text
// are bits.
class RandomGrammar::Spans {
 public:
  // REQUIRES a text of fewer than 64 bytes.
  Spans(const RandomGrammar& grammar, std::string_view text)
      : grammar_(grammar),
        text_(text),
        ends_(grammar.rules_.size(), std::vector<uint64_t>(text.size() + 1, 0)) {
    MINISGL_CHECK(text.size() < 64, "a text of {} bytes", text.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t rule = 0; rule < ends_.size(); ++rule) {
        for (size_t begin = 0; begin <= text.size(); ++begin) {
          const uint64_t before = ends_[rule][begin];
          ends_[rule][begin] |= EndsOf(grammar.rules_[rule], begin);
          changed = changed || ends_[rule][begin] != before;
        }
      }
    }
  }
  bool Holds(size_t rule, size_t begin, size_t end) const {
    return (ends_[rule][begin] >> end & 1) != 0;
  }

 private:
  // Where `code` may end if it begins at each of `begins`.
  uint64_t Advance(int code, uint64_t begins) const {
    uint64_t ends = 0;
    for (size_t begin = 0; begin <= text_.size(); ++begin) {
      if ((begins >> begin & 1) == 0) continue;
      ends |= code >= 0 ? ends_[static_cast<size_t>(code)][begin]
                        : EndsOf(grammar_.terminals_[static_cast<size_t>(-1 - code)], begin);
    }
    return ends;
  }
  uint64_t EndsOf(const TerminalText& terminal, size_t begin) const {
    uint64_t ends = 0;
    for (size_t end = begin; end - begin <= terminal.max; ++end) {
      if (end - begin >= terminal.min) ends |= uint64_t{1} << end;
      if (end == text_.size() || terminal.bytes.find(text_[end]) == std::string::npos) break;
    }
    return ends;
  }
  uint64_t EndsOf(const RuleText& rule, size_t begin) const {
    uint64_t all = 0;
    for (const auto& alternative : rule.alternatives) {
      uint64_t places = uint64_t{1} << begin;
      for (const int code : alternative) places = Advance(code, places);
      all |= places;
    }
    if (rule.counted) {
      uint64_t places = uint64_t{1} << begin;
      // Further copies than there are bytes, and some, add nothing.
      for (uint32_t count = 0; count <= rule.max && count <= rule.min + text_.size() + 1; ++count) {
        if (count >= rule.min) all |= places;
        places = Advance(rule.repeated, places);
      }
    }
    return all;
  }

  const RandomGrammar& grammar_;
  std::string_view text_;
  std::vector<std::vector<uint64_t>> ends_;  // of each rule, from each place
};

bool RandomGrammar::Matches(std::string_view text) const {
  return Spans(*this, text).Holds(0, 0, text.size());
}

std::string RandomGrammar::Describe() const {
  std::string text;
  const auto symbol = [&](int code) {
    return code >= 0 ? "r" + std::to_string(code) : "t" + std::to_string(-1 - code);
  };
  for (size_t i = 0; i < terminals_.size(); ++i) {
    text += "t" + std::to_string(i) + " = [" + terminals_[i].bytes + "]{" +
            std::to_string(terminals_[i].min) + "," + std::to_string(terminals_[i].max) + "}\n";
  }
  for (size_t i = 0; i < rules_.size(); ++i) {
    text += "r" + std::to_string(i) + " =";
    if (rules_[i].counted) {
      text += " " + symbol(rules_[i].repeated) + "{" + std::to_string(rules_[i].min) + "," +
              std::to_string(rules_[i].max) + "}";
    }
    for (const auto& alternative : rules_[i].alternatives) {
      text += " |";
      for (const int code : alternative) text += " " + symbol(code);
    }
    text += "\n";
  }
  return text;
}

}  // namespace minisgl
