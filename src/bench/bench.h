// Benchmarks of minisgl bench. Each measures the limits of the machine first, then its subject, and
// reports every figure with its ratio to the limit (bench_limits.h).
#pragma once

#include "bench/bench_options.h"
#include "bench/bench_report.h"
#include "minisgl/base/status.h"

namespace minisgl::bench {

// Throughput of batches through the whole runtime (bench_throughput.cc).
Status BenchNano(const BenchOptions& options, const ThroughputOptions& sizes, BenchReport* report);
Status BenchUniform(const BenchOptions& options, const ThroughputOptions& sizes,
                    BenchReport* report);
Status BenchShared(const BenchOptions& options, const ThroughputOptions& sizes,
                   BenchReport* report);

// Latency through the whole runtime (bench_latency.cc).
Status BenchSingle(const BenchOptions& options, const LatencyOptions& sizes, BenchReport* report);
Status BenchPrefix(const BenchOptions& options, const LatencyOptions& sizes, BenchReport* report);
Status BenchSpec(const BenchOptions& options, const LatencyOptions& sizes, BenchReport* report);

// The attention operation alone, on generated keys and values (bench_attention.cc).
Status BenchAttentionDecode(const BenchOptions& options, const AttentionOptions& sizes,
                            BenchReport* report);
Status BenchAttentionPrefill(const BenchOptions& options, const AttentionOptions& sizes,
                             BenchReport* report);
Status BenchCascade(const BenchOptions& options, const AttentionOptions& sizes,
                    BenchReport* report);

// The dense products of a model's shape, one at a time (bench_products.cc).
Status BenchProducts(const BenchOptions& options, const ProductOptions& sizes, BenchReport* report);

}  // namespace minisgl::bench
