// See cpu_ceilings.h.
#include "bench/cpu_ceilings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>
#include <thread>

#include "cpu/kernels/amx_tiles.h"
#include "cpu/targets.h"
#include "minisgl/base/system_info.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 5;
// Long enough that starting the threads and a change of the clock rate are negligible.
constexpr double kCeilingSeconds = 0.1;
constexpr uint64_t kReadBytesMin = uint64_t{1} << 30;
constexpr ptrdiff_t kPrefetchBytes = 4096;

// Runs body(thread) on all threads at once; returns the seconds until the last is done.
template <typename Body>
double TimeTogether(int num_threads, const Body& body) {
  std::barrier start(num_threads), end(num_threads);
  std::vector<std::thread> threads;
  for (int thread = 1; thread < num_threads; ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      body(thread);
      end.arrive_and_wait();
    });
  }
  start.arrive_and_wait();
  const auto begin = Clock::now();
  body(0);
  end.arrive_and_wait();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (std::thread& thread : threads) thread.join();
  return seconds;
}

template <typename Body>
double BestTogether(int num_threads, const Body& body) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) best = std::min(best, TimeTogether(num_threads, body));
  return best;
}

// An empty assembler statement that takes a value forces the compiler to compute it; one that may
// change an operand prevents it from hoisting a product out of the loop.

// --- reading -------------------------------------------------------------------------------------

using ReadFunction = void (*)(const std::byte* begin, size_t num_bytes, bool prefetch);

// Step of every reader below: eight of the widest vectors, so that a size valid for one is valid
// for all.
constexpr size_t kReadStep = 512;

void ReadWords(const std::byte* begin, size_t num_bytes, bool prefetch) {
  int64_t sums[8] = {};
  for (size_t at = 0; at < num_bytes; at += kReadStep) {
    for (size_t i = 0; i < kReadStep / sizeof(int64_t); ++i) {
      int64_t word;
      std::memcpy(&word, begin + at + i * sizeof(int64_t), sizeof(word));
      sums[i % 8] += word;
      if (prefetch && i % 8 == 0) {
        __builtin_prefetch(begin + at + i * sizeof(int64_t) + kPrefetchBytes);
      }
    }
  }
  for (const int64_t sum : sums) asm volatile("" : : "r"(sum));
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void ReadAvx2(const std::byte* begin, size_t num_bytes,
                                              bool prefetch) {
  __m256i sums[8] = {};
  for (size_t at = 0; at < num_bytes; at += kReadStep) {
    const std::byte* const from = begin + at;
#pragma GCC unroll 16
    for (size_t i = 0; i < kReadStep / sizeof(__m256i); ++i) {
      if (prefetch && i % 2 == 0) __builtin_prefetch(from + i * sizeof(__m256i) + kPrefetchBytes);
      const auto* vector = reinterpret_cast<const __m256i*>(from) + i;
      sums[i % 8] = _mm256_add_epi64(sums[i % 8], _mm256_loadu_si256(vector));
    }
  }
  for (const __m256i& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("avx512f"))) void ReadAvx512(const std::byte* begin, size_t num_bytes,
                                                   bool prefetch) {
  __m512i sums[8] = {};
  for (size_t at = 0; at < num_bytes; at += kReadStep) {
    const std::byte* const from = begin + at;
#pragma GCC unroll 8
    for (size_t i = 0; i < kReadStep / sizeof(__m512i); ++i) {
      if (prefetch) __builtin_prefetch(from + i * sizeof(__m512i) + kPrefetchBytes);
      sums[i] = _mm512_add_epi64(sums[i], _mm512_loadu_si512(from + i * sizeof(__m512i)));
    }
  }
  for (const __m512i& sum : sums) asm volatile("" : : "v"(sum));
}

#endif

ReadFunction WidestRead() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return ReadAvx512;
  if (__builtin_cpu_supports("avx2")) return ReadAvx2;
#endif
  return ReadWords;
}

