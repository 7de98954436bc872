"""How matrices of quantized models are stored, for make_quantized.py. Each format has three parts:

- `store`: a matrix [outputs, inputs] as the tensors of a file, by the last part of their names;
- `values`: what these tensors mean, in float32, by the definition of the format;
- `package`: the same by the package that defines the format, in the type that it computes in.

Packing is the packages' own where they offer it as a function, and this file's where they do not (GPTQ, AWQ, MXFP4 of
gpt-oss, ModelOpt's FP8).
"""
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import load_file, save_file

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def blocks_of(weight, rows, columns):
    """The largest magnitude, least and largest value of every block; blocks at the edge may be smaller."""
    count = (math.ceil(weight.shape[0] / rows), math.ceil(weight.shape[1] / columns))
    result = torch.empty(3, *count, dtype=weight.dtype)
    for i in range(count[0]):
        for j in range(count[1]):
            block = weight[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns]
            result[:, i, j] = torch.stack((block.abs().max(), block.min(), block.max()))
    return result


def spread(grid, rows, columns, shape):
    """One number per block, repeated over the block."""
    return grid.repeat_interleave(rows, 0)[:shape[0]].repeat_interleave(columns, 1)[:, :shape[1]]


def to_fp4(weight):
    """Codes 0 to 15 of the nearest values."""
    magnitude = (weight.abs().unsqueeze(-1) - E2M1.to(weight.dtype)).abs().argmin(-1)
    return (magnitude + 8 * (weight < 0)).to(torch.uint8)


def from_fp4(codes):
    return torch.where(codes >= 8, -1.0, 1.0) * E2M1[(codes & 7).long()]


def unpack_bytes(packed):
    """Two codes a byte, the low half first."""
    return torch.stack((packed & 15, packed >> 4), -1).flatten(-2)


