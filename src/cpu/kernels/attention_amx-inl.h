// The two products of attention with tiles (attention_amx.cc), over tiles of type Tiles and with
// RoundRow(x, count, row), which rounds a row to bf16. Included once for the processor's tiles and
// once for their stand-in.

constexpr int64_t kPanelPairs = kPanelWidth / 2;
constexpr int64_t kTilePairs = kTileKeys / 2;
constexpr int64_t kPanels = kTileKeys / kPanelWidth;
constexpr int64_t kStepPairs = kTileRows;      // of elements, in a whole product of scores
constexpr int64_t kHalfPairs = kTileRows / 2;  // in half of one
// Columns of values that are added together: four tiles.
constexpr int64_t kColumns = 4 * kPanelWidth;

// The calling thread's tiles: sums 0 to 3; rows 4 and keys 5 of a whole product; rows 6 and keys or
// values 7 of a half. They keep their shape from call to call until Release: a change takes as long
// as ten products.
class ThreadTiles {
 public:
  Tiles* Shaped(int64_t num_rows) {
    if (num_rows != num_rows_) {
      TileConfig config;
      for (const int tile : {0, 1, 2, 3, 4}) config.Set(tile, num_rows);
      config.Set(5, kTileRows);
      config.Set(6, num_rows, kHalfPairs * 4);
      config.Set(7, kHalfPairs);
      tiles_.Configure(config);
      num_rows_ = num_rows;
    }
    return &tiles_;
  }
  void Release() {
    tiles_.Release();
    num_rows_ = 0;
  }

 private:
  Tiles tiles_;
  int64_t num_rows_ = 0;
};
thread_local ThreadTiles thread_tiles;

void ReleaseTiles() { thread_tiles.Release(); }

// Calls f<i>() for i in [0, count), at most 4 and at least 1.
template <typename F>
inline void ForEach(int64_t count, const F& f) {
  f.template operator()<0>();
  if (count > 1) f.template operator()<1>();
  if (count > 2) f.template operator()<2>();
  if (count > 3) f.template operator()<3>();
}

// Sums 0 to 3, one for each panel of keys.
class Scores {
 public:
  Scores(const QueryBlock& block, const Tile& tile, int64_t row, int64_t num_rows,
         int64_t num_panels, bool fetches)
      : keys_(tile.pairs),
        num_pairs_(HeadPairs(block.head_dim)),
        num_rows_(num_rows),
        num_panels_(num_panels),
        fetches_(fetches),
        q_(block.q_pairs + row * num_pairs_),
        tiles_(thread_tiles.Shaped(num_rows)) {}

  void Compute() {
    ForEach(num_panels_, [&]<int kPanel>() { tiles_->template SetZero<kPanel>(); });
    int64_t pair = 0;
    for (; pair + kStepPairs <= num_pairs_; pair += kStepPairs) {
      Add<4, 5>(q_ + pair, num_pairs_, pair, kStepPairs);
    }
    if (num_pairs_ - pair == kHalfPairs) {
      Add<6, 7>(q_ + pair, num_pairs_, pair, kHalfPairs);
    } else if (pair < num_pairs_) {
      AddRest(pair);
    }
  }

  void Store(float scale, float* scores) {
    ForEach(num_panels_, [&]<int kPanel>() {
      tiles_->template Store<kPanel>(scores + kPanel * kPanelWidth, kTileKeys * 4);
    });
    for (int64_t r = 0; r < num_rows_; ++r, scores += kTileKeys) {
      for (int64_t key = 0; key < num_panels_ * kPanelWidth; ++key) scores[key] *= scale;
    }
  }

 private:
  static const std::byte* Bytes(const uint32_t* pairs) {
    return reinterpret_cast<const std::byte*>(pairs);
  }