// Each thread reads its own part of the memory, which is in huge pages if the system has them.
void MeasureRead(CpuCeilings* ceilings) {
  const auto threads = static_cast<size_t>(ceilings->num_threads);
  const size_t part = ColdBytes(kReadBytesMin) / threads / kReadStep * kReadStep;
  // The bytes that are prefetched past the end must be mapped too.
  const size_t mapped = part * threads + static_cast<size_t>(kPrefetchBytes) + kReadStep;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  madvise(memory, mapped, MADV_HUGEPAGE);
  std::memset(memory, 1, mapped);
  const ReadFunction read = WidestRead();
  double best = std::numeric_limits<double>::infinity();
  for (const bool prefetch : {false, true}) {
    best =
        std::min(best, BestTogether(ceilings->num_threads, [&](int thread) {
                   read(static_cast<const std::byte*>(memory) + static_cast<size_t>(thread) * part,
                        part, prefetch);
                 }));
  }
  munmap(memory, mapped);
  ceilings->read_bytes = part * threads;
  ceilings->read_bytes_per_s = static_cast<double>(part * threads) / best;
}

// --- computing -----------------------------------------------------------------------------------

#if defined(__x86_64__)

// Independent chains: more than latency (4 or 5 cycles) times instructions per cycle (2), and as
// many as leave registers for the operands.
constexpr int kChains = 12, kChains512 = 24;

__attribute__((target("sse2"))) void MulAddSse(int64_t steps) {
  __m128 sums[kChains] = {}, x = _mm_set1_ps(0.5f), y = _mm_set1_ps(0.25f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m128& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm_add_ps(sum, _mm_mul_ps(x, y));
    }
  }
  for (const __m128& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("avx2,fma"))) void FmaAvx2(int64_t steps) {
  __m256 sums[kChains] = {}, x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm256_fmadd_ps(x, y, sum);
    }
  }
  for (const __m256& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("avx512f"))) void FmaAvx512(int64_t steps) {
  __m512 sums[kChains512] = {}, x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (__m512& sum : sums) {
      asm volatile("" : "+v"(x));
      sum = _mm512_fmadd_ps(x, y, sum);
    }
  }
  for (const __m512& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx512f,avx512bf16"))) void DotBf16(int64_t steps) {
  __m512 sums[kChains512] = {};
  __m512i x = _mm512_set1_epi16(0x3f00), y = _mm512_set1_epi16(0x3e80);  // 0.5, 0.25
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (__m512& sum : sums) {
      asm volatile("" : "+v"(x));
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
    }
  }
  for (const __m512& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx512f,avx512vnni"))) void DotInt8Avx512(int64_t steps) {
  __m512i sums[kChains512] = {}, x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(2);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (__m512i& sum : sums) {
      // The statement works on a copy: GCC 12 stores every sum with the intrinsic, and a sum that
      // the statement names.
      __m512i next = sum;
      asm volatile("vpdpbusd %2, %1, %0" : "+v"(next) : "v"(x), "v"(y));
      sum = next;
    }
  }
  for (const __m512i& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx512vl,avx512vnni"))) void DotInt8Avx512Vl(int64_t steps) {
  __m256i sums[kChains] = {}, x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      __m256i next = sum;
      asm volatile("vpdpbusd %2, %1, %0" : "+v"(next) : "v"(x), "v"(y));
      sum = next;
    }
  }
  for (const __m256i& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("avx2,avxvnni"))) void DotInt8AvxVnni(int64_t steps) {
  __m256i sums[kChains] = {}, x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      __m256i next = sum;
      asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(next) : "x"(x), "x"(y));
      sum = next;
    }
  }
  for (const __m256i& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("avx512f,avx512bw"))) void MaddInt8Avx512(int64_t steps) {
  __m512i sums[kChains512] = {}, x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(2);
  const __m512i ones = _mm512_set1_epi16(1);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (__m512i& sum : sums) {
      asm volatile("" : "+v"(x));
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(x, y), ones));
    }
  }
  for (const __m512i& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx2"))) void MaddInt8Avx2(int64_t steps) {
  __m256i sums[kChains] = {}, x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
    }
  }
  for (const __m256i& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("ssse3"))) void MaddInt8Ssse3(int64_t steps) {
  __m128i sums[kChains] = {}, x = _mm_set1_epi8(1), y = _mm_set1_epi8(2);
  const __m128i ones = _mm_set1_epi16(1);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m128i& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_maddubs_epi16(x, y), ones));
    }
  }
  for (const __m128i& sum : sums) asm volatile("" : : "x"(sum));
}

