"""Makes tests/golden/scoring/cross_xlm.gguf of cross_xlm with llama.cpp's converter, as files of bge-reranker are made.

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python
    python3 tests/golden/convert_cross_encoder.py FOLDER_OF_LLAMA_CPP      # needs torch, transformers, sentencepiece, protobuf

The converter reads the pieces of a sentencepiece.bpe.model, which is made here of the tokenizer.json.
"""
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from sentencepiece import sentencepiece_model_pb2 as pb

SCORING = pathlib.Path(__file__).resolve().parent / "scoring"


def sentencepiece_model(tokenizer):
    proto = pb.ModelProto()
    for piece, score, kind in [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)] + [
            (piece, score, 1) for piece, score in tokenizer["model"]["vocab"][4:-1]]:
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.model_type = 1
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = True
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(tokenizer["normalizer"]["normalizers"][0]["precompiled_charsmap"])
    return proto.SerializeToString()


def main():
    converter = pathlib.Path(sys.argv[1]) / "convert_hf_to_gguf.py"
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        shutil.copytree(SCORING / "cross_xlm", model)
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        (model / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(tokenizer))
        subprocess.run([sys.executable, str(converter), str(model), "--outtype", "f32", "--outfile", str(SCORING / "cross_xlm.gguf")],
                       check=True)


main()
