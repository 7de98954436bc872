// The functions and types that kernels use, in addition to plain CUDA C++ (threadIdx,
// __syncthreads, warp shuffles, atomics). A kernel that uses nothing else compiles with nvcc, and
// with the host compiler for the thread-block emulator of tests/kernels, which checks every shared
// access, barrier and copy.
//
// In both:
//   MINISGL_KERNEL           before a kernel: MINISGL_KERNEL void Name(params)
//   MINISGL_GRID_CONSTANT    before a kernel's parameter, a struct whose arrays are indexed: it is
//                            read where it is, and not copied to each thread's stack
//   MINISGL_DEVICE           before a device function
//   MINISGL_LAUNCH_BOUNDS(threads, blocks_per_sm)   between `void` and the name of a kernel
//   bf16, f16                storage types of 16 bits; ToFloat(x), FromFloat<T>(f) (to nearest
//                            even), Pack2<T>(low, high): two as one word; Unpack2<T>(word): float2
//   Pack2Finite<T>(low, high)   Pack2; of f16 the largest number in place of infinity
//   PackE4M3(low, high)      two numbers as codes of type e4m3 in half of a word, to nearest
//                            even; the largest number in place of a larger one, NaN stays NaN
//   Vec<T, N>                N elements, aligned as a whole (at most 16 bytes): x[i]
//   LoadVec<N>(p), StoreVec(p, v)   global memory, one access; p aligned to the whole
//   LoadStream<N>(p)         the same for data that is read once: bypasses the first-level cache
//   LoadStreamWide<N>(p)     LoadStream that asks the second-level cache for 256 bytes around p
//   Shared<T>                pointer into the block's shared memory: s[i], s + i, LoadShared<N>(s),
//                            StoreShared(s, v). Elements are read and written by value: do not take
//                            the address of one, and name the type of a value read (no auto).
//   SharedArena arena;       allocates the block's dynamic shared memory from its start:
//     arena.Take<T>(n)       Shared<T> of n elements, 16-byte aligned. Every thread takes the same.
//   CopyAsync16(dst, src, valid)   16 bytes from global to shared, in the background; zeros where
//                            not valid (src is then not read). Both 16-byte aligned. Without
//                            `valid` fewer instructions.
//   CopyAsync16Wide(dst, src, valid)   the same, and asks for the line of 128 bytes around src
//   CopyAsyncCommit(), CopyAsyncWait<N>()   closes a group; waits until at most N of this thread's
//                            groups are unfinished. Other threads see the bytes after a barrier.
//   LoadMatrix4<T>(regs, row), LoadMatrix4Trans<T>(regs, row)   ldmatrix.x4(.trans): lane i gives
//                            the address of row i % 8 of 8x8 matrix i / 8 (16 bytes, aligned)
//   Mma16816<T>(d, a, b)     d[4] += a[4] (16x16, row) * b[2] (16x8, column), f32 sums:
//                            mma.sync.m16n8k16; fragments as the PTX manual lays them out
//   GridWait(), GridRelease()   programmatic dependent launch: waits for the kernels before this
//                            one; allows the next to begin. No effect if it is not supported.
//   PrefetchL2(p, n)         asks for n bytes of global memory in the second-level cache; does not
//                            wait. p and n are multiples of 16. No effect if it is not supported
//   PrefetchL2Last(p, n)     the same for what is to stay there longest
//   Sleep(ns)                the thread sleeps for about that time, at most 1,000,000 ns
//   Exp2(x), Exp(x), Log(x), Tanh(x), Erfc(x), Rsqrt(x), Sqrt(x)   of floats
//   MulRn(a, b), AddRn(a, b), DivRn(a, b)   each rounded once: never a part of a fused operation
//   MulPairs<T>(a, b), AddPairs<T>(a, b)   of two elements in a word each, rounded once
//   BitsToFloat(bits)        the float of these bits
//   AtomicAddShared(s, v), AtomicMaxShared(s, v), AtomicAddGlobal(p, v), AtomicExchangeGlobal(p, v)
//   AtomicCompareExchangeGlobal(p, x, v)   stores v if *p == x. Like the other atomics it returns
//                            what was there, and orders no other access: ThreadFence does
//   ThreadFence()            orders this thread's accesses, and those of threads that it met at a
//                            barrier before, with its atomics: for all threads of the device.
//                            Release: others store, barrier, fence, atomic. Acquire: atomic, fence,
//                            barrier, others load.
//   StoreRelease(p, v), LoadAcquire(p)   a flag of 4 bytes in memory of any device or of the host.
//                            Who loads v sees what the storing thread, and those that it met at a
//                            barrier before, have accessed; so do threads that it meets at a
//                            barrier afterwards. For threads of all devices
//   Nanoseconds()            a clock of the device, for the length of a wait
//   Trap(why)                ends the kernel with kCudaLaunchFailure; on the emulator the fault
//                            says why
//   kWarpSize, WarpSum(x), WarpMax(x)   over the warp; every lane gets the result. Sums are in
//                            butterfly order
//   BlockSum(x, scratch), BlockMax(x, scratch)   over the block; every thread gets the result.
//                            scratch: Shared<T> of 33 elements. Has barriers before and after
// No static shared memory, no __shared__ variables, no texture, no recursion.
#pragma once

#ifdef MINISGL_EMULATOR
#include "emulator/device_emulated.h"
#else
#include "device/device_nvidia.h"
#endif

#include "device/reduce.h"
