// Matrix products of the CPU engine compared to oneDNN's, a library of just-in-time kernels. Built
// if oneDNN's headers are installed (Debian: libdnnl-dev).
//
// bench_onednn [THREADS]
//
// Multiplies the matrices of a layer of Qwen3-0.6B, with weights packed beforehand by both sides;
// runs alternate, and the best of each counts.
// - bf16: both round x to bf16 if the engine's target has the dot product; oneDNN gets it rounded,
//   the engine rounds it within the run.
// - int8: oneDNN only multiplies bytes by signed bytes into 32-bit sums; the engine's blocks of 32
//   have scales, and it quantises x within the run.
//
// `alike` tells whether the first row's result is bitwise equal to that of multiplying it alone, as
// the engine guarantees for its own. With THREADS above 1, set OMP_WAIT_POLICY=passive: otherwise
// the library's threads keep spinning during the engine's runs.
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_attention_case.h"
#include "bench/bench_device.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/device_array.h"
#include "weights/random_checkpoint.h"

namespace minisgl {
namespace {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

constexpr struct {
  const char* name;
  int64_t num_out, num_in;
} kMatrices[] = {
    {"qkv", 4096, 1024}, {"o", 1024, 2048}, {"gate_up", 6144, 1024}, {"down", 1024, 3072}};
constexpr int64_t kRows[] = {1, 2, 8, 32, 64, 512};
constexpr int64_t kRowsMost = 512;
constexpr int kRounds = 9;
constexpr double kRunSeconds = 0.02;
constexpr uint64_t kSeed = 1;
// Copies of a matrix alternate, so that its weights come from memory, as in a model.
constexpr uint64_t kColdBytes = uint64_t{256} << 20;

template <typename T>
T OrDie(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fputs((result.status().message() + "\n").c_str(), stderr);
  std::exit(1);
}

// Returns the seconds of one of `count` launches.
double Time(int count, const std::function<void()>& launch) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) launch();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
}

// A product of [rows, num_in] with [num_out, num_in] transposed, with weights in oneDNN's packed
// format.
class OnednnProduct {
 public:
  OnednnProduct(int64_t rows, int64_t num_out, int64_t num_in, bool int8, int copies)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), int8_(int8) {
    const Type x_type = int8 ? Type::u8 : Type::bf16, w_type = int8 ? Type::s8 : Type::bf16;
    const Type sum_type = int8 ? Type::s32 : Type::f32;
    const dnnl::memory::desc x({rows, num_in}, x_type, Tag::ab);
    const dnnl::memory::desc any_weight({num_in, num_out}, w_type, Tag::any);
    const dnnl::memory::desc plain({num_in, num_out}, w_type, Tag::ba);
    const dnnl::memory::desc sums({rows, num_out}, sum_type, Tag::ab);
    const dnnl::matmul::primitive_desc chosen({x, any_weight, sums}, engine_);
    product_ = dnnl::matmul(chosen);
    name_ = chosen.impl_info_str();
    x_ = dnnl::memory(x, engine_);
    sums_ = dnnl::memory(sums, engine_);
    FillX(rows * num_in);
    const auto count = static_cast<uint64_t>(num_out * num_in);
    const auto values = OrDie(
        weights::MakeRandomMemory(count * 2, DType::kBF16, 0, bench::kUnitSpread / 32, kSeed));
    dnnl::memory from(plain, engine_);
    std::memcpy(from.get_data_handle(), values.get(), count * (int8 ? 1 : 2));
    for (int i = 0; i < copies; ++i) {
      weights_.emplace_back(chosen.weights_desc(), engine_);
      dnnl::reorder(from, weights_.back()).execute(stream_, from, weights_.back());
      stream_.wait();
    }
  }

  void Launch(int turn) {
    product_.execute(stream_, {{DNNL_ARG_SRC, x_},
                               {DNNL_ARG_WEIGHTS, weights_[static_cast<size_t>(turn)]},
                               {DNNL_ARG_DST, sums_}});
    stream_.wait();
  }
  const std::string& name() const { return name_; }
  const std::byte* sums() const { return static_cast<const std::byte*>(sums_.get_data_handle()); }

 private:
  // The same numbers for any number of rows.
  void FillX(int64_t count) {
    const uint64_t bytes = static_cast<uint64_t>(count) * (int8_ ? 1 : 2);
    const auto from = OrDie(weights::MakeRandomMemory(CeilDiv<uint64_t>(bytes, 2) * 2, DType::kBF16,
                                                      0, bench::kUnitSpread, kSeed + 1));
    std::memcpy(x_.get_data_handle(), from.get(), bytes);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  bool int8_;
  dnnl::matmul product_;
  std::string name_;
  dnnl::memory x_, sums_;
  std::vector<dnnl::memory> weights_;
};

