// Computes the parts of a grammar that its first masks need, before they are wanted.
//
// A mask tries every byte at its place, and behind some. So every byte is tried at places along
// the ways through the first few terminals, each taken once: a name, its colon, a value, a comma.
#include <algorithm>
#include <string_view>

#include "grammar/machine.h"

namespace minisgl::grammar {

namespace {

// Choices of a byte that are followed within a terminal: at its beginning, and behind that.
constexpr int kChoicesMax = 2;
// Terminals that are followed at a place with many.
constexpr uint32_t kFollowedMax = 4;
// Bytes that are followed where each is the only one.
constexpr int kLiteralBytesMax = 200;
// Within a terminal: blanks, escapes, and first bytes of characters of two bytes and of three.
constexpr std::string_view kInside = " \n\\\xC3\xE2";

// The byte of `bytes` that answers most likely have: the end of a string, a digit, no blank.
uint8_t TypicalByte(const ByteSet& bytes) {
  for (const char byte : {'"', '1'}) {
    if (bytes.Contains(static_cast<uint8_t>(byte))) return static_cast<uint8_t>(byte);
  }
  int byte = ' ' + 1;
  while (byte < 256 && !bytes.Contains(static_cast<uint8_t>(byte))) ++byte;
  if (byte < 256) return static_cast<uint8_t>(byte);
  byte = 0;
  while (byte < ' ' && !bytes.Contains(static_cast<uint8_t>(byte))) ++byte;
  return static_cast<uint8_t>(byte);
}

}  // namespace

class Machine::Preparer {
 public:
  Preparer(Machine* machine, uint64_t work_max) : machine_(*machine) {
    stop_ = machine_.work() + work_max;
  }

  void Run() {
    Add(machine_.start_state_, 0);
    for (size_t i = 0; i < places_.size() && machine_.work() < stop_; ++i) {
      const Place place = places_[i];
      if (!TryAllBytes(place.state)) return;
      Follow(place);
    }
  }

 private:
  struct Place {
    uint32_t state;
    int num_choices;  // made within the terminals under way
  };

  void Add(uint32_t state, int num_choices) {
    if (state == kDeadState || state == kUnknown || seen_.Find(state) != nullptr) return;
    seen_.Insert(state, 0);
    places_.push_back({state, num_choices});
  }

  // Computes all that a mask at `state` needs. False if the limit of work stopped it.
  bool TryAllBytes(uint32_t state) {
    if (!machine_.StringsAt(state)) return false;
    machine_.StringRunAt(state);
    machine_.FreeRunAt(state);
    for (uint32_t byte_class = 0; byte_class < machine_.expressions_->num_classes; ++byte_class) {
      const uint8_t byte = machine_.expressions_->byte_of_class[byte_class];
      if (machine_.Step(state, byte) == kUnknown) return false;
    }
    return true;
  }

  void Follow(const Place& place) {
    const uint32_t num_lanes = machine_.states_[place.state].num_lanes;
    for (uint32_t i = 0; i < num_lanes; ++i) {
      const Lane lane = machine_.lanes_[machine_.states_[place.state].first_lane + i];
      const uint32_t num_pairs = std::min(machine_.lexers_[lane.lexer].num_pairs, kFollowedMax);
      for (uint32_t pair = 0; pair < num_pairs; ++pair) {
        const LexerPair under_way = machine_.pairs_[machine_.lexers_[lane.lexer].first_pair + pair];
        const bool is_new = under_way.rest == machine_.terminals_[under_way.terminal];
        const int num_choices = is_new ? 0 : place.num_choices;
        if (num_choices < kChoicesMax) FollowOne(place.state, under_way, num_choices);
      }
    }
    if (place.num_choices >= kChoicesMax) return;
    for (const char byte : kInside) {
      Add(machine_.Step(place.state, static_cast<uint8_t>(byte)), kChoicesMax);
    }
  }

  // Along one terminal up to its end or the next choice.
  void FollowOne(uint32_t state, LexerPair under_way, int num_choices) {
    ByteSet bytes = machine_.expressions_->FirstBytes(under_way.rest);
    for (int length = 0; length < kLiteralBytesMax; ++length) {
      if (bytes.empty()) return;
      const uint8_t byte = TypicalByte(bytes);
      state = machine_.Step(state, byte);
      if (state == kDeadState || state == kUnknown) return;
      under_way.rest =
          machine_.expressions_->Derive(under_way.rest, machine_.expressions_->class_of[byte]);
      bytes = machine_.expressions_->FirstBytes(under_way.rest);
      if (bytes.size() != 1) break;
    }
    Add(state, num_choices + 1);
  }

  Machine& machine_;
  uint64_t stop_;
  std::vector<Place> places_;
  KeyMap seen_;
};

void Machine::Prepare(uint64_t work_max) {
  SetWorkMax(work_max);
  Preparer(this, work_max).Run();
  SetNoWorkMax();
  ForgetStopped();
}

}  // namespace minisgl::grammar