// Products of 16 x 32 and 32 x 16 numbers of 16 bits, or 16 x 64 and 64 x 16 of 8 bits, into four
// sums. The system has lent the registers (AvailableCpuTargets).
constexpr int kTileChains = 4, kTileBits = 16 * 512;
constexpr int kBf16TileOperations = 2 * 16 * 16 * 32, kInt8TileOperations = 2 * 16 * 16 * 64;

using Bf16Tiles = cpu::HardwareTiles;
struct Int8Tiles : cpu::HardwareTiles {
  template <int kSum, int kX, int kW>
  void MultiplyAdd() {
    MultiplyAddBytes<kSum, kX, kW>();
  }
};

template <typename Tiles>
Tiles WholeTiles() {
  cpu::TileConfig config;
  for (int tile = 0; tile < cpu::kNumTiles; ++tile) config.Set(tile, cpu::kTileRows);
  Tiles tiles;
  tiles.Configure(config);
  return tiles;
}

template <typename Tiles>
void MultiplyTiles(int64_t steps) {
  auto tiles = WholeTiles<Tiles>();
  for (int64_t step = 0; step < steps; ++step) {
    tiles.template MultiplyAdd<0, 4, 5>();
    tiles.template MultiplyAdd<1, 4, 5>();
    tiles.template MultiplyAdd<2, 4, 5>();
    tiles.template MultiplyAdd<3, 4, 5>();
  }
  tiles.Release();
}

// Blocks of 2 x 2 products, as matrix products have them: their four tiles are read from memory
// that the second-level cache holds (1 or 2 MiB), and the first (48 KiB) does not.
template <typename Tiles>
void MultiplyTilesFromL2(int64_t steps) {
  constexpr int64_t kBlockBytes = 4 * cpu::kTileBytes, kBlocks = 128;
  const std::vector<std::byte> memory(kBlockBytes * kBlocks + cpu::kTileRowBytes);
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data()) %
                                               uint64_t{cpu::kTileRowBytes});
  const std::byte* const begin = memory.data() + (cpu::kTileRowBytes - misaligned);
  auto tiles = WholeTiles<Tiles>();
  for (int64_t step = 0; step < steps; ++step) {
    const std::byte* const block = begin + step % kBlocks * kBlockBytes;
    tiles.template Load<4>(block, cpu::kTileRowBytes);
    tiles.template Load<6>(block + cpu::kTileBytes, cpu::kTileRowBytes);
    tiles.template MultiplyAdd<0, 4, 6>();
    tiles.template Load<5>(block + 2 * cpu::kTileBytes, cpu::kTileRowBytes);
    tiles.template MultiplyAdd<1, 5, 6>();
    tiles.template Load<7>(block + 3 * cpu::kTileBytes, cpu::kTileRowBytes);
    tiles.template MultiplyAdd<2, 4, 7>();
    tiles.template MultiplyAdd<3, 5, 7>();
  }
  tiles.Release();
}

// On numbers already widened to 16 bits.
__attribute__((target("sse2"))) void MaddInt16Sse2(int64_t steps) {
  __m128i sums[kChains] = {}, x = _mm_set1_epi16(1), y = _mm_set1_epi16(2);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m128i& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm_add_epi32(sum, _mm_madd_epi16(x, y));
    }
  }
  for (const __m128i& sum : sums) asm volatile("" : : "x"(sum));
}

struct Instruction {
  OperandKind kind;
  const char* name;
  int vector_bits;
  int operations;  // of one step of one chain
  int chains;
  bool supported;
  void (*run)(int64_t steps);
};

