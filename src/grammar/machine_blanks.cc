// Tokens of blanks alone, without the states behind them.
//
// Each blank of a run leads to another state, as their number is bounded, and behind each comma and
// colon to others again. But where nothing that may follow the run begins with a blank, the lexer
// states alone tell which runs may come, and those are the same everywhere.
#include "grammar/machine.h"
#include "grammar/token_trie.h"

namespace minisgl::grammar {

bool Machine::BeginsWithBlank(uint32_t lexer) {
  for (uint32_t i = 0; i < lexers_[lexer].num_pairs; ++i) {
    const ByteSet bytes = expressions_->FirstBytes(pairs_[lexers_[lexer].first_pair + i].rest);
    for (const char blank : kBlanks) {
      if (bytes.Contains(static_cast<uint8_t>(blank))) return true;
    }
  }
  return false;
}

// True if after a terminal of `node` that may end at `lexer` a blank may come, or it is not known.
bool Machine::BlankMayFollow(uint32_t node, uint32_t lexer) {
  if (!lexers_[lexer].any_accepted) return false;
  for (uint32_t i = 0; i < lexers_[lexer].num_pairs; ++i) {
    const LexerPair under_way = pairs_[lexers_[lexer].first_pair + i];
    if (!expressions_->nodes[under_way.rest].nullable) continue;
    num_added_ = 0;
    finished_.assign(1, {node, under_way.terminal});
    const Finish finish = FinishTerminals();
    work_ += num_added_;
    if (finish.is_too_large) return true;
    if (finish.node == kRootNode) continue;
    if (BeginsWithBlank(cores_[nodes_[finish.node].core].lexer_start)) return true;
  }
  return false;
}

Machine::Blanks Machine::FindBlanks(uint32_t state, const TokenTrie& blanks,
                                    std::vector<TokenId>* allowed) {
  std::vector<uint32_t> lexers(blanks.depth_max() + 1);  // by depth
  for (uint32_t i = 0; i < states_[state].num_lanes; ++i) {
    const Lane lane = lanes_[states_[state].first_lane + i];
    lexers[0] = lane.lexer;
    for (uint32_t at = 0; at < blanks.num_nodes();) {
      const TrieNode& node = blanks.nodes()[at];
      const uint32_t next = LexerStep(lexers[node.depth - 1U], expressions_->class_of[node.byte]);
      if (next == kUnknown) return Blanks::kStopped;
      if (next == kDeadLexer) {
        at = node.end;
        continue;
      }
      if (BlankMayFollow(lane.node, next)) return Blanks::kUndecided;
      lexers[node.depth] = next;
      const std::span<const TokenId> ids = blanks.token_ids_of(at, at + 1);
      allowed->insert(allowed->end(), ids.begin(), ids.end());
      ++at;
    }
  }
  return Blanks::kFound;
}

}  // namespace minisgl::grammar