def pack_bytes(codes):
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_words(words, bits, order=None):
    """Codes of the last dimension, 32 / bits in a word, the lowest bits first; `order[i]` is the place of field i."""
    fields = [(words.long() >> (bits * i)) & (2**bits - 1) for i in range(32 // bits)]
    if order:
        fields = [fields[order.index(i)] for i in range(len(order))]
    return torch.stack(fields, -1).flatten(-2)


def pack_words(codes, bits, order=None):
    count = 32 // bits
    assert codes.shape[-1] % count == 0 and codes.min() >= 0 and codes.max() < 2**bits
    codes = codes.long().unflatten(-1, (-1, count))
    words = sum(codes[..., order[i] if order else i] << (bits * i) for i in range(count))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def load_module(path, name):
    """One file of a package, without the package's own imports."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Packages:
    """The folder with the unpacked packages that are not installed."""
    folder = None

    @classmethod
    def find(cls, pattern):
        found = sorted(cls.folder.glob(pattern))
        if len(found) != 1:
            raise SystemExit(f"{cls.folder} must hold one {pattern}")
        return found[0]

    @classmethod
    def use(cls, pattern):
        """Lets the next import find the packages of an archive."""
        sys.path.insert(0, str(cls.find(pattern)))


class Fp8Block:
    """`quant_method` fp8: e4m3 codes times the scale of a block of 128 by 128, which is called weight_scale_inv."""
    kind = "block"

    def __init__(self, scale_type=torch.float32, power_of_two=False, size=128):
        self.scale_type, self.power_of_two, self.size = scale_type, power_of_two, size

    def grid(self, shape):
        return self.size, self.size

    def store(self, weight, generator):
        scale = blocks_of(weight, self.size, self.size)[0] / E4M3_MAX
        if self.power_of_two:
            scale = 2.0 ** torch.ceil(torch.log2(scale))
        scale = scale.to(self.scale_type)
        code = weight / spread(scale.double(), self.size, self.size, weight.shape)
        return {"weight": code.clamp(-E4M3_MAX, E4M3_MAX).float().to(E4M3), "weight_scale_inv": scale}

    def values(self, stored):
        scale = stored["weight_scale_inv"].float()
        return stored["weight"].float() * spread(scale, self.size, self.size, stored["weight"].shape)

    def package(self, stored):
        # transformers' own loader takes blocks of rows / scale rows, which is wrong at ragged edges.
        converter = FP8BlockDequantizer(weight_block_size=(self.size, self.size), dtype=torch.float32)
        tensors = {f"m.{name}": value for name, value in stored.items()}
        return converter.process(tensors)["m.weight"]


# Runs under an older compressed-tensors: activation order is gone from the newer ones. Answers requests line by line.
OLD_VERSION = """
import json, sys
from compressed_tensors.compressors.quantized_compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs
from safetensors.torch import load_file, save_file
compressor = PackedQuantizationCompressor()
for line in sys.stdin:
    what, arguments, folder = json.loads(line)
    arguments, state = QuantizationArgs(**arguments), load_file(folder + "/in.safetensors")
    if what == "compress":
        weight, scale, order = state.pop("weight"), state["weight_scale"], state.get("weight_g_idx")
        state |= compressor.compress_weight(weight, scale, arguments, g_idx=order)
    else:
        state = {"weight": compressor.decompress_weight(state, arguments)}
    save_file({name: value.contiguous() for name, value in state.items()}, folder + "/out.safetensors")
    print("done", flush=True)
"""


class OldVersion:
    """One process for all requests, started by the first."""
    process = None

    @classmethod
    def run(cls, pattern, what, arguments, state):
        if cls.process is None:
            cls.process = subprocess.Popen([sys.executable, "-c", OLD_VERSION], text=True, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE,
                                           env=os.environ | {"PYTHONPATH": str(Packages.find(pattern))})
        with tempfile.TemporaryDirectory() as folder:
            save_file({name: value.contiguous() for name, value in state.items()}, f"{folder}/in.safetensors")
            print(json.dumps([what, arguments, folder]), file=cls.process.stdin, flush=True)
            while (answer := cls.process.stdout.readline()) != "done\n":
                assert answer, "the older version has ended"
            return load_file(f"{folder}/out.safetensors")


class CompressedTensors:
    """A scheme of compressed-tensors; `old` is the folder of an older version that packs and unpacks instead."""

    def __init__(self, weights, format, inputs=None, old=None, scale_type=torch.bfloat16):
        self.format, self.arguments, self.inputs, self.old, self.scale_type = format, weights, inputs, old, scale_type
        self.bits, self.strategy = weights["num_bits"], weights["strategy"]
        self.group = weights.get("group_size")
        self.symmetric = weights.get("symmetric", True)
        self.order = weights.get("actorder") == "group"

    def scheme(self):
        return {"targets": ["Linear"], "weights": self.arguments, "input_activations": self.inputs,
                "format": self.format}

    def grid(self, shape):
        return {"tensor": shape, "channel": (1, shape[1]), "block": (128, 128)}.get(self.strategy, (1, self.group))

    def scales(self, weight):
        """Scales, zero points and the global scale, as the compressor takes them."""
        largest, low, high = blocks_of(weight, *self.grid(weight.shape))
        if self.arguments["type"] == "int" and self.symmetric:
            return {"weight_scale": (largest / (2**self.bits - 1) * 2).to(self.scale_type)}
        if self.arguments["type"] == "int":
            low, high = low.clamp(max=0), high.clamp(min=0)
            scale = ((high - low) / (2**self.bits - 1)).to(self.scale_type)
            zero = torch.round(-low / scale.double()).clamp(0, 2**self.bits - 1) - 2**(self.bits - 1)
            return {"weight_scale": scale, "weight_zero_point": zero.to(torch.int8)}
        if self.bits == 8 and self.strategy == "group":
            return {"weight_scale": 2.0 ** torch.ceil(torch.log2(largest / E4M3_MAX)).float()}
        if self.bits == 8:
            scale = (largest / E4M3_MAX).to(self.scale_type)
            return {"weight_scale": scale.flatten() if self.strategy == "tensor" else scale}
        if self.strategy == "tensor_group":
            whole = (6.0 * E4M3_MAX / weight.abs().max()).float().reshape(1)
            scale = (largest / 6.0 * whole.double()).float().to(E4M3).float()
            return {"weight_scale": scale, "weight_global_scale": whole}
        return {"weight_scale": 2.0 ** (torch.floor(torch.log2(largest)) - 2).float()}

    def store(self, weight, generator):
        state = {"weight": weight.float()}
        if self.order:
            rank = torch.randperm(weight.shape[1], generator=generator)
            state["weight_g_idx"] = (rank // self.group).to(torch.int32)
            weight = weight[:, torch.argsort(rank)]
        state |= self.scales(weight)
        if self.inputs and not self.inputs["dynamic"]:
            state["input_scale"] = (0.01 + 0.1 * torch.rand(1, generator=generator)).to(self.scale_type)
        if self.inputs and self.inputs["strategy"] == "tensor_group":
            state["input_global_scale"] = 100 + 1000 * torch.rand(1, generator=generator)
        if self.old:
            return OldVersion.run(self.old, "compress", self.arguments, state)
        compressor = BaseCompressor.get_value_from_registry(self.format)
        stored = compressor.compress(state, QuantizationScheme(**self.scheme()))
        return {name: value.detach().clone().contiguous() for name, value in stored.items()}

    def values(self, stored):
        if self.arguments["type"] == "float" and self.bits == 4:
            scale = stored["weight_scale"]
            scale = scale.float() if self.strategy == "tensor_group" else 2.0 ** (scale.double() - 127).float()
            if self.strategy == "tensor_group":
                scale = scale / stored["weight_global_scale"]
            code = from_fp4(unpack_bytes(stored["weight_packed"]))
        else:
            scale = stored["weight_scale"]
            scale = 2.0 ** (scale.double() - 127).float() if scale.dtype == torch.uint8 else scale.float()
            code = stored["weight"].float() if "weight" in stored else self.unpack(stored)
        scale = scale.reshape(1, 1) if self.strategy == "tensor" else scale
        rows, columns = self.grid(code.shape)
        zero = torch.zeros_like(scale)
        if "weight_zero_point" in stored:
            zero = unpack_words(stored["weight_zero_point"].T, self.bits)[:, :code.shape[0]].T.float()
            zero = zero - 2**(self.bits - 1)
        if self.order:
            column = stored["weight_g_idx"].long()
            return (code - zero[:, column]) * scale[:, column]
        return (code - spread(zero, rows, columns, code.shape)) * spread(scale, rows, columns, code.shape)

    def unpack(self, stored):
        columns = int(stored["weight_shape"][1])
        return unpack_words(stored["weight_packed"], self.bits)[:, :columns].float() - 2**(self.bits - 1)

    def package(self, stored):
        if self.old:
            return OldVersion.run(self.old, "decompress", self.arguments, stored)["weight"]
        compressor = BaseCompressor.get_value_from_registry(self.format)
        return compressor.decompress(stored, QuantizationScheme(**self.scheme()))["weight"].detach()


class Gptq:
    """Codes packed along inputs, zero points along outputs; version 1 stores zero points less one."""

    def __init__(self, bits=4, group=32, symmetric=True, version=1, order=False):
        self.bits, self.group, self.symmetric, self.version, self.order = bits, group, symmetric, version, order

    def grid(self, shape):
        return 1, self.group

    def store(self, weight, generator):
        column = torch.arange(weight.shape[1]) // self.group
        if self.order:
            column = torch.randperm(weight.shape[1], generator=generator) // self.group
        sorted_columns = torch.argsort(column, stable=True)
        largest, low, high = blocks_of(weight[:, sorted_columns], 1, self.group)
        top = 2**self.bits - 1
        if self.symmetric:
            scale = (largest * 2 / top).half()
            zero = torch.full_like(largest, 2**(self.bits - 1))
        else:
            low, high = low.clamp(max=0), high.clamp(min=0)
            scale = ((high - low) / top).half()
            # Version 1 cannot store a zero point of 0: readers differ in the meaning of the word of ones.
            zero = torch.round(-low / scale.double()).clamp(2 - self.version, top)
        code = torch.round(weight / scale.double()[:, column] + zero[:, column]).clamp(0, top)
        return {"qweight": pack_words(code, self.bits).T.contiguous(),
                "qzeros": pack_words((zero - (2 - self.version)).T, self.bits),
                "scales": scale.T.contiguous(), "g_idx": column.to(torch.int32)}

    def values(self, stored):
        code = unpack_words(stored["qweight"].T, self.bits)
        zero = unpack_words(stored["qzeros"], self.bits).T + (2 - self.version)
        column = stored["g_idx"].long()
        return stored["scales"].T.float()[:, column] * (code - zero[:, column]).float()

    def package(self, stored):
        """The layer of auto-gptq for version 1, of gptqmodel for version 2, applied to a matrix of ones and zeros."""
        outputs, inputs = stored["qweight"].shape[1], stored["g_idx"].shape[0]
        if self.version == 2:
            return self.package_version_2(stored)
        kernel = load_module(Packages.find("auto_gptq*/auto_gptq/nn_modules/qlinear/qlinear_cuda.py"), "qlinear_cuda")
        layer = kernel.QuantLinear(self.bits, self.group, inputs, outputs, False)
        layer.load_state_dict(stored)
        return layer(torch.eye(inputs, dtype=torch.float16)).T

    def package_version_2(self, stored):
        Packages.use("gptqmodel*[0-9]/")
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear
        layer = TorchLinear(bits=self.bits, group_size=self.group, sym=self.symmetric, desc_act=self.order,
                            in_features=stored["g_idx"].shape[0], out_features=stored["scales"].shape[1], bias=False,
                            pack_dtype=torch.int32, register_buffers=True)
        layer.load_state_dict(stored)
        layer.post_init()
        return layer.dequantize_weight().T


class Awq:
    """Codes and zero points packed along outputs in an order of their own."""
    ORDER = [0, 2, 4, 6, 1, 3, 5, 7]

    def __init__(self, group=32):
        self.group = group

    def grid(self, shape):
        return 1, self.group

    def store(self, weight, generator):
        _, low, high = blocks_of(weight, 1, self.group)
        low, high = low.clamp(max=0), high.clamp(min=0)
        scale = ((high - low) / 15).half()
        zero = torch.round(-low / scale.double()).clamp(0, 15)
        rows, columns = self.grid(weight.shape)
        code = weight / spread(scale.double(), rows, columns, weight.shape) + spread(zero, rows, columns, weight.shape)
        return {"qweight": pack_words(torch.round(code).clamp(0, 15).T, 4, self.ORDER),
                "qzeros": pack_words(zero.T, 4, self.ORDER), "scales": scale.T.contiguous()}

    def values(self, stored):
        code = unpack_words(stored["qweight"], 4, self.ORDER)
        zero = unpack_words(stored["qzeros"], 4, self.ORDER).repeat_interleave(self.group, 0)
        return ((code - zero).float() * stored["scales"].float().repeat_interleave(self.group, 0)).T

    def package(self, stored):
        packing = load_module(Packages.find("autoawq*/awq/utils/packing_utils.py"), "packing_utils")
        return packing.dequantize_gemm(stored["qweight"], stored["qzeros"], stored["scales"], 4, self.group).T


class ModelOptFp8:
    """e4m3 codes with one scale of a matrix, and one of its input that a reader of weights does not need."""

    def grid(self, shape):
        return shape

    def store(self, weight, generator):
        scale = (weight.abs().max() / E4M3_MAX).float()
        return {"weight": (weight / scale.double()).clamp(-E4M3_MAX, E4M3_MAX).float().to(E4M3), "weight_scale": scale,
                "input_scale": torch.rand([], generator=generator) * 0.1}

    def values(self, stored):
        return stored["weight"].float() * stored["weight_scale"]

    def package(self, stored):
        Packages.use("nvidia_modelopt*/")
        from modelopt.torch.export.quant_utils import from_quantized_weight
        return from_quantized_weight(stored["weight"], stored["weight_scale"], "fp8", torch.float32)


class Fp8Tensor(ModelOptFp8):
    """The same tensors under `quant_method` fp8 without blocks, as files were written before there were any."""

    def package(self, stored):
        from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight
        return _dequantize_fp8_weight(stored["weight"], stored["weight_scale"], None, torch.float32)


class ModelOptNvfp4:
    """Two e2m1 codes a byte, an e4m3 scale of 16 and one of a matrix, multiplied."""

    def grid(self, shape):
        return 1, 16

    def store(self, weight, generator):
        whole = (weight.abs().max() / (6.0 * E4M3_MAX)).float()
        scale = (blocks_of(weight, 1, 16)[0] / 6.0 / whole.double()).float().clamp(2.0**-9, E4M3_MAX).to(E4M3)
        code = weight / (spread(scale.double(), 1, 16, weight.shape) * whole.double())
        return {"weight": pack_bytes(to_fp4(code)), "weight_scale": scale, "weight_scale_2": whole,
                "input_scale": torch.rand([], generator=generator) * 0.1}

    def values(self, stored):
        scale = stored["weight_scale"].float() * stored["weight_scale_2"]
        code = from_fp4(unpack_bytes(stored["weight"]))
        return code * spread(scale, 1, 16, code.shape)

    def package(self, stored):
        Packages.use("nvidia_modelopt*/")
        from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
        shape = (stored["weight"].shape[0], stored["weight"].shape[1] * 2)
        tensor = NVFP4QTensor(shape, torch.float32, stored["weight"])
        return tensor.dequantize(torch.float32, scale=stored["weight_scale"], double_scale=stored["weight_scale_2"],
                                 block_sizes={-1: 16})


class Mxfp4GptOss:
    """All experts of a layer [experts, outputs, inputs]: blocks of 32 e2m1 codes with a power of two."""

    def grid(self, shape):
        return 1, 32

    def store(self, weight, generator):
        blocks = weight.unflatten(-1, (-1, 32))
        exponent = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
        codes = to_fp4(blocks / 2.0 ** exponent.unsqueeze(-1))
        return {"blocks": pack_bytes(codes), "scales": (exponent + 127).to(torch.uint8)}

    def values(self, stored):
        scale = 2.0 ** (stored["scales"].double() - 127)
        return (from_fp4(unpack_bytes(stored["blocks"])) * scale.unsqueeze(-1)).float().flatten(-2)

    def package(self, stored):
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors
        return convert_moe_packed_tensors(stored["blocks"], stored["scales"]).transpose(1, 2)


class Stacked:
    """The tensors of all experts of a layer in one. As ModelOpt writes them they are `joined`: names without dots, and
    codes and scales [inputs, outputs] if `inputs_first`."""

    def __init__(self, one, joined=False, inputs_first=False):
        self.one, self.joined, self.inputs_first = one, joined, inputs_first

    def scheme(self):
        return self.one.scheme()

    def grid(self, shape):
        return self.one.grid(shape)

    def turned(self, key, value):
        turns = self.inputs_first and key in ("weight", "weight_scale")
        return value.transpose(-1, -2).contiguous() if turns else value

    def store(self, weight, generator):
        experts = [self.one.store(expert, generator) for expert in weight]
        stored = {key: self.turned(key, torch.stack([expert[key] for expert in experts])) for key in experts[0]}
        if "weight_shape" in stored:
            stored["weight_shape"] = torch.tensor(weight.shape)
        return stored

    def experts(self, stored):
        shape = {"weight_shape": stored["weight_shape"][1:]} if "weight_shape" in stored else {}
        stacks = {key: self.turned(key, value) for key, value in stored.items() if key not in shape}
        count = len(next(iter(stacks.values())))
        return [{key: value[i].contiguous() for key, value in stacks.items()} | shape for i in range(count)]

    def values(self, stored):
        return torch.stack([self.one.values(expert) for expert in self.experts(stored)])

    def package(self, stored):
        return torch.stack([self.one.package(expert) for expert in self.experts(stored)])
