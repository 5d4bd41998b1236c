import concurrent.futures
import logging
import os
import pickle
import random
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.caching import UserProvidedCacheLocator

from dmlcpu.runtime import cache, layers, pool, threads
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.launches import compiled_launch


@kernel
def double_all(part, parts, x):
    for i in range(part * x.size // parts, (part + 1) * x.size // parts):
        x[i] += x[i]


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Return a function that restores the state of a new process: no kernel compiled, no warning given."""

    def start():
        monkeypatch.setattr(cache, "_warned", False)
        for made in (compiled_launch, pool._lead, pool._serve, layers._lead):
            made.cache_clear()
        monkeypatch.setattr(threads, "_layer", None)
        return kernel(double_all.function)

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return start


@pytest.fixture
def entries(monkeypatch, tmp_path):
    """Return the files of a function, with an entry that has been saved."""
    monkeypatch.setattr(cache, "_warned", False)
    files = cache.Files(tmp_path, "function", "state")
    files.save("key", {"code": b"machine code"})
    return files


def run(kernel, dtype=np.int64, parts=1):
    """Check a result, and return how often code was found in the cache, and how often not."""
    x = np.arange(11, dtype=dtype)
    kernel(parts, x)
    assert x.tolist() == list(range(0, 22, 2))
    stats = (threads.layer().compiled()[0] if parts > 1 else kernel.share).stats
    return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())


def only_file(folder, name="*"):
    (path,) = [path for path in folder.rglob(name) if path.is_file()]
    return path


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path, length):
    path.write_bytes(path.read_bytes()[:length])


DAMAGES = {
    "emptied": lambda path: cut(path, 0),
    "cut short": lambda path: cut(path, path.stat().st_size // 2),
    "random": lambda path: path.write_bytes(random.Random(0).randbytes(5000)),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a bit flipped": lambda path: flip(path, -3000),
    "appended to": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a plain pickle": lambda path: path.write_bytes(pickle.dumps("0.60.0") + pickle.dumps(("stamp", {}))),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_load_warns_of_a_damaged_file(entries, damage):
    entries.save("key", {"code": bytes(9000)})
    path = entries.path("key")
    damage(path)
    with pytest.warns(RuntimeWarning) as caught:
        assert entries.load("key") is None
    assert [str(warning.message) for warning in caught] == [
        f"the compiled kernel in {path} cannot be used: its bytes are not those that were written: it was cut short or "
        "altered. It is compiled anew, as others will be without another warning."
    ]


def test_a_damaged_file_is_compiled_anew_with_a_warning_and_saved_again(process, tmp_path):
    assert run(process()) == (0, 1)
    path = only_file(tmp_path)
    flip(path, -3000)
    with pytest.warns(RuntimeWarning, match="cut short or altered") as caught:
        assert run(process()) == (0, 1)
    assert len(caught) == 1
    assert run(process()) == (1, 0)
    assert only_file(tmp_path) == path


def test_a_damaged_launcher_is_compiled_anew_with_a_warning_and_saved_again(process, tmp_path):
    assert run(process(), parts=2) == (0, 1)
    path = only_file(tmp_path, "launches.launch*")
    flip(path, -3000)
    with pytest.warns(RuntimeWarning, match="launch.* cut short or altered") as caught:
        assert run(process(), parts=2) == (0, 1)
    assert len(caught) == 1
    assert run(process(), parts=2) == (1, 0)


def test_every_damage_to_the_bytes_is_noticed_and_nothing_unpickled(monkeypatch, entries):
    reported, unpickled = [], []
    monkeypatch.setattr(cache, "_report", lambda path, damage: reported.append(damage))
    monkeypatch.setattr(pickle, "loads", lambda data: unpickled.append(data) or "unpickled")
    path = entries.path("key")
    good = path.read_bytes()
    for place in range(len(good)):
        for bit in range(8):
            damaged = bytearray(good)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            assert entries.load("key") is None
        path.write_bytes(good[:place])
        assert entries.load("key") is None
    path.write_bytes(good)
    assert len(reported) == 9 * len(good)
    assert unpickled == []
    assert entries.load("key") == "unpickled"


def test_load_ignores_a_file_of_another_entry_or_function(entries, tmp_path):
    others = cache.Files(tmp_path, "other_function", "state")
    for files, key in ((entries, "other"), (others, "key")):
        shutil.copy(entries.path("key"), files.path(key))
        assert files.load(key) is None


def fail():
    raise ImportError("a name that is gone")


class Unreadable:
    def __reduce__(self):
        return fail, ()


def test_load_reports_a_file_that_cannot_be_unpickled(entries):
    entries.save("key", Unreadable())
    with pytest.warns(RuntimeWarning, match="cannot be unpickled .*a name that is gone"):
        assert entries.load("key") is None


def messages(caplog, level):
    return [record.message for record in caplog.records if record.levelno == level]


def test_compilations_are_logged(process, tmp_path, caplog):
    caplog.set_level(logging.INFO, "dmlcpu")
    run(process())
    before, after = messages(caplog, logging.INFO)
    assert before.startswith(f"compiling {__name__}.double_all for (int64, int64, ")
    assert after == f"compiled {__name__}.double_all, saved in {only_file(tmp_path).parent}"
    caplog.clear()
    run(process())  # from the cache
    assert caplog.records == []


@pytest.mark.skipif(os.name == "nt", reason="Windows refuses as it does when another process saves")
def test_a_directory_where_the_file_should_be_is_reported_and_left(process, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "dmlcpu")
    run(process())
    path = only_file(tmp_path)
    path.unlink()
    path.mkdir()
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"cannot be read \(Is a directory\)") as caught:
            assert run(process()) == (0, 1)
        assert len(caught) == 1
    assert ["could not be saved" in text for text in messages(caplog, logging.DEBUG)] == [True, True]
    assert list(path.parent.iterdir()) == [path]


def test_load_on_windows_raises_the_error_of_a_file_that_is_being_saved(monkeypatch, entries):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.warns(RuntimeWarning, match=r"cannot be read \(Permission denied\)"):
        assert entries.load("key") is None
    monkeypatch.setattr(cache, "_warned", False)
    monkeypatch.setattr(cache, "os", types.SimpleNamespace(name="nt"))
    with pytest.raises(PermissionError):  # which Numba expects there
        entries.load("key")


@pytest.mark.skipif(os.name == "nt", reason="Windows says that the file is missing")
def test_a_folder_that_can_be_neither_read_nor_written_is_reported(process, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "dmlcpu")
    kernel = process()
    folder = Path(kernel.share.stats.cache_path)
    folder.rmdir()
    folder.touch()
    with pytest.warns(RuntimeWarning, match=r"cannot be read \(Not a directory\)") as caught:
        assert run(kernel) == (0, 1)
    assert len(caught) == 1
    assert ["could not be saved" in text for text in messages(caplog, logging.DEBUG)] == [True]


def test_a_full_disk_is_no_failure_and_leaves_nothing(process, tmp_path, monkeypatch, caplog):
    def write_half(path, content):
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    caplog.set_level(logging.DEBUG, "dmlcpu")
    monkeypatch.setattr(Path, "write_bytes", write_half)
    assert run(process()) == (0, 1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "No space left on device" in caplog.text


def test_the_first_damage_is_warned_of_and_the_others_are_logged(entries, caplog):
    caplog.set_level(logging.DEBUG, "dmlcpu")
    keys = ["key", "another key", "a third key"]
    for key in keys:
        entries.save(key, "data")
        flip(entries.path(key), 0)
    with pytest.warns(RuntimeWarning) as caught:
        assert [entries.load(key) for key in keys] == [None] * 3
    assert len(caught) == 1
    said = [str(caught[0].message), *(record.message for record in caplog.records)]
    assert len(said) == 3
    for key, message in zip(keys, said, strict=True):
        assert str(entries.path(key)) in message


def test_a_warning_made_an_error_fails_one_call_only(process, tmp_path):
    run(process())
    flip(only_file(tmp_path), 0)
    kernel = process()
    with pytest.raises(RuntimeWarning, match="cut short or altered"):
        run(kernel)
    assert run(kernel) == (0, 1)


@pytest.mark.parametrize("was", ["another Numba", "another source"])
def test_a_stale_file_is_replaced_without_a_warning(process, tmp_path, monkeypatch, was):
    with monkeypatch.context() as patch:
        if was == "another Numba":
            patch.setattr(numba, "__version__", "0.65.1")
        else:
            patch.setattr(UserProvidedCacheLocator, "get_source_stamp", lambda self: "another")
        run(process())
    path = only_file(tmp_path)
    assert run(process()) == (0, 1)
    assert run(process()) == (1, 0)
    assert only_file(tmp_path) == path


def test_a_file_missing_from_the_folder_of_the_cache_is_no_damage(process, tmp_path):
    kernel = process()
    run(kernel)
    assert Path(kernel.share.stats.cache_path) == only_file(tmp_path).parent
    only_file(tmp_path).unlink()
    assert run(process()) == (0, 1)
    assert run(process()) == (1, 0)


def test_kernels_are_compiled_without_a_writable_folder(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "folder"))
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
    doubling = kernel(double_all.function)
    assert run(doubling) == (0, 1)
    assert doubling.share.stats.cache_path is None


def test_load_while_others_save_finds_a_whole_file(entries, tmp_path):
    data = [bytes([n]) * 2_000_000 for n in range(2)]
    entries.save("key", data[0])

    def save(n):
        for _ in range(30):
            entries.save("key", data[n])

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        saving = [pool.submit(save, n) for n in range(2)]
        while not all(future.done() for future in saving):
            assert entries.load("key") in data
    assert [future.result() for future in saving] == [None, None]
    assert only_file(tmp_path) == entries.path("key")


def test_threads_that_find_a_damaged_file_together_get_one_warning(process, tmp_path):
    run(process())
    flip(only_file(tmp_path), 0)
    kernel = process()
    with pytest.warns(RuntimeWarning) as caught, concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: run(kernel), range(4))) == [(0, 1)] * 4
    assert len(caught) == 1


@pytest.mark.slow
def test_an_operator_goes_on_with_a_damaged_cache(tmp_path):
    code = (
        "import numpy, dmlcpu\n"
        "from dmlcpu.kernels import registry\n"
        "from dmlcpu.runtime.threads import use_budget\n"
        "with use_budget(1, kernel='lockstep'):\n"
        "    print(dmlcpu.top_k(numpy.arange(80, dtype='u1').reshape(40, 2), 1).indices.sum())\n"
        "print(sum(registry.find('top_k', 'select', 'lockstep').kernel.share.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def operate():
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split(), done.stderr.count("RuntimeWarning: the compiled kernel in ")

    assert operate() == (["40", "0"], 0)
    for path in tmp_path.rglob("*.nbc"):
        flip(path, path.stat().st_size // 2)
    assert operate() == (["40", "0"], 1)
    assert operate() == (["40", "1"], 0)


def test_a_function_can_be_compiled_once_more(process, tmp_path, entries):
    entries.save("another key", "data")
    other = cache.Files(tmp_path, "functions", "state")
    other.save("key", "data")
    entries.flush()
    assert entries.load("key") is entries.load("another key") is None
    assert other.load("key") == "data"
    doubling = process()
    run(doubling)
    doubling.share.recompile()  # which flushes
    assert run(process()) == (1, 0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no modes")
@pytest.mark.parametrize(
    ("outer", "inner", "open_to_others"),
    [
        (0o755, 0o700, None),
        (0o1777, 0o755, None),
        (0o777, 0o755, "outer"),
        (0o755, 0o777, "inner"),
        (0, 0o1777, "inner"),
    ],
)
def test_a_folder_that_others_may_write_to(monkeypatch, tmp_path, outer, inner, open_to_others):
    """A warning names it, once; the files are used."""
    monkeypatch.setattr(cache, "_warned_of_others", False)
    folders = {"outer": tmp_path / "outer", "inner": tmp_path / "outer" / "inner"}
    for folder in folders.values():
        folder.mkdir()
    files = cache.Files(folders["inner"], "function", "state")
    files.save("key", 1)
    folders["inner"].chmod(inner)
    folders["outer"].chmod(outer or 0o755)
    found = folders.get(open_to_others)
    assert cache.exposed(folders["inner"]) == (None if found is None else str(found))
    if found is not None:
        with pytest.warns(RuntimeWarning, match=f"others may write to {found}: compiled kernels in .* may be theirs"):
            assert files.load("key") == 1
    assert files.load("key") == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners")
def test_a_folder_of_another_user(monkeypatch, tmp_path):
    assert cache.exposed(tmp_path) is None
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    owner = os.stat(cache.__file__).st_uid
    assert cache.exposed(tmp_path) == (None if tmp_path.stat().st_uid in (0, owner) else str(tmp_path))
    if os.getuid() == 0:
        os.chown(tmp_path, 54321, -1)
        assert cache.exposed(tmp_path) == str(tmp_path)