  // Adds `count` pairs of elements, from `pair` on.
  template <int kX, int kKeys>
  void Add(const uint32_t* x, int64_t x_stride, int64_t pair, int64_t count) {
    tiles_->template Load<kX>(Bytes(x), x_stride * 4);
    ForEach(num_panels_, [&]<int kPanel>() {
      const int64_t at = pair * keys_.key_stride;
      tiles_->template Load<kKeys>(Bytes(keys_.keys[kPanel] + at), keys_.key_stride * 4);
      for (int64_t i = 0; fetches_ && i < count; ++i) {
        __builtin_prefetch(keys_.next_keys[kPanel] + at + i * keys_.key_stride, /*rw=*/0,
                           /*locality=*/2);
      }
      tiles_->template MultiplyAdd<kPanel, kX, kKeys>();
    });
  }

  // Adds the pairs from `pair` on, fewer than a whole product has, with zeros for what is missing.
  void AddRest(int64_t pair) {
    alignas(64) uint32_t x[kAttentionRowsMax][kStepPairs] = {};
    for (int64_t r = 0; r < num_rows_; ++r) {
      std::copy(q_ + r * num_pairs_ + pair, q_ + (r + 1) * num_pairs_, x[r]);
    }
    tiles_->template Load<4>(Bytes(x[0]), sizeof(x[0]));
    ForEach(num_panels_, [&]<int kPanel>() {
      alignas(64) uint32_t keys[kStepPairs][kPanelWidth] = {};
      for (int64_t i = pair; i < num_pairs_; ++i) {
        std::copy_n(keys_.keys[kPanel] + i * keys_.key_stride, kPanelWidth, keys[i - pair]);
      }
      tiles_->template Load<5>(Bytes(keys[0]), sizeof(keys[0]));
      tiles_->template MultiplyAdd<kPanel, 4, 5>();
    });
  }

  const PairTile& keys_;
  const int64_t num_pairs_, num_rows_, num_panels_;
  const bool fetches_;
  const uint32_t* const q_;
  Tiles* const tiles_;
};

void ScoreTiles(const QueryBlock& block, const Tile& tile, int64_t row, int64_t num_rows,
                int64_t key_end, bool fetches, float* scores) {
  const int64_t num_panels = (key_end + kPanelWidth - 1) / kPanelWidth;
  Scores of_rows(block, tile, row, num_rows, num_panels, fetches);
  of_rows.Compute();
  of_rows.Store(block.params->scale, scores);
}

