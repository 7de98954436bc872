// The best path is found as in the reference: sums are kept in double precision from the word's
// beginning on, and of equal ones the path that was found first stays.
#include "text/tokenizer_json/unigram.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::text {

Unigram::Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                 UnigramOptions options)
    : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), options_(std::move(options)) {
  constexpr double kUnknownPenalty = 10;
  double least = std::numeric_limits<double>::infinity();
  for (const double score : scores_) least = std::min(least, score);
  unknown_score_ = least - kUnknownPenalty;
  MakeTree();
}

void Unigram::MakeTree() {
  std::vector<bool> hidden(static_cast<size_t>(vocabulary_->ids_end()));
  for (const TokenId id : options_.never) {
    if (vocabulary_->Has(id)) hidden[static_cast<size_t>(id)] = true;
  }
  std::vector<TokenId> order;
  for (TokenId id = 0; id < vocabulary_->ids_end(); ++id) {
    if (vocabulary_->Has(id) && !hidden[static_cast<size_t>(id)]) order.push_back(id);
  }
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return vocabulary_->Spelling(a) < vocabulary_->Spelling(b);
  });
  // The pieces of a node that is not expanded yet: order[begin, end), equal in `depth` bytes.
  struct Open {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Open> open = {{0, 0, order.size(), 0}};
  for (size_t next = 0; next < open.size(); ++next) {
    auto [node, begin, end, depth] = open[next];
    if (begin < end && vocabulary_->Spelling(order[begin]).size() == depth) {
      nodes_[node].id = order[begin++];
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const auto byte = static_cast<uint8_t>(vocabulary_->Spelling(order[begin])[depth]);
      size_t stop = begin;
      while (stop < end && static_cast<uint8_t>(vocabulary_->Spelling(order[stop])[depth]) == byte)
        ++stop;
      open.push_back({static_cast<uint32_t>(nodes_.size()), begin, stop, depth + 1});
      nodes_.emplace_back();
      nodes_.back().byte = byte;
      ++nodes_[node].num_children;
      begin = stop;
    }
  }
}

const Unigram::Node* Unigram::Child(const Node& node, uint8_t byte) const {
  const auto first = nodes_.begin() + node.first_child, end = first + node.num_children;
  const auto found = std::lower_bound(
      first, end, byte, [](const Node& child, uint8_t wanted) { return child.byte < wanted; });
  return found == end || found->byte != byte ? nullptr : &*found;
}

void Unigram::AppendUnknown(std::string_view text, std::vector<TokenId>* ids) const {
  const size_t first = ids->size();
  for (size_t i = 0; i < text.size() && options_.byte_fallback; ++i) {
    const auto id = vocabulary_->Find(fmt::format("<0x{:02X}>", static_cast<uint8_t>(text[i])));
    if (!id) {
      ids->resize(first);
      break;
    }
    ids->push_back(*id);
  }
  if (ids->size() == first) ids->push_back(options_.unk_id);
}

void Unigram::Encode(std::string_view word, BpeScratch* /*scratch*/,
                     std::vector<TokenId>* ids) const {
  struct Best {
    double score = 0;
    int32_t begin = -1;  // of the last token of the best path to here
    TokenId id = 0;
  };
  std::vector<Best> best(word.size() + 1);
  for (size_t begin = 0; begin < word.size();) {
    const size_t length = std::max<size_t>(Utf8CharLength(word.substr(begin)), 1);
    bool has_character = false;
    const auto offer = [&](size_t end, double score, TokenId id) {
      const double sum = score + best[begin].score;
      if (best[end].begin >= 0 && !(sum > best[end].score)) return;
      best[end] = {sum, static_cast<int32_t>(begin), id};
    };
    const Node* node = nodes_.data();
    for (size_t end = begin; end < word.size();) {
      node = Child(*node, static_cast<uint8_t>(word[end++]));
      if (node == nullptr) break;
      if (node->id < 0) continue;
      offer(end, scores_[static_cast<size_t>(node->id)], node->id);
      has_character = has_character || end == begin + length;
    }
    if (!has_character) offer(begin + length, unknown_score_, options_.unk_id);
    begin += length;
  }
  struct Part {
    size_t begin, end;
    TokenId id;
  };
  std::vector<Part> parts;  // from the end of the word on
  for (size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<size_t>(best[end].begin);
    const bool is_unknown = best[end].id == options_.unk_id;
    if (is_unknown && !parts.empty() && parts.back().id == options_.unk_id) {
      parts.back().begin = begin;
    } else {
      parts.push_back({begin, end, best[end].id});
    }
    end = begin;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->id == options_.unk_id) {
      AppendUnknown(word.substr(part->begin, part->end - part->begin), ids);
    } else {
      ids->push_back(part->id);
    }
  }
}

}  // namespace minisgl::text