class Comparison {
 public:
  Comparison(bench::BenchDevice device, int threads)
      : device_(std::move(device)), threads_(threads) {}

  void Run() {
    fmt::print("{}, {} threads\n", ops()->Name(), threads_);
    fmt::print("{:9}{:8}{:>5}{:>12}{:>12}{:>8}  {:>6}  kernel of oneDNN\n", "format", "matrix",
               "rows", "minisgl", "oneDNN", "times", "alike");
    for (const bool int8 : {false, true}) {
      for (const auto& matrix : kMatrices) {
        Compare(matrix.name, matrix.num_out, matrix.num_in, int8);
      }
    }
  }

 private:
  Ops* ops() const { return device_.ops(); }

  std::vector<Matrix> Pack(int64_t num_out, int64_t num_in, bool int8, int copies) {
    const WeightFormat format = {DType::kBF16, int8 ? Quantization::kInt8 : Quantization::kNone};
    const auto count = static_cast<uint64_t>(num_out * num_in + copies);
    const auto values = OrDie(
        weights::MakeRandomMemory(count * 2, DType::kBF16, 0, bench::kUnitSpread / 32, kSeed));
    std::vector<Matrix> packed;
    for (int i = 0; i < copies; ++i) {
      const TensorView view = {values.get() + i * 2, DType::kBF16, {num_out, num_in}};
      packed.push_back(OrDie(ops()->PackMatrix({&view, 1}, format)));
    }
    return packed;
  }

  ActivationArray Activations(int64_t count) {
    const DType dtype = ops()->activation_dtype();
    const auto elements = static_cast<uint64_t>(count);
    auto array = OrDie(ActivationArray::Make(ops(), dtype, {elements}));
    const uint64_t bytes = elements * DTypeBytes(dtype);
    const auto values =
        OrDie(weights::MakeRandomMemory(bytes, dtype, 0, bench::kUnitSpread, kSeed + 1));
    if (const Status status = ops()->Upload(array.ptr().data, values.get(), bytes); !status.ok()) {
      std::fputs((status.message() + "\n").c_str(), stderr);
      std::exit(1);
    }
    return array;
  }

  void Compare(const char* name, int64_t num_out, int64_t num_in, bool int8) {
    const auto bytes = static_cast<uint64_t>(num_out * num_in) * (int8 ? 1 : 2);
    const auto copies = static_cast<int>(std::max<uint64_t>(2, CeilDiv(kColdBytes, bytes)));
    const std::vector<Matrix> packed = Pack(num_out, num_in, int8, copies);
    const ActivationArray x = Activations(kRowsMost * num_in);
    const ActivationArray out = Activations(kRowsMost * num_out);
    const auto row_bytes = static_cast<size_t>(num_out) * 4;
    std::vector<std::byte> one_row;
    for (const int64_t rows : kRows) {
      OnednnProduct theirs(rows, num_out, num_in, int8, copies);
      theirs.Launch(0);
      if (rows == 1) one_row.assign(theirs.sums(), theirs.sums() + row_bytes);
      const bool alike = std::memcmp(one_row.data(), theirs.sums(), row_bytes) == 0;
      int turn = 0, their_turn = 0;
      const auto run_ours = [&] {
        ops()->Linear({.x = x.ptr(),
                       .weight = &packed[static_cast<size_t>(turn++ % copies)],
                       .bias = nullptr,
                       .out = out.ptr(),
                       .num_tokens = rows});
      };
      const auto run_theirs = [&] { theirs.Launch(their_turn++ % copies); };
      const double first = Time(1, run_ours);
      const int count = std::max(1, static_cast<int>(kRunSeconds / first));
      double ours = first, least = Time(1, run_theirs);
      for (int round = 0; round < kRounds; ++round) {
        ours = std::min(ours, Time(count, run_ours));
        least = std::min(least, Time(count, run_theirs));
      }
      const double operations = 2.0 * static_cast<double>(num_out * num_in * rows) / 1e9;
      fmt::print("{:9}{:8}{:5}{:9.1f} G/s{:9.1f} G/s{:8.2f}  {:>6}  {}\n", int8 ? "int8" : "bf16",
                 name, rows, operations / ours, operations / least, least / ours,
                 alike ? "yes" : "no", theirs.name());
      std::fflush(stdout);
    }
  }

  bench::BenchDevice device_;
  int threads_;
};

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  omp_set_num_threads(threads);
  load::EngineOptions options;
  options.device = *load::ParseDevice("cpu");
  options.threads = threads;
  Comparison(OrDie(bench::BenchDevice::Open(options, bench::AttentionConfig({}))), threads).Run();
  return 0;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) { return minisgl::Main(argc, argv); }
