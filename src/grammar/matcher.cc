#include "minisgl/grammar/matcher.h"

#include "grammar/machine.h"
#include "minisgl/base/check.h"

namespace minisgl {

using grammar::Machine;

namespace {

// Bytes matched between two calls that may trim the tables.
constexpr size_t kBytesBetweenTrims = 64;

}  // namespace

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  states_.push_back(machine.start_state());
  machine.AddRoot(&states_);
}

Matcher::Matcher(const Matcher& other) : grammar_(other.grammar_) {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  states_ = other.states_;
  machine.AddRoot(&states_);
}

Matcher& Matcher::operator=(const Matcher& other) {
  if (this == &other) return *this;
  if (grammar_ != other.grammar_) {
    {
      Machine& machine = grammar_->machine();
      const std::lock_guard lock(machine.mutex);
      machine.RemoveRoot(&states_);
    }
    grammar_ = other.grammar_;
    Machine& machine = grammar_->machine();
    const std::lock_guard lock(machine.mutex);
    states_ = other.states_;
    machine.AddRoot(&states_);
    return *this;
  }
  const std::lock_guard lock(grammar_->machine().mutex);
  states_ = other.states_;
  return *this;
}

Matcher::~Matcher() {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  machine.RemoveRoot(&states_);
}

size_t Matcher::AcceptPrefix(std::string_view bytes) {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  size_t accepted = 0;
  while (accepted < bytes.size()) {
    machine.Trim();
    const std::string_view part = bytes.substr(accepted, kBytesBetweenTrims);
    uint32_t state = states_.back();
    const size_t length = machine.Walk(&state, part, &states_);
    accepted += length;
    if (length < part.size()) break;
  }
  return accepted;
}

bool Matcher::Accept(std::string_view bytes) {
  const size_t before = num_bytes();
  if (AcceptPrefix(bytes) == bytes.size()) return true;
  RollbackTo(before);
  return false;
}

bool Matcher::IsAccepting() const {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  return machine.IsAccepting(states_.back());
}

bool Matcher::MustEnd() const {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  const uint32_t state = states_.back();
  return machine.IsAccepting(state) && machine.NextBytes(state, 1).empty() &&
         !machine.IsAtLimit(state);
}

bool Matcher::IsAtLimit() const {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  const uint32_t state = states_.back();
  return machine.NextBytes(state, 1).empty() && machine.IsAtLimit(state);
}

void Matcher::RollbackTo(size_t num_bytes) {
  MINISGL_CHECK(num_bytes < states_.size(), "rollback to byte {} of {}", num_bytes,
                states_.size() - 1);
  // Another thread's Trim may write to it.
  const std::lock_guard lock(grammar_->machine().mutex);
  states_.resize(num_bytes + 1);
}

std::string Matcher::ForcedBytes(size_t bytes_max) const {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  std::string forced;
  uint32_t state = states_.back();
  while (forced.size() < bytes_max && !machine.IsAccepting(state)) {
    const ByteSet next = machine.NextBytes(state, 2);
    if (next.size() != 1) break;
    int byte = 0;
    while (!next.Contains(static_cast<uint8_t>(byte))) ++byte;
    forced.push_back(static_cast<char>(byte));
    state = machine.Step(state, static_cast<uint8_t>(byte));
  }
  return forced;
}

ByteSet Matcher::NextBytes() const {
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  return machine.NextBytes(states_.back());
}

size_t MatchText(const CompiledGrammar& grammar, std::string_view text, bool* accepted) {
  Machine& machine = grammar.machine();
  const std::lock_guard lock(machine.mutex);
  std::vector<uint32_t> current = {machine.start_state()};
  machine.AddRoot(&current);
  size_t matched = 0;
  while (matched < text.size()) {
    machine.Trim();
    const std::string_view part = text.substr(matched, kBytesBetweenTrims);
    const size_t length = machine.Walk(&current[0], part, nullptr);
    matched += length;
    if (length < part.size()) break;
  }
  *accepted = matched == text.size() && machine.IsAccepting(current[0]);
  machine.RemoveRoot(&current);
  return matched;
}

}  // namespace minisgl
