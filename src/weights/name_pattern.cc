// See name_pattern.h. A pattern is compiled to the steps of a nondeterministic machine, of which
// all states are followed at once.
#include "weights/name_pattern.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::weights {
namespace {

constexpr size_t kPatternBytesMax = 4096;
constexpr size_t kStepsMax = 20000;
constexpr int kGroupDepthMax = 50;
constexpr int64_t kRepeatMax = 1000;

using ByteSet = std::bitset<256>;

size_t At(char c) { return static_cast<unsigned char>(c); }

ByteSet BytesFrom(char first, char last) {
  ByteSet set;
  for (size_t byte = At(first); byte <= At(last); ++byte) set.set(byte);
  return set;
}

// The class that `letter` names behind a backslash; nullopt if it names none.
std::optional<ByteSet> NamedClass(char letter) {
  ByteSet set;
  switch (letter) {
    case 'd':
    case 'D':
      set = BytesFrom('0', '9');
      break;
    case 'w':
    case 'W':
      set = BytesFrom('0', '9') | BytesFrom('a', 'z') | BytesFrom('A', 'Z');
      set.set(At('_'));
      break;
    case 's':
    case 'S':
      for (const char c : {' ', '\t', '\n', '\r', '\f', '\v'}) set.set(At(c));
      break;
    default:
      return std::nullopt;
  }
  return letter >= 'A' && letter <= 'Z' ? ~set : set;
}

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

// Reads a tree of parts, then emits the steps of each.
class NamePatternParser {
 public:
  explicit NamePatternParser(std::string_view pattern) : text_(pattern) {}

  Result<NamePattern> Run() {
    if (text_.size() > kPatternBytesMax) {
      return BadInput("a pattern of {} bytes; at most {} are read", text_.size(), kPatternBytesMax);
    }
    const Part all = ParseAlternatives(0);
    if (status_.ok() && at_ < text_.size()) Fail("\")\" without its \"(\"");
    if (status_.ok()) EmitPart(all);
    if (!status_.ok()) return status_.WithPrefix("\"" + Visible(text_, 200) + "\"");
    Emit({.kind = Kind::kMatch});
    return std::move(pattern_);
  }

 private:
  using Kind = NamePattern::Kind;
  using Step = NamePattern::Step;

  struct Part {
    enum class Of : uint8_t { kSet, kBegin, kEnd, kSequence, kAlternatives, kRepeat };
    Of of = Of::kSequence;
    ByteSet set;              // of kSet
    std::vector<Part> parts;  // of the last three; kRepeat has one
    int64_t least = 0;        // of kRepeat
    std::optional<int64_t> most;
  };

