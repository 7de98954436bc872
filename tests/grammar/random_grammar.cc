#include "random_grammar.h"

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

// Which rules derive which spans, by iteration until nothing changes.
class RandomGrammar::Spans {
 public:
  Spans(const RandomGrammar& grammar, std::string_view text) : grammar_(grammar), text_(text) {
    const size_t size = (text.size() + 1) * (text.size() + 1);
    holds_.assign(grammar.rules_.size(), std::vector<bool>(size, false));
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t rule = 0; rule < holds_.size(); ++rule) {
        for (size_t begin = 0; begin <= text.size(); ++begin) {
          for (size_t end : Ends(rule, begin)) {
            if (holds_[rule][At(begin, end)]) continue;
            holds_[rule][At(begin, end)] = true;
            changed = true;
          }
        }
      }
    }
  }
  bool Holds(size_t rule, size_t begin, size_t end) const { return holds_[rule][At(begin, end)]; }

 private:
  size_t At(size_t begin, size_t end) const { return begin * (text_.size() + 1) + end; }

  // Where `code` may end if it begins at each of `begins`.
  std::vector<bool> Advance(int code, const std::vector<bool>& begins) const {
    std::vector<bool> ends(text_.size() + 1, false);
    for (size_t begin = 0; begin <= text_.size(); ++begin) {
      if (!begins[begin]) continue;
      for (size_t end = begin; end <= text_.size(); ++end) {
        if (code >= 0 ? Holds(static_cast<size_t>(code), begin, end)
                      : IsTerminal(static_cast<size_t>(-1 - code), begin, end)) {
          ends[end] = true;
        }
      }
    }
    return ends;
  }
  bool IsTerminal(size_t index, size_t begin, size_t end) const {
    const TerminalText& terminal = grammar_.terminals_[index];
    if (end - begin < terminal.min || end - begin > terminal.max) return false;
    const std::string_view span = text_.substr(begin, end - begin);
    return span.find_first_not_of(terminal.bytes) == std::string_view::npos;
  }
  std::vector<size_t> Ends(size_t rule, size_t begin) const {
    std::vector<bool> all(text_.size() + 1, false);
    const auto add = [&](const std::vector<bool>& ends) {
      for (size_t i = 0; i < all.size(); ++i) all[i] = all[i] || ends[i];
    };
    std::vector<bool> begins(text_.size() + 1, false);
    begins[begin] = true;
    const RuleText& from = grammar_.rules_[rule];
    for (const auto& alternative : from.alternatives) {
      std::vector<bool> places = begins;
      for (const int code : alternative) places = Advance(code, places);
      add(places);
    }
    if (from.counted) {
      std::vector<bool> places = begins;
      // Further copies than there are bytes, and some, add nothing.
      for (uint32_t count = 0; count <= from.max && count <= from.min + text_.size() + 1; ++count) {
        if (count >= from.min) add(places);
        places = Advance(from.repeated, places);
      }
    }
    std::vector<size_t> ends;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i]) ends.push_back(i);
    }
    return ends;
  }

  const RandomGrammar& grammar_;
  std::string_view text_;
  std::vector<std::vector<bool>> holds_;
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
