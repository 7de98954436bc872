// The merge loop: symbols in a doubly linked list, candidate merges in a heap.
//
// Candidates stay in the heap when a neighbour changes. A popped candidate is applied only if the
// pair at its place still merges to the same result. (The reference compares the result, not the
// rank.)
#include "text/tokenizer_json/bpe.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "minisgl/base/utf8.h"
#include "text/encode_windows.h"
#include "text/tokenizer_json/byte_level.h"

namespace minisgl::text {

Result<Bpe> Bpe::Create(std::shared_ptr<const Vocabulary> vocabulary,
                        std::span<const BpeMerge> merges, BpeOptions options) {
  Bpe bpe;
  MINISGL_RETURN_IF_ERROR(bpe.Init(std::move(vocabulary), std::move(options)));
  std::vector<uint32_t> ranks(merges.size());
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<uint32_t>(i);
  bpe.IndexMerges(merges, ranks);
  return bpe;
}

Result<Bpe> Bpe::FromRanks(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options) {
  Bpe bpe;
  MINISGL_RETURN_IF_ERROR(bpe.Init(vocabulary, std::move(options)));
  std::vector<BpeMerge> merges;
  std::vector<uint32_t> ranks;
  for (TokenId id = 0; id < vocabulary->ids_end(); ++id) {
    const std::string_view spelling = vocabulary->Spelling(id);
    for (size_t cut = 1; cut < spelling.size(); ++cut) {
      const auto left = vocabulary->Find(spelling.substr(0, cut));
      if (!left) continue;
      const auto right = vocabulary->Find(spelling.substr(cut));
      if (!right) continue;
      merges.push_back({*left, *right, id});
      ranks.push_back(static_cast<uint32_t>(id));
    }
  }
  bpe.IndexMerges(merges, ranks);
  return bpe;
}

Status Bpe::Init(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options) {
  vocabulary_ = std::move(vocabulary);
  options_ = std::move(options);
  hidden_.assign(static_cast<size_t>(vocabulary_->ids_end()), false);
  for (TokenId id : options_.never) {
    if (vocabulary_->Has(id)) hidden_[id] = true;
  }
  byte_ids_.assign(256, -1);
  if (options_.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = FindToken(fmt::format("<0x{:02X}>", byte)).value_or(-1);
    }
  }
  ascii_ids_.assign(128, -1);
  for (int byte = 0; byte < 128; ++byte) {
    ascii_ids_[byte] = FindToken(std::string(1, static_cast<char>(byte))).value_or(-1);
  }
  return {};
}

void Bpe::IndexMerges(std::span<const BpeMerge> merges, std::span<const uint32_t> ranks) {
  slots_.assign(std::bit_ceil(merges.size() * 2 + 2), Slot());
  slot_shift_ = 64 - std::countr_zero(slots_.size());
  constexpr size_t kAhead = 16;  // the table is larger than the caches
  for (size_t i = 0; i < merges.size(); ++i) {
    const BpeMerge& merge = merges[i];
    if (i + kAhead < merges.size()) {
      const BpeMerge& later = merges[i + kAhead];
      __builtin_prefetch(&slots_[FirstSlotOf(Pair(later.left, later.right))], /*rw=*/1);
    }
    if (hidden_[merge.result]) continue;
    const uint64_t pair = Pair(merge.left, merge.right);
    slots_[SlotOf(pair)] = {pair, ranks[i], merge.result};
  }
}

size_t Bpe::FirstSlotOf(uint64_t pair) const {
  // Fibonacci hashing: the high bits of the product depend on all bits of the pair.
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
  return (pair * kGoldenRatio) >> slot_shift_;
}