std::vector<Instruction> Instructions() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  const bool vl = vnni && __builtin_cpu_supports("avx512vl");
  const bool avxvnni = avx2 && __builtin_cpu_supports("avxvnni");
  const bool ssse3 = __builtin_cpu_supports("ssse3");
  const bool tiles = cpu::AvailableCpuTargets().front() == cpu::CpuTarget::kAmx;
  constexpr auto kF32 = OperandKind::kF32, kBf16 = OperandKind::kBf16, kInt8 = OperandKind::kInt8;
  return {
      {kF32, "mulps, addps xmm", 128, 8, kChains, true, MulAddSse},
      {kF32, "vfmadd ymm", 256, 16, kChains, avx2, FmaAvx2},
      {kF32, "vfmadd zmm", 512, 32, kChains512, avx512, FmaAvx512},
      {kBf16, "vdpbf16ps zmm", 512, 64, kChains512, bf16, DotBf16},
      {kBf16, "tdpbf16ps tiles", kTileBits, kBf16TileOperations, kTileChains, tiles,
       MultiplyTiles<Bf16Tiles>},
      {kBf16, "tdpbf16ps tiles, 2 x 2 from L2", kTileBits, kBf16TileOperations, kTileChains, tiles,
       MultiplyTilesFromL2<Bf16Tiles>},
      {kInt8, "tdpbssd tiles", kTileBits, kInt8TileOperations, kTileChains, tiles,
       MultiplyTiles<Int8Tiles>},
      {kInt8, "tdpbssd tiles, 2 x 2 from L2", kTileBits, kInt8TileOperations, kTileChains, tiles,
       MultiplyTilesFromL2<Int8Tiles>},
      {kInt8, "pmaddwd xmm", 128, 16, kChains, true, MaddInt16Sse2},
      {kInt8, "pmaddubsw, pmaddwd xmm", 128, 32, kChains, ssse3, MaddInt8Ssse3},
      {kInt8, "vpmaddubsw, vpmaddwd ymm", 256, 64, kChains, avx2, MaddInt8Avx2},
      {kInt8, "vpmaddubsw, vpmaddwd zmm", 512, 128, kChains512, avx512, MaddInt8Avx512},
      {kInt8, "vpdpbusd ymm", 256, 64, kChains, avxvnni || vl,
       avxvnni ? DotInt8AvxVnni : DotInt8Avx512Vl},
      {kInt8, "vpdpbusd zmm", 512, 128, kChains512, vnni, DotInt8Avx512},
  };
}

void MeasureInstructions(CpuCeilings* ceilings) {
  for (const Instruction& instruction : Instructions()) {
    if (!instruction.supported) continue;
    int64_t steps = 1 << 12;
    for (double seconds = 0; seconds < kCeilingSeconds / 2; steps *= 2) {
      seconds = TimeTogether(1, [&](int) { instruction.run(steps); });
    }
    const double best = BestTogether(ceilings->num_threads, [&](int) { instruction.run(steps); });
    const double operations = static_cast<double>(steps) * instruction.chains *
                              instruction.operations * ceilings->num_threads;
    ceilings->rates.push_back({instruction.kind, instruction.name, instruction.vector_bits,
                               std::string_view(instruction.name).starts_with("vpdp"),
                               operations / best});
  }
}

#else

void MeasureInstructions(CpuCeilings*) {}

#endif

}  // namespace

const InstructionRate* CpuCeilings::Best(OperandKind kind, int bits_max, bool with_dot) const {
  const InstructionRate* best = nullptr;
  for (const InstructionRate& rate : rates) {
    if (rate.kind != kind || rate.vector_bits > bits_max) continue;
    if (rate.is_dot && !with_dot) continue;
    if (best == nullptr || rate.per_s > best->per_s) best = &rate;
  }
  return best;
}

CpuCeilings MeasureCpuCeilings(int num_threads) {
  CpuCeilings ceilings;
  ceilings.num_threads = num_threads;
  MeasureRead(&ceilings);
  MeasureInstructions(&ceilings);
  return ceilings;
}

uint64_t LastLevelCacheBytes() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

uint64_t ColdBytes(uint64_t least) {
  return std::min(std::max(4 * LastLevelCacheBytes(), least), AvailableMemoryBytes() / 3);
}

}  // namespace minisgl
