// See block_grids.h.
//
// A codebook is stored as the differences between its rows in their order. A row is the places of
// its numbers in a short list, 2 bits each, or 3, the first lowest. A difference is one or more
// digits in base 32, the lowest first; a digit is a character of base64, and 32 more if others
// follow.
#include "tensor/block_grids.h"

#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "minisgl/base/check.h"

namespace minisgl::tensor {
namespace {

constexpr char kIq2Xxs[] =
    "ACDDCHDMCGCXDMIJDcCIY/CDMFrBkCUoDCgBgD/LDMRDcCGYhBDMU8CCGYmBjBXR4DHwBkCgB8KFDMUZDMC2B8D8BiGS"
    "tvBDMRfgBkBMFrDIYwBKmBkFhB7NIYFkB3B4EqC+EWrPDMwBhC/DF7ExFvtBCI6BdfCnFf4FC/PDMwBWqFhCjBsJ4LY0"
    "DwN9tFDMIJDcIOKhBDMwDgBhCfF8DP4BOS4MIYgDZ5DS8GhQDMwBF7F4CJhBjGrCwrBIJIHgDI8D+BiDtH/PC4D3HzCs"
    "NRIrC8GoG8vBMwBoB4E1CjGoCgNFrICyD+V+9FCI3BhCiEUoBxGwPDMFrBgBgFmCuC1D3BgBiNiItIzvBMUchD1DqDlG"
    "7NiBiBtIwZ/Ei3BuC1BkE3H4Q4hB0F";
constexpr char kIq2Xs[] =
    "ACDDCHDCDHCDDZDCDHCDDJDcCDDJDFHhDDCDHCDDCHDcCDDJDMIZDMwDCDDJDMhBDMFrBK3LDCDHCDDJDcCDDJDCKhBD"
    "MwDCDDJDMhBDMRfhEDMWaCiC8LCDDCHDMFcDMIoBgBK3CDMwBhCI3DgBIuDKhrBDCDHCDDJDcCDDJDMKXDMwDCDDJDMh"
    "BDMwBUCrDDCKwBgBgNCDDJDMhBDFHUchEDMwBgGU1B4NDMCuBUyB6DFhDrH4C3qBCDDCHDMhBDMwBgBhDDMwBId7EiB+"
    "CoB5KDMZXgGhCRnCoDZsE6KICW1BzBamGoB4DYiDGC3rFDCDHCDDJDcCDDCHDMFcDMwDCDDJDMhBDMwBFd/CDMCXXgOC"
    "DDJDFHhBDMwBUtDDMUc6CmDK6BMxNDMwBFPO+ERzBMZ7E8vBCDDJDMIZDMwBhEDMFrBC+FkCmD3KDMRfgBhBgB/CI4DI"
    "5EnC5B/KUtBPpChEmBCjK8rBDMwBUOkBjB3CkJmBoCuLW6HwBF/C9SpD7FhHuCO+sFCDDJDMKXDMwBCmBC3CDCKwBRIn"
    "FgBgDCeI5KDMCDrBgBpB3DkChDzDyC2MId1BmBCmB+C8I+CIOS5qBDMwBWuB8DiBiCyHzB3LF/BMIxGnDCvFwQ1CjFsG"
    "rCgtBCGCWK2DxFItC6CCGiB2CgBgN1CwOzByLWCG4DI8CgECiFCnDZ";
constexpr char kIq2S[] =
    "ACDDCHDCDHCDDZDCDHCDDJDCDXCDDJDMFF3CDCDHCDDJDcCDDJDCDHFDZDMCDMD8CCDDJDMKXDCDHFrBFFKO/KDCDHCD"
    "DJDCDXCDDCHDCDHCDcDCDHFDJD8CCDDCHDCDHFDZDCDHCDDJDcCDDJDMhDDCDHFrBFDJDMhBDMwLCDDJDCDHFFXDCDHC"
    "DDJDcFPW3CDMCDDJfFDJDMhBPwDRDOGCmBpCorBDCDHCDDJDCaCDDJDCDHCDDZDCKFDJD8CCDDCHDCDHCDDZDCDHCDDJ"
    "DcCDDJDtDDFHFMDcFMDtBDMwLCDDJDCDHFDZDCDHCDDJDcCDDJDMhDDCDHCDDJDcCDDJDMhBDMwDFDJDMhBDMwBqB3KD"
    "CDHFDJfCDDJDMhBD8DCDDJDMhBDMZ5BiDMwBWqtBCDDJDCDHFFXDMCDPcKKW3CDMCDMfCDMDMhBDMwDKYGCaM4BCe5KD"
    "CDHFDJDcCDDJDMhBDMwDFDJDMhBDMWahEDMwBZnNFMDtBDM6BgB3CDMlE1DYiCkBC3rFDCDHCDDCHDCaCDDCHDCDHCDc"
    "DMFDJD8CCDDJDCDHCDcDCDHCDDJDcCDDJDMhDDMCDDMcFDJDMhBD8LCDDCHDCDHCDDZDCDHCDDJDcCDDJDMhDDCDHCDD"
    "JDcCDDJDMKXDMwDCDDJDMhBDMwBlB8KDFHCDDJDcCDDJDMkBMwDCDDJDMhBDMwBWrDDMwBguBCDDJDCDHCDDZDCDHCDD"
    "JDcCDDJDtDDCDHCDDJDcCDDJDMhBDMwDFDJDMhBDMZXhMDCDHCDDJDcCDDJDMhBDMwDCDDJDMhBDMwBhEDMWagOCDDJD"
    "MhBDMKmBhEDMwBgGZsDjB5qBDCKCDDJDcFDJDMkBMwDCDDJDMhBDMwBZrDMwBWrC/KFDJDMhBDMwBhEDMwBKeqBuD0Et"
    "LDM1CzBoDqB4I/C/qFCDDJDFHFcDMCDDJfFMDtDDFHCDDJDcCDDJDtBDMZ3CFFHDtBDMxNDCDHCDDJfCDDJDMhBDMwDC"
    "DDJDMhBDMwBK3DDMZXgOFMDtBDMyC/CD8BlB9F2BCoBgB/qBDFHCDDMcCDDJDMhBDMwDFMDtBDMKnFDMwBmD6KCDDJDM"
    "hBDMwBWrDDMwB4CJ/CmCe9MDMWapD3CpCJ+JwrBFFKOIXDMyCI2ElB9EIYGC4CGCe5KDMwBpCb8CZ4J5Ne6DyFyBiECW"
    "CGgDiB";
constexpr char kIq3Xxs[] =
    "ACCFCEBCHJZCECFCHEDCHLMICCFHCHCEKGOEGBCLjBTUFLMCEGTQzBXUECVOQCFCHCFCCLBYCHHCvBCFCHHiBGCOJNQL"
    "EjBoBESTMtCOgBCHCFCEDJfCCDCHHbEBICHGBCNBNUHEsBEhBOYUKblCCLXcHCHCVNFGCOJLCbCFNVQPS9BPTGGMbfSV"
    "oBVULOCMEtCUPBQGReflBLhBOVtCDCOyBXXIGQXfOgBIpBdLEjBIXvCsBOyBQCOdgBelBkBGmChBlBxBoBOyBCCBSQsB"
    "KqBbFWNOVhBQfCSkC";
constexpr char kIq3S[] =
    "ABBDCBBBCCCBEGFCDCCCFCHDDBBBCEBEDDECEHNEFGBECBDDDEDEGDCCCNDIGEDCHCDGECNCEDLECDGGDGPKCMCEFGEC"
    "PFLDCORPHCCMCEFNEUBBCEBCCCBCHDCOCDJGBCDCEFHDGHCOGCKDCBEGGDKDKHDDBDGGBEFRGLCFCNCHECEVHDGHCPnB"
    "EDNCbCFCHMERGIBCCCBCCCDCEBCHCCDCNBDCDCGDEDDEDGHYDDKCFHCKEKDECDEJCFCHGOLGJDHDEZDHFJNBLNICFKcE"
    "UENCLFaHCCCDHCCFCDCKGICCHFCNQKECKGKCMZHEFCEBJCEGOIGFEHRGENHCLFKKNTTgBCNCLjBEGGEDDHHQKFCCHGFG"
    "GEUCFFEKFPDGMFCFCHEjBCSLBZMCKhBZRUYFLLGZGEGOEDDMGFCCFHJgBGJKFGNXFBPNFMGGDMKMkBMTC3BgBCO3BCCM"
    "CVQQHdWSGLFGIMFP1BOPODZUVbpBC1BEDJCMCMGQHLPCcDEGDHRZYDOWEGFYqBQgBXnB";
constexpr char kIq1S[] =
    "ACDDCHELCGCbMDCPbCGCLLCGC6CBMDCDBLcFDJDFHDCCdMDCP7CCGCLLCGCbMILFXCGCHEEHCGCnLDCPcIMFKBsBIM8C"
    "DBBPDCPXFFGBDBBDHCDDCXQEDCHDBBDrDFoBDMCDDIBFDcMDFnLCGCLLCGCbMFPbCGCLLCGC7CMDFLBcPBEMDFoBDCDM"
    "7CCGCLLCGCbMIIEbCDDCLLCGCmrBBDFLBcDMFDJDBEoBDCLE8CDCDHCDDJDFcFGBBCBBDHFfODMDtDDCPbGDJDDCKCfM"
    "DCP8KFDLBDBIFbEBCCHDBBDJDDcFHEBDBBHDBE5CDFHDBBDHCDDCXDBBLBCBBDBHDBBDXCCBDCGBDBBDBGCD8CDBBPBC"
    "CHFaCCBDCHEBCBIDBDBBcEIDPFoLFPcDCDHFDCGBDCDcMDRrDCDFHEdCBDJDBBDBGFFfIBDDJFDgDNOCeCDHCDDJFDcM"
    "FEmrBCGCLLCDDCbMIIEbCGCLLCDDC7CMDFMdCFMDCHDBBfLGDM8CHCHELCGCbMFDMcHCHELCGC7KPCDMfBBDJDDCMfMD"
    "FIEkDMMIXFDJDBEJDDhBHEBDCHDCD8CLCHMcIMLBIbCKKmLCGCLLCGCbMDRbCGCWCGC/CIDFMhBDJDMDCDcLGDLB7CCG"
    "CWCGCbMFDMbCGCLLCGC7qFMFPkBJDDCHDCuBFIF6CBDCDJDBCCHFDcDCHDBBDBLDCXDCKCDLBBjDMDCPcRDFKFgBLR8K"
    "UEQcDCHDBBLBDDCXFDHCDLBI4CBDFHDBBDHFFXDBBDHBDBBCBIDBBDZCBDJDBBDBLDC3CEELBDCHDFXCDDIBBDBDJDDZ"
    "EFKBMDC/KMEFLdHHFDJDCDcMDCDM8CEBEGEBDJDCaFFHBCBBDHCDBEcDJDBCJDCDtDuBCDMDCKFrBR8qBDBBDJDFHDFX"
    "FDJDBBDMDeDMDIBFD8CDBBHDBBCBHFBCCXDBBDHBBCBBCBBHDBBDZDMDBBDHFF3CFMDFHDeDFHDBBDJDgBLCDEBKgLBM"
    "DBBCBIEDCXDBBDBGBDBBCBBHBCBBDXICHDBBDIDBF3CBCBBDHBBCBBDBHDBBDXBBCBBCBHBBCBBCBBGBDBBCBBXDBEBG"
    "BDBBCBIDBBD3CBBCCCBIDBDBHBBCBBCBYEBCBBGBBCBBCBBHDBEZDBCBBHEFIDBCB7KBBDHFDJJbDCHDBBCBHCCBdHHC"
    "DDJI4CBDFHDBBDMcDBBDHBBCBBCBBHDBBDYEEIDBBCBM/CENFGFBDcDBIEBCBJDDCXJIDBCCHkrBPCDMfMFBCCHDCDYV"
    "P8CDCDJDMBEDcEIEBDMBEaGIDMFDoDFDnBBFPBCIlBMFPsLBDBEHFDXCDDCHDBBDBGCDfBEHCCBBCCHDF8CDCHEBDrBB"
    "BDHBDBBDIDBBDdDBHEBDBIDBC6CHMLGCBXFDCHDBBCCGFDYCDFKCCBHECEsLDMcRDFHIcMHO7CDMFMDCDXBEBCJDBBDH"
    "FFYCGLMDBEoDFCpBDFHFDCKBEdOECM6qFCGCWCGCbLBDCDMbCGCLLCGC7CMDCDMcDFHCDBCBLCDcELCDM7CCGCLLCGCn"
    "BDFMbCGCLLCGCqLFoBDNEFHDFrBFoDIJDFMDXBEDJDBBDBLBCCXDCDHCDDOrDFDMcDFBGFEBHFEbMJK8KCGCLLCGCXEM"
    "DFMEXCGCLLCGC7CBLDCPcDCDHCDFHDhBRDM7CCGCLLCGCbMDCqBCGCLLCGC7qBMFCBMcFDMDCPBbMDCDM8CDCDHFDCHD"
    "CDXFLBDBBDJDfCMDDJDCD8CMDFMfCDHCDDODcPCT4KDCKFDOaKHDBBCBHBBDfCMCBDJI3CFDCGBDBBDIEEBXDBBDHBBC"
    "BBCBBHDBBDYEDJBCBBDBGCDDC3CDMFEHGDcDBIBDBDMDaCFBICBPCD8KRDMcFKCDBEKBgBMFDM/CCDHCDDCGBDCaCDDC"
    "HDBBDJDBEXDMCDFHF/CQQfCDHFDJkBMDBBqrBCGCLLCGCbMDCDnBCGCLLCGC7CEIDCDBsBDIEDCHDhBLCEDpDGCGJJGC"
    "bMFDMbCGCLLCGCvLMcDMEBDCHEBCBchEDHCDDODZDMDBBDMFXDBBDJDDtDMFEHEfCEIDBCICkBKFBDIDC6KCGCWCGCnB"
    "DCDnBCGCLLCGC7CPFIEcPFFHFDnBGqDCGCWCGCnBDCqBCGCLLCGC";

constexpr uint32_t DigitOf(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<uint32_t>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<uint32_t>(c - 'a') + 26;
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0') + 52;
  return c == '+' ? 62 : 63;
}

// Calls body(row, its places) for each row.
template <typename Body>
void ForRows(const char* text, size_t num_rows, const Body& body) {
  constexpr uint32_t kBase = 32;
  uint32_t places = 0;
  for (size_t row = 0; row < num_rows; ++row) {
    uint32_t digit = kBase;
    for (int shift = 0; digit >= kBase; shift += 5) {
      digit = DigitOf(*text++);
      places += digit % kBase << shift;
    }
    body(row, places);
  }
  MINISGL_CHECK(*text == 0, "a codebook of more than {} rows", num_rows);
}

// The row of these places in `numbers`, each of kBits bits.
template <typename Row, int kBits>
Row RowOf(uint32_t places, const int8_t* numbers) {
  uint8_t bytes[sizeof(Row)];
  for (size_t i = 0; i < sizeof(Row); ++i) {
    bytes[i] = static_cast<uint8_t>(numbers[places >> (i * kBits) & ((1U << kBits) - 1)]);
  }
  Row row;
  std::memcpy(&row, bytes, sizeof(row));
  return row;
}

template <typename Row, int kBits>
std::vector<Row> MakeGrid(const char* text, size_t num_rows, const int8_t* numbers) {
  std::vector<Row> grid(num_rows);
  ForRows(text, num_rows,
          [&](size_t row, uint32_t places) { grid[row] = RowOf<Row, kBits>(places, numbers); });
  return grid;
}

constexpr int8_t kIq2Numbers[] = {8, 25, 43, 0};  // no row has the last
constexpr int8_t kIq3XxsNumbers[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SNumbers[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr int8_t kIq1Above[] = {-7, 1, 9, 0}, kIq1Below[] = {-9, -1, 7, 0};

template <size_t kCount>
std::array<float, 16> WithNegatives(const int8_t (&numbers)[kCount]) {
  std::array<float, 16> table = {};
  for (size_t i = 0; i < kCount; ++i) {
    table[i] = numbers[i];
    table[kCount + i] = static_cast<float>(-numbers[i]);
  }
  return table;
}

}  // namespace

const float* Iq2Numbers() {
  static const auto kTable = WithNegatives(kIq2Numbers);
  return kTable.data();
}
const float* Iq3XxsNumbers() {
  static const auto kTable = WithNegatives(kIq3XxsNumbers);
  return kTable.data();
}
const float* Iq3SNumbers() {
  static const auto kTable = WithNegatives(kIq3SNumbers);
  return kTable.data();
}
const float* Iq1Numbers() {
  static const auto kTable = WithNegatives(kIq1Above);  // of the others the negatives
  return kTable.data();
}

const uint64_t* Iq2XxsGrid() {
  static const auto kGrid = MakeGrid<uint64_t, 2>(kIq2Xxs, kIq2XxsRows, kIq2Numbers);
  return kGrid.data();
}
const uint64_t* Iq2XsGrid() {
  static const auto kGrid = MakeGrid<uint64_t, 2>(kIq2Xs, kIq2XsRows, kIq2Numbers);
  return kGrid.data();
}
const uint64_t* Iq2SGrid() {
  static const auto kGrid = MakeGrid<uint64_t, 2>(kIq2S, kIq2SRows, kIq2Numbers);
  return kGrid.data();
}
const uint32_t* Iq3XxsGrid() {
  static const auto kGrid = MakeGrid<uint32_t, 3>(kIq3Xxs, kIq3XxsRows, kIq3XxsNumbers);
  return kGrid.data();
}
const uint32_t* Iq3SGrid() {
  static const auto kGrid = MakeGrid<uint32_t, 3>(kIq3S, kIq3SRows, kIq3SNumbers);
  return kGrid.data();
}

const uint64_t* Iq1Grid() {
  static const auto kGrid = [] {
    auto both = MakeGrid<uint64_t, 2>(kIq1S, kIq1Rows, kIq1Above);
    const auto below = MakeGrid<uint64_t, 2>(kIq1S, kIq1Rows, kIq1Below);
    both.insert(both.end(), below.begin(), below.end());
    return both;
  }();
  return kGrid.data();
}

std::vector<uint16_t> RowPlaces(Codebook codebook) {
  struct Stored {
    const char* text;
    size_t num_rows;
  };
  constexpr Stored kStored[] = {{kIq2Xxs, kIq2XxsRows},
                                {kIq2Xs, kIq2XsRows},
                                {kIq2S, kIq2SRows},
                                {kIq3Xxs, kIq3XxsRows},
                                {kIq3S, kIq3SRows}};
  const Stored& stored = kStored[static_cast<size_t>(codebook)];
  std::vector<uint16_t> rows(stored.num_rows);
  ForRows(stored.text, stored.num_rows,
          [&](size_t row, uint32_t places) { rows[row] = static_cast<uint16_t>(places); });
  return rows;
}

const uint64_t* SignMasks() {
  static const auto kMasks = [] {
    std::array<uint64_t, 256> masks = {};
    for (size_t bits = 0; bits < masks.size(); ++bits) {
      for (size_t i = 0; i < 8; ++i) {
        if (bits >> i & 1) masks[bits] |= uint64_t{0xFF} << (8 * i);
      }
    }
    return masks;
  }();
  return kMasks.data();
}

const uint64_t* SignMasksOf7Bits() {
  static const auto kMasks = [] {
    std::array<uint64_t, 128> masks = {};
    for (uint32_t bits = 0; bits < masks.size(); ++bits) {
      masks[bits] = SignMasks()[bits | (std::popcount(bits) & 1U) << 7];
    }
    return masks;
  }();
  return kMasks.data();
}

}  // namespace minisgl::tensor
