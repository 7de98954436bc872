// See read_grids.h.
//
// A row of a codebook is 16 bits: the places of its numbers in a short list (tensor/block_grids.h).
// The low and the high bytes of all rows are two tables, of which 128 entries fit in two registers.
// Rows that are found are widened, their places shifted apart, and the numbers of the list permuted
// to the places.
#include "cpu/read_grids.h"

#include "cpu/target_set.h"

#if defined(__x86_64__) && !defined(__clang__) && MINISGL_HAS_TARGET(MINISGL_AVX512_VNNI_BIT)

#include <immintrin.h>

#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "tensor/block_grids.h"

// GCC 12 takes the undefined operands of intrinsics without masks for faults.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,bmi2")
namespace minisgl::cpu {
namespace {

constexpr int64_t kVector = 64;  // bytes

template <size_t kRows>
struct RowTables {
  alignas(kVector) uint8_t low[kRows], high[kRows];
  explicit RowTables(const std::vector<uint16_t>& rows) {
    for (size_t i = 0; i < kRows; ++i) {
      low[i] = static_cast<uint8_t>(rows[i]);
      high[i] = static_cast<uint8_t>(rows[i] >> 8);
    }
  }
};

inline __m512i Load(const void* from) { return _mm512_loadu_si512(from); }

inline uint64_t LoadWord(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Entries of a table of kRows bytes. `bits`: bits 8 and 9 of each index, if there are so many rows.
template <size_t kRows>
inline __m512i Lookup(const uint8_t* table, __m512i index, const __mmask64 (&bits)[2]) {
  if constexpr (kRows == 256) {
    const __m512i lower = _mm512_permutex2var_epi8(Load(table), index, Load(table + kVector));
    const __m512i upper =
        _mm512_permutex2var_epi8(Load(table + 2 * kVector), index, Load(table + 3 * kVector));
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), lower, upper);
  } else {
    constexpr size_t kHalf = kRows / 2;
    return _mm512_mask_blend_epi8(bits[kHalf / 512], Lookup<kHalf>(table, index, bits),
                                  Lookup<kHalf>(table + kHalf, index, bits));
  }
}

// The rows of 32 indices in each half.
struct Rows {
  __m512i halves[2];
};

inline __m512i JoinBytes(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu8_epi16(low),
                         _mm512_slli_epi16(_mm512_cvtepu8_epi16(high), 8));
}

template <size_t kRows>
inline Rows FindRows(const RowTables<kRows>& tables, __m512i index, __mmask64 ninth = 0,
                     __mmask64 tenth = 0) {
  const __mmask64 bits[2] = {ninth, tenth};
  const __m512i low = Lookup<kRows>(tables.low, index, bits);
  const __m512i high = Lookup<kRows>(tables.high, index, bits);
  return {{JoinBytes(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high)),
           JoinBytes(_mm512_extracti64x4_epi64(low, 1), _mm512_extracti64x4_epi64(high, 1))}};
}

// The numbers at 64 places, negated where `signs` are set.
inline void StoreNumbers(__m512i places, __m512i list, uint64_t signs, uint8_t* codes) {
  const __m512i numbers = _mm512_shuffle_epi8(list, places);
  _mm512_storeu_si512(
      codes, _mm512_mask_sub_epi8(numbers, _cvtu64_mask64(signs), _mm512_setzero_si512(), numbers));
}

inline __m512i ListOf(int64_t first_eight, int64_t others) {
  return _mm512_broadcast_i32x4(_mm_set_epi64x(others, first_eight));
}

// 256 codes of 32 rows of eight numbers, whose places have 2 bits.
inline void StoreEights(__m512i rows, const uint64_t* signs, uint8_t* codes) {
  const __m512i list = ListOf(0x2B1908, 0), ones = _mm512_set1_epi8(3);
  const __m512i shifts = _mm512_set1_epi64(0x0E0C0A0806040200);
  alignas(kVector) uint16_t words[32];
  _mm512_store_si512(words, rows);
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    const __m128i eight = _mm_load_si128(reinterpret_cast<const __m128i*>(words + part * 8));
    const __m512i apart = _mm512_multishift_epi64_epi8(shifts, _mm512_cvtepu16_epi64(eight));
    StoreNumbers(_mm512_and_si512(apart, ones), list, signs[part], codes + part * kVector);
  }
}

// 256 codes of 64 rows of four numbers, whose places have 3 bits.
inline void StoreFours(const Rows& rows, __m512i list, const uint64_t* signs, uint8_t* codes) {
  const __m512i shifts = _mm512_set1_epi64(0x2926232009060300), ones = _mm512_set1_epi8(7);
  alignas(kVector) uint16_t words[64];
  _mm512_store_si512(words, rows.halves[0]);
  _mm512_store_si512(words + 32, rows.halves[1]);
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    const __m256i sixteen = _mm256_load_si256(reinterpret_cast<const __m256i*>(words + part * 16));
    const __m512i apart = _mm512_multishift_epi64_epi8(shifts, _mm512_cvtepu16_epi32(sixteen));
    StoreNumbers(_mm512_and_si512(apart, ones), list, signs[part], codes + part * kVector);
  }
}