// True if every value of pairs [begin, end) is finite.
bool AreFinite(const uint32_t* const* values, int64_t begin, int64_t end, int64_t width) {
  uint32_t found = 0;
  for (int64_t pair = begin; pair < end; ++pair) {
    for (int64_t e = 0; e < width; ++e) {
      const uint32_t both = values[pair][e];
      found |= (both & 0x7F80) == 0x7F80;
      found |= (both & 0x7F80'0000) == 0x7F80'0000;
    }
  }
  return found == 0;
}

// A panel of values: its pairs are `stride` apart.
struct ValuePanel {
  const uint32_t* pairs;
  int64_t stride;
};

// Copies `width` columns of a panel of values to [8 pairs, kColumns], with 0 for keys outside
// [key_begin, key_end).
ValuePanel CopySeen(const uint32_t* const* values, int64_t panel, int64_t key_begin,
                    int64_t key_end, int64_t column, int64_t width, uint32_t* copy) {
  for (int64_t i = 0; i < kPanelPairs; ++i) {
    const int64_t key = panel * kPanelWidth + 2 * i;
    const auto is_seen = [&](int64_t k) { return k >= key_begin && k < key_end; };
    const uint32_t seen = (is_seen(key) ? 0xFFFFu : 0) | (is_seen(key + 1) ? 0xFFFF'0000u : 0);
    const uint32_t* const from = values[key / 2] + column;
    for (int64_t e = 0; e < width; ++e) copy[i * kColumns + e] = from[e] & seen;
  }
  return {copy, kColumns};
}

// Prefetches the values of a panel of the next tile, from `column` on: one tile.
inline void FetchNext(const PairTile& pairs, int64_t panel, int64_t column) {
  for (int64_t pair = panel * kPanelPairs; pair < (panel + 1) * kPanelPairs; ++pair) {
    __builtin_prefetch(pairs.next_values[pair] + column, /*rw=*/0, /*locality=*/2);
  }
}

// AddValueTiles for keys [key_begin, key_end), beyond which all weights are 0.
void AddSeenValues(const QueryBlock& block, const Tile& tile, int64_t row, int64_t num_rows,
                   int64_t key_begin, int64_t key_end, bool fetches, const float* weights,
                   const float* rescale) {
  const int64_t width = block.value_width;
  alignas(64) uint32_t pairs[kAttentionRowsMax * kTilePairs];
  for (int64_t r = 0; r < num_rows; ++r) {
    RoundRow(weights + r * kTileKeys, kTileKeys,
             reinterpret_cast<std::byte*>(pairs + r * kTilePairs));
  }
  const int64_t first = key_begin / kPanelWidth, last = (key_end + kPanelWidth - 1) / kPanelWidth;
  // A panel of which some keys are not seen is copied: they may never have been written.
  alignas(64) uint32_t copies[kPanels][kPanelPairs * kColumns];
  const auto panel_at = [&](int64_t panel, int64_t column, int64_t columns) -> ValuePanel {
    if (panel * kPanelWidth >= key_begin && (panel + 1) * kPanelWidth <= key_end) {
      return {tile.pairs.values[panel * kPanelPairs] + column, width};
    }
    return CopySeen(tile.pairs.values, panel, key_begin, key_end, column, columns, copies[panel]);
  };
  Tiles* const tiles = thread_tiles.Shaped(num_rows);
  float* const values = block.values + row * width;
  alignas(64) float sums[kAttentionRowsMax][kColumns];
  for (int64_t column = 0; column < width; column += kColumns) {
    const int64_t columns = std::min(kColumns, width - column);
    const int64_t num_sums = columns / kPanelWidth;
    ForEach(num_sums, [&]<int kSum>() { tiles->template SetZero<kSum>(); });
    for (int64_t panel = first; panel < last; ++panel) {
      const ValuePanel from = panel_at(panel, column, columns);
      tiles->template Load<6>(reinterpret_cast<const std::byte*>(pairs + panel * kPanelPairs),
                              kTilePairs * 4);
      ForEach(num_sums, [&]<int kSum>() {
        const uint32_t* const at = from.pairs + kSum * kPanelWidth;
        tiles->template Load<7>(reinterpret_cast<const std::byte*>(at), from.stride * 4);
        if (fetches) FetchNext(tile.pairs, panel, column + kSum * kPanelWidth);
        tiles->template MultiplyAdd<kSum, 6, 7>();
      });
    }
    ForEach(num_sums, [&]<int kSum>() {
      tiles->template Store<kSum>(sums[0] + kSum * kPanelWidth, sizeof(sums[0]));
    });
    for (int64_t r = 0; r < num_rows; ++r) {
      float* const to = values + r * width + column;
      for (int64_t i = 0; i < columns; ++i) to[i] = std::fma(to[i], rescale[r], sums[r][i]);
    }
  }
}

void AddValueTiles(const QueryBlock& block, const Tile& tile, const VisibleKeys& keys, int64_t row,
                   int64_t num_rows, bool fetches, const float* weights, const float* rescale) {
  int64_t begin = kTileKeys, end = 0;
  for (int64_t r = 0; r < num_rows; ++r) {
    begin = std::min(begin, keys.begin[r]);
    end = std::max(end, keys.end[r]);
  }
  // A row must not see a value that is not finite through a weight of 0. With all values finite,
  // the keys that it does not see add nothing.
  if (!keys.is_ragged ||
      AreFinite(tile.pairs.values, begin / 2, (end + 1) / 2, block.value_width)) {
    AddSeenValues(block, tile, row, num_rows, begin, end, fetches, weights, rescale);
  } else {
    for (int64_t r = 0; r < num_rows; ++r) {
      AddSeenValues(block, tile, row + r, 1, keys.begin[r], keys.end[r], /*fetches=*/false,
                    weights + r * kTileKeys, rescale + r);
    }
  }
}
