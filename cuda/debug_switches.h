// Switches for developers: each takes a part of the CUDA engine out of use, or puts another in its
// place, to find the part that has a fault or costs time without building again.
//
// They are words of the environment variable MINISGL_CUDA_DEBUG, separated by commas:
//   no-dependent-launch  every kernel waits for the end of the one before it
//   no-gemv              all matrix products by cuBLASLt, also those of at most 16 rows
//   ring                 products of few rows take the kernel of large matrices, whatever the size
//   no-fused-norm        norms before products are kernels of their own
//   no-fused-activation  activations behind products are kernels of their own
//   no-fused-add         the norm behind a product adds it to the residual stream
//   no-graphs            all steps run their operations one by one
//   no-timed-plans       cuBLASLt's first choice of an algorithm is used, whatever its time
//   no-prefetch          no kernel fetches the next product's weights into the second-level cache
//   no-peers             ranks exchange through the memory of the host
//   no-carveout          CUDA chooses how much shared memory a multiprocessor has for each kernel
//   decode-by-extend     rows of one token use the attention kernels of rows that extend
//   short-splits         decode attention cuts the keys of a row in the same way in every step
//   keep-codes           quantized weights are kept as codes, also where they fit expanded
//   expand-codes         quantized weights are expanded as they are loaded, also if they do not fit
//   small-pieces         codes are expanded for a product in the smallest pieces of a matrix
//   sync                 waits after each kernel and copy, so that an error names the one that
//                        caused it; implies no-graphs
// These put kernels in use that no GPU has run yet, each alone or with others, to be measured:
//   product-ends         products of few rows by kernels made for what stands behind the sums
//   l2-hint              loads of their weights ask for the lines beside them
//   whole-lines          copies of large matrices' weights take whole lines of a row; other bits
//   chain                products of at most 8 tokens that follow each other are one kernel
//   code-tiles           products of 17 to 511 tokens read codes, too. Implies keep-codes
//   w8a8                 products of many tokens with weights of type e4m3 round inputs to it,
//                        where the publisher does; other bits. Implies keep-codes
//   fetch-far            the product before attention fetches the weights of products behind it
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::cuda {

inline constexpr char kDebugVariable[] = "MINISGL_CUDA_DEBUG";

struct DebugSwitches {
  bool no_dependent_launch = false;
  bool no_gemv = false;
  bool ring = false;
  bool no_fused_norm = false;
  bool no_fused_activation = false;
  bool no_fused_add = false;
  bool no_graphs = false;
  bool no_timed_plans = false;
  bool no_prefetch = false;
  bool no_carveout = false;
  bool no_peers = false;
  bool decode_by_extend = false;
  bool short_splits = false;
  bool keep_codes = false;
  bool expand_codes = false;
  bool small_pieces = false;
  bool product_ends = false;
  bool l2_hint = false;
  bool whole_lines = false;
  bool fetch_far = false;
  bool chain = false;
  bool code_tiles = false;
  bool w8a8 = false;
  bool sync = false;
};

// Returns the switches that `words` names. kUsage, with the list of all words, if one is unknown.
Result<DebugSwitches> ParseDebugSwitches(std::string_view words);
// Returns the switches that the environment variable names, none if it is not set. A warning lists
// those that are on.
Result<DebugSwitches> ReadDebugSwitches();

}  // namespace minisgl::cuda
