// The instruction sets that this build has CPU kernels for, as the build option cpu_targets says.
// A build for one machine compiles in less than half the time of one for all.
//
// Plain macros, because the preprocessor decides what is compiled. Any build has the fallback
// (scalar), and on other processors than x86-64 all that the compiler knows.
#pragma once

// Bits of MINISGL_CPU_TARGETS, which meson.build defines, too.
#define MINISGL_SSE4_BIT 1
#define MINISGL_AVX2_BIT 2
#define MINISGL_AVX512_BIT 4
#define MINISGL_AVX512_VNNI_BIT 8
#define MINISGL_AVX512_BF16_BIT 16  // includes MINISGL_AVX512_VNNI_BIT
#define MINISGL_AMX_BIT 32          // includes MINISGL_AVX512_BF16_BIT
#ifndef MINISGL_CPU_TARGETS
#define MINISGL_CPU_TARGETS 63
#endif

#define MINISGL_HAS_TARGET(BIT) ((MINISGL_CPU_TARGETS & (BIT)) != 0)

// Set if the kernels of AVX512-BF16, or of the tiles of AMX, are compiled.
#if defined(__x86_64__)
#define MINISGL_HAS_BF16_DOT MINISGL_HAS_TARGET(MINISGL_AVX512_BF16_BIT)
#define MINISGL_HAS_AMX MINISGL_HAS_TARGET(MINISGL_AMX_BIT)
#else
#define MINISGL_HAS_BF16_DOT 0
#define MINISGL_HAS_AMX 0
#endif