struct EvenSigns {
  alignas(kVector) uint8_t bytes[128];
  EvenSigns() {
    for (uint32_t i = 0; i < 128; ++i) {
      bytes[i] = static_cast<uint8_t>(i | (static_cast<uint32_t>(std::popcount(i)) & 1) << 7);
    }
  }
};

// Eight signs of each of 32 bytes with seven: an eighth that makes the number of set ones even.
struct Signs {
  alignas(32) uint64_t words[4];
  explicit Signs(__m256i seven) {
    static const EvenSigns kEven;
    const __m512i signs = _mm512_permutex2var_epi8(Load(kEven.bytes), _mm512_castsi256_si512(seven),
                                                   Load(kEven.bytes + kVector));
    _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm512_castsi512_si256(signs));
  }
};

void ReadIq2Xxs(const std::byte* block, uint8_t* codes) {
  static const RowTables<256> kTables(tensor::RowPlaces(tensor::Codebook::kIq2Xxs));
  const __m512i all = Load(block + 2);  // for each 32 codes a word of rows and one of signs
  const __m256i rows = _mm512_cvtepi64_epi32(all);
  const __m512i apart = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352E2720), all);
  const Signs signs(_mm512_cvtepi64_epi32(apart));
  StoreEights(FindRows(kTables, _mm512_castsi256_si512(rows)).halves[0], signs.words, codes);
}

void ReadIq2Xs(const std::byte* block, uint8_t* codes) {
  static const RowTables<512> kTables(tensor::RowPlaces(tensor::Codebook::kIq2Xs));
  const __m512i words = Load(block + 2);
  const __mmask64 ninth = _mm512_test_epi16_mask(words, _mm512_set1_epi16(0x100));
  const Signs signs(_mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 9)));
  const __m512i index = _mm512_castsi256_si512(_mm512_cvtepi16_epi8(words));
  StoreEights(FindRows(kTables, index, ninth).halves[0], signs.words, codes);
}

void ReadIq2S(const std::byte* block, uint8_t* codes) {
  static const RowTables<1024> kTables(tensor::RowPlaces(tensor::Codebook::kIq2S));
  const __m512i index =
      _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2)));
  uint64_t signs[4];
  std::memcpy(signs, block + 34, sizeof(signs));
  const uint64_t upper = LoadWord(block + 66);
  const Rows rows = FindRows(kTables, index, _pext_u64(upper, 0x5555555555555555),
                             _pext_u64(upper, 0xAAAAAAAAAAAAAAAA));
  StoreEights(rows.halves[0], signs, codes);
}

void ReadIq3Xxs(const std::byte* block, uint8_t* codes) {
  static const RowTables<256> kTables(tensor::RowPlaces(tensor::Codebook::kIq3Xxs));
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 66));
  const Signs signs(_mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x352E2720150E0700), words));
  StoreFours(FindRows(kTables, Load(block + 2)), ListOf(0x3E342C241C140C04, 0), signs.words, codes);
}

void ReadIq3S(const std::byte* block, uint8_t* codes) {
  static const RowTables<512> kTables(tensor::RowPlaces(tensor::Codebook::kIq3S));
  uint64_t signs[4];
  std::memcpy(signs, block + 74, sizeof(signs));
  StoreFours(FindRows(kTables, Load(block + 2), LoadWord(block + 66)),
             ListOf(0x0F0D0B0907050301, 0), signs, codes);
}

}  // namespace
}  // namespace minisgl::cpu
#pragma GCC pop_options
#pragma GCC diagnostic pop

namespace minisgl::cpu {
namespace {

struct NamedRead {
  std::string_view name;
  ReadBlockCodes read;
};
constexpr NamedRead kReads[] = {{"IQ2_XXS", ReadIq2Xxs},
                                {"IQ2_XS", ReadIq2Xs},
                                {"IQ2_S", ReadIq2S},
                                {"IQ3_XXS", ReadIq3Xxs},
                                {"IQ3_S", ReadIq3S}};

bool HasVbmi() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("bmi2") != 0;
  }();
  return has;
}

}  // namespace

ReadBlockCodes FindReadCodes(const BlockFormat& format) {
  for (const NamedRead& named : kReads) {
    if (HasVbmi() && named.name == format.name) return named.read;
  }
  return format.codes.read;
}

}  // namespace minisgl::cpu

#else

namespace minisgl::cpu {
ReadBlockCodes FindReadCodes(const BlockFormat& format) { return format.codes.read; }
}  // namespace minisgl::cpu

#endif