size_t Bpe::SlotOf(uint64_t pair) const {
  size_t slot = FirstSlotOf(pair);
  while (slots_[slot].pair != pair && slots_[slot].pair != kNoPair) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

const Bpe::Slot* Bpe::FindMerge(TokenId left, TokenId right) const {
  const Slot& slot = slots_[SlotOf(Pair(left, right))];
  return slot.pair == kNoPair ? nullptr : &slot;
}

std::optional<TokenId> Bpe::FindToken(std::string_view spelling) const {
  const auto id = vocabulary_->Find(spelling);
  return id && !hidden_[*id] ? id : std::nullopt;
}

bool Bpe::AppendBytes(std::string_view spelling, std::vector<BpeScratch::Symbol>* symbols) const {
  for (char byte : spelling) {
    if (byte_ids_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (char byte : spelling) symbols->push_back({byte_ids_[static_cast<uint8_t>(byte)]});
  return true;
}

void Bpe::SplitWord(const WordPart& part, std::vector<BpeScratch::Symbol>* symbols,
                    std::vector<size_t>* places) const {
  const std::string_view word = part.text;
  symbols->clear();
  const bool has_affixes =
      !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  bool unknown_waits = false;  // unknown characters were read whose unk_id is not yet written
  size_t unknown_place = 0;
  const auto note_places = [&](size_t place) {
    if (places != nullptr) places->resize(symbols->size(), place);
  };
  for (size_t at = 0; at < word.size();) {
    const std::string_view rest = word.substr(at);
    const size_t length =
        options_.splits_into_bytes ? 1 : std::max<size_t>(Utf8CharLength(rest), 1);
    std::string_view spelling = rest.substr(0, length);
    std::string with_affixes;
    if (has_affixes) {
      if (at > 0 || !part.is_first) with_affixes = options_.continuing_subword_prefix;
      with_affixes += spelling;
      if (length == rest.size() && part.is_last) with_affixes += options_.end_of_word_suffix;
      spelling = with_affixes;
    }
    const size_t place = at;
    at += length;
    const auto first = static_cast<uint8_t>(spelling[0]);
    const TokenId id =
        spelling.size() == 1 && first < 128 ? ascii_ids_[first] : FindToken(spelling).value_or(-1);
    if (id >= 0) {
      if (unknown_waits) symbols->push_back({*options_.unk_id});
      note_places(unknown_place);
      unknown_waits = false;
      symbols->push_back({id});
      note_places(place);
    } else if (options_.byte_fallback && AppendBytes(spelling, symbols)) {
      note_places(place);
    } else if (options_.unk_id) {
      if (unknown_waits && !options_.fuse_unk) symbols->push_back({*options_.unk_id});
      note_places(unknown_place);
      if (!unknown_waits || !options_.fuse_unk) unknown_place = place;
      unknown_waits = true;
    }
  }
  if (unknown_waits) symbols->push_back({*options_.unk_id});
  note_places(unknown_place);
}

void Bpe::PushMerge(BpeScratch* scratch, int32_t left) const {
  const auto& symbols = scratch->symbols_;
  const Slot* merge = FindMerge(symbols[left].id, symbols[symbols[left].next].id);
  if (merge == nullptr) return;
  const uint64_t key = uint64_t{merge->rank} << 32 | static_cast<uint32_t>(left);
  scratch->heap_.push_back({key, merge->result});
}

void Bpe::MergeAll(BpeScratch* scratch) const {
  auto& symbols = scratch->symbols_;
  auto& heap = scratch->heap_;
  heap.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i + 1 < count; ++i) PushMerge(scratch, i);
  std::make_heap(heap.begin(), heap.end());
  scratch->num_heap_operations_ += heap.size();
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const BpeScratch::Candidate candidate = heap.back();
    heap.pop_back();
    ++scratch->num_heap_operations_;
    const auto place = static_cast<int32_t>(candidate.key & 0xFFFFFFFF);
    BpeScratch::Symbol& left = symbols[place];
    if (left.is_gone || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    const Slot* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->result != candidate.result) continue;
    left.id = candidate.result;
    right.is_gone = true;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = place;
    for (const int32_t begin : {left.previous, left.next >= 0 ? place : -1}) {
      if (begin < 0) continue;
      const size_t size_before = heap.size();
      PushMerge(scratch, begin);
      if (heap.size() == size_before) continue;
      std::push_heap(heap.begin(), heap.end());
      ++scratch->num_heap_operations_;
    }
  }
}

void Bpe::Encode(std::string_view word, BpeScratch* scratch, std::vector<TokenId>* ids) const {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = FindToken(word)) {
      ids->push_back(*id);
      return;
    }
  }
  SplitWord({word}, &scratch->symbols_, nullptr);
  if (scratch->symbols_.size() > 1) MergeAll(scratch);
  for (const BpeScratch::Symbol& symbol : scratch->symbols_) {
    if (!symbol.is_gone) ids->push_back(symbol.id);
  }
}

Result<bool> Bpe::EncodeTo(std::string_view word, BpeScratch* scratch,
                           const TokenSink& sink) const {
  if (word.size() <= kEncodeWindowBytes) {
    std::vector<TokenId> ids;
    Encode(word, scratch, &ids);
    return sink(ids);
  }
  const auto encode = [&](size_t begin, size_t end, std::vector<PlacedToken>* tokens) -> Status {
    std::vector<size_t> places;
    const WordPart part{word.substr(begin, end - begin), begin == 0, end == word.size()};
    SplitWord(part, &scratch->symbols_, &places);
    if (scratch->symbols_.size() > 1) MergeAll(scratch);
    for (size_t i = 0; i < places.size(); ++i) {
      const BpeScratch::Symbol& symbol = scratch->symbols_[i];
      if (!symbol.is_gone) tokens->push_back({begin + places[i], symbol.id});
    }
    return {};
  };
  return EncodeInWindows(word, encode, options_.fuse_unk ? options_.unk_id : std::nullopt, sink);
}

bool Bpe::KeepsAll(bool spelled_bytes) const {
  if (options_.unk_id) return !options_.fuse_unk;
  const auto has_all = [&](auto spelling) {
    for (int byte = 0; byte < 256; ++byte) {
      if (!FindToken(spelling(static_cast<char>(byte)))) return false;
    }
    return true;
  };
  if (options_.splits_into_bytes) return has_all([](char byte) { return std::string(1, byte); });
  if (spelled_bytes) {
    return has_all([](char byte) {
      std::string spelling;
      AppendByteSpelling(std::string_view(&byte, 1), &spelling);
      return spelling;
    });
  }
  return options_.byte_fallback &&
         std::all_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id >= 0; });
}

}  // namespace minisgl::text