  bool More() const { return status_.ok() && at_ < text_.size(); }
  bool Take(char c) {
    if (!More() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = BadInput("{} at byte {}", what, at_);
  }

  Part ParseAlternatives(int depth) {
    Part all = {.of = Part::Of::kAlternatives};
    if (depth > kGroupDepthMax) {
      Fail("groups nested too deeply");
      return all;
    }
    do {
      Part sequence;
      while (More() && text_[at_] != '|' && text_[at_] != ')') {
        Part atom = ParseAtom(depth);
        sequence.parts.push_back(ParseQuantifier(std::move(atom)));
      }
      all.parts.push_back(std::move(sequence));
    } while (Take('|'));
    return all;
  }

  static Part OfSet(const ByteSet& set) { return {.of = Part::Of::kSet, .set = set}; }

  Part ParseAtom(int depth) {
    const char c = text_[at_++];
    switch (c) {
      case '(': {
        if (Take('?') && !Take(':')) Fail("look-around, a name or flags of a group");
        Part group = ParseAlternatives(depth + 1);
        if (!Take(')')) Fail("\"(\" without its \")\"");
        return group;
      }
      case '[':
        return ParseClass();
      case '.':
        return OfSet(~BytesFrom('\n', '\n'));
      case '^':
        return {.of = Part::Of::kBegin};
      case '$':
        return {.of = Part::Of::kEnd};
      case '*':
      case '+':
      case '?':
        Fail("a quantifier behind nothing");
        return {};
      case '\\':
        return OfSet(ParseEscape());
      default:
        return OfSet(BytesFrom(c, c));
    }
  }

  ByteSet ParseEscape() {
    if (!More()) {
      Fail("a backslash at the end");
      return {};
    }
    const char c = text_[at_++];
    if (const auto set = NamedClass(c)) return *set;
    if (IsLetterOrDigit(c)) Fail("an escape that is not supported");
    return BytesFrom(c, c);
  }

  Part ParseClass() {
    const bool negates = Take('^');
    ByteSet set;
    bool is_first = true;
    while (More() && (text_[at_] != ']' || is_first)) {
      is_first = false;
      const char first = text_[at_++];
      if (first == '\\') {
        set |= ParseEscape();
        continue;
      }
      const bool is_range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      const char last = is_range ? text_[at_ + 1] : first;
      if (is_range) at_ += 2;
      if (At(last) < At(first) || last == '\\') Fail("a range of a class");
      set |= BytesFrom(first, last);
    }
    if (!Take(']')) Fail("\"[\" without its \"]\"");
    return OfSet(negates ? ~set : set);
  }

  // Reads "m}", "m,}", "m,n}" or ",n}"; without a change if it is none of them.
  bool ParseCounts(Part* repeat) {
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return false;
    const std::string_view inner = text_.substr(at_, end - at_);
    const size_t comma = inner.find(',');
    const bool is_one = comma == std::string_view::npos;
    const std::string_view low = inner.substr(0, comma);
    const std::string_view high = is_one ? low : inner.substr(comma + 1);
    const auto least =
        low.empty() && !is_one ? std::optional<int64_t>(0) : ParseNumber<int64_t>(low);
    const auto most = ParseNumber<int64_t>(high);
    if (!least || (!most && !high.empty())) return false;
    repeat->least = *least;
    repeat->most = most;
    at_ = end + 1;
    return true;
  }

  Part ParseQuantifier(Part atom) {
    Part repeat = {.of = Part::Of::kRepeat};
    const size_t before = at_;
    if (Take('+')) {
      repeat.least = 1;
    } else if (Take('?')) {
      repeat.most = 1;
    } else if (Take('{')) {
      if (!ParseCounts(&repeat)) at_ = before;  // a brace that means itself
    } else {
      Take('*');
    }
    if (at_ == before) {
      if (!More() || text_[at_] != '{') return atom;
      ++at_;
      Part both;
      both.parts = {std::move(atom), OfSet(BytesFrom('{', '{'))};
      return both;
    }
    const int64_t last = repeat.most.value_or(repeat.least);
    if (repeat.least < 0 || last < repeat.least || last > kRepeatMax) {
      Fail("a number of repetitions");
    }
    Take('?');  // the same names match
    const bool is_twice = More() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?');
    if (is_twice) Fail("two quantifiers");
    repeat.parts.push_back(std::move(atom));
    return repeat;
  }

  int32_t size() const { return static_cast<int32_t>(pattern_.steps_.size()); }
  Step& StepAt(int32_t at) { return pattern_.steps_[static_cast<size_t>(at)]; }

  // Appends a step that leads to the next one. Returns its place.
  int32_t Emit(Step step) {
    if (pattern_.steps_.size() >= kStepsMax) Fail("more repetitions than are followed");
    if (!status_.ok()) return 0;
    step.next = step.other = size() + 1;
    pattern_.steps_.push_back(step);
    return size() - 1;
  }

  void EmitPart(const Part& part) {
    if (++num_emitted_ > kStepsMax) Fail("more repetitions than are followed");
    if (!status_.ok()) return;
    switch (part.of) {
      case Part::Of::kSet:
        StepAt(Emit({.kind = Kind::kByte})).other = static_cast<int32_t>(pattern_.sets_.size());
        pattern_.sets_.push_back(part.set);
        return;
      case Part::Of::kBegin:
        Emit({.kind = Kind::kBegin});
        return;
      case Part::Of::kEnd:
        Emit({.kind = Kind::kEnd});
        return;
      case Part::Of::kSequence:
        for (const Part& one : part.parts) EmitPart(one);
        return;
      case Part::Of::kAlternatives:
        return EmitAlternatives(part.parts);
      case Part::Of::kRepeat:
        return EmitRepeat(part);
    }
  }

  void EmitAlternatives(const std::vector<Part>& parts) {
    std::vector<int32_t> ends;
    for (size_t i = 0; i < parts.size() && status_.ok(); ++i) {
      const bool is_last = i + 1 == parts.size();
      const int32_t split = is_last ? 0 : Emit({.kind = Kind::kSplit});
      EmitPart(parts[i]);
      if (is_last) break;
      ends.push_back(Emit({.kind = Kind::kSplit}));
      if (status_.ok()) StepAt(split).other = size();
    }
    if (!status_.ok()) return;
    for (const int32_t end : ends) StepAt(end).next = StepAt(end).other = size();
  }

  void EmitRepeat(const Part& repeat) {
    const Part& part = repeat.parts[0];
    for (int64_t i = 0; i < repeat.least; ++i) EmitPart(part);
    if (!repeat.most) {
      const int32_t loop = Emit({.kind = Kind::kSplit});
      EmitPart(part);
      const int32_t back = Emit({.kind = Kind::kSplit});
      if (!status_.ok()) return;
      StepAt(back).next = StepAt(back).other = loop;
      StepAt(loop).other = size();
      return;
    }
    std::vector<int32_t> splits;
    for (int64_t i = repeat.least; i < *repeat.most && status_.ok(); ++i) {
      splits.push_back(Emit({.kind = Kind::kSplit}));
      EmitPart(part);
    }
    if (!status_.ok()) return;
    for (const int32_t split : splits) StepAt(split).other = size();
  }

  const std::string_view text_;
  size_t at_ = 0;
  Status status_;
  NamePattern pattern_;
  size_t num_emitted_ = 0;  // a part without steps may be repeated, too
};

Result<NamePattern> NamePattern::Parse(std::string_view pattern) {
  return NamePatternParser(pattern).Run();
}

bool NamePattern::Matches(std::string_view name) const {
  std::vector<int32_t> now, next, stack;
  std::vector<size_t> seen(steps_.size(), name.size() + 1);  // the place at which it was reached
  const auto reach = [&](int32_t from, size_t place, std::vector<int32_t>* states) {
    stack.assign(1, from);
    while (!stack.empty()) {
      const int32_t at = stack.back();
      stack.pop_back();
      size_t& reached = seen[static_cast<size_t>(at)];
      if (reached == place) continue;
      reached = place;
      const Step& step = steps_[static_cast<size_t>(at)];
      switch (step.kind) {
        case Kind::kSplit:
          stack.push_back(step.next);
          stack.push_back(step.other);
          break;
        case Kind::kBegin:
          if (place == 0) stack.push_back(step.next);
          break;
        case Kind::kEnd:
          if (place == name.size()) stack.push_back(step.next);
          break;
        default:
          states->push_back(at);
      }
    }
  };
  reach(0, 0, &now);
  for (size_t place = 0; place < name.size() && !now.empty(); ++place) {
    next.clear();
    for (const int32_t at : now) {
      const Step& step = steps_[static_cast<size_t>(at)];
      const bool fits =
          step.kind == Kind::kByte && sets_[static_cast<size_t>(step.other)].test(At(name[place]));
      if (fits) reach(step.next, place + 1, &next);
    }
    std::swap(now, next);
  }
  return std::any_of(now.begin(), now.end(), [&](int32_t at) {
    return steps_[static_cast<size_t>(at)].kind == Kind::kMatch;
  });
}

}  // namespace minisgl::weights
