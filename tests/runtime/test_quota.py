"""Trees of files as systems and containers show them; see the manual pages cgroups(7) and proc(5)."""

import pytest

from dmlcpu.runtime.quota import cpu_quota, memory_limit

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
V1_ALONE = "36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
V1_MEMORY = "36 31 0:33 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
OTHERS = """\
22 27 0:20 / /proc rw,nosuid shared:13 - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
"""
ODD = ["", "\n", "many 100000", "200000", "200000 0", "0 100000", "-5 -5", "1 2 3", "9" * 4000 + " 1", "\udcff 1"]
PHYSICAL = 64 << 30


@pytest.fixture
def tree(tmp_path):
    """Make a root folder: the text of the process's own groups, mounts, and files of groups by their paths."""

    def make(own, mounts, files):
        mountinfo = OTHERS + "".join(f"{mount}\n" for mount in mounts)
        known = {"/proc/self/cgroup": own, "/proc/self/mountinfo": mountinfo}
        for path, text in (known | {f"/sys/fs/cgroup/{path}": f"{text}\n" for path, text in files.items()}).items():
            file = tmp_path / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8", "surrogateescape")
        return tmp_path

    return make


def grant(folder, time, period=100_000):
    """Return the file of a group of version 2 that is granted `time` of each period."""
    return {f"{folder}/cpu.max": f"{time} {period}"}


def grant_v1(folder, time):
    return {f"{folder}/cpu.cfs_quota_us": time, f"{folder}/cpu.cfs_period_us": 100_000}


A_B = "0::/a/b\n"
OF_A = {**grant("a", 100_000), **grant("a/b", 300_000)}
OF_B = {**grant("a", 300_000), **grant("a/b", 100_000)}
BESIDE = {**grant("a/b/child", 50_000), **grant("a/sibling", 50_000)}
HYBRID = ("4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/b\n", [V1, UNIFIED])  # version 2 is mounted for systemd alone
DOCKER = [V1.replace(" / ", " /docker/0ab ")]  # with version 1 both files name the host's path
DOCKERS = {**grant_v1("cpu,cpuacct", 300_000), **grant_v1("cpu,cpuacct/worker", 200_000)}
QUOTAS = {
    "a container with its own namespace sees its group as the root": ("0::/\n", [V2], grant(".", 200_000), 2),
    "half a core": ("0::/\n", [V2], grant(".", 50_000), 0.5),
    "another period": ("0::/\n", [V2], grant(".", 15_000, 10_000), 1.5),
    "the least is an ancestor's": (A_B, [V2], OF_A | BESIDE, 1),
    "the least is the group's own": (A_B, [V2], OF_B | BESIDE, 1),
    "max is no quota": (A_B, [V2], grant("a/b", "max"), None),
    "max hides no quota of an ancestor": (A_B, [V2], grant("a/b", "max") | grant("a", 400_000), 4),
    "-1 is no quota": ("4:cpu,cpuacct:/\n", [V1], grant_v1("cpu,cpuacct", -1), None),
    "groups above the mount do not count": ("0::/b\n", [UNIFIED], grant("unified/b", 200_000) | grant(".", 100_000), 2),
    "hybrid": (*HYBRID, grant_v1("cpu,cpuacct/a", 150_000) | grant("unified/b", "max"), 1.5),
    "hybrid, both": (*HYBRID, grant_v1("cpu,cpuacct/a", 150_000) | grant("unified/b", 100_000), 1),
    "the host's namespace": ("4:cpu,cpuacct:/docker/0ab\n", DOCKER, DOCKERS, 3),
    "the host's namespace, a group within": ("4:cpu,cpuacct:/docker/0ab/worker\n", DOCKER, DOCKERS, 2),
    "missing mounts": ("0::/\n", [], grant(".", 200_000), None),
    "a missing file": ("0::/\n", [V2], {}, None),
    "a folder where a file should be": ("0::/\n", [V2], {"cpu.max/file": ""}, None),
    "a mount with an odd name": ("0::/\n", [V2.replace("/sys", "/\0"), V2, "\udcff"], grant(".", 200_000), 2),
    **{f"contents {text[:9]!r}": (A_B, [V2], {"a/b/cpu.max": text}, None) for text in ODD},
    **{f"{text[:9]!r} hides no other": (A_B, [V2], {"a/b/cpu.max": text} | grant("a", 200_000), 2) for text in ODD},
    **{
        f"an odd group, {own[:9]!r}": (own, ["nonsense", "1 2 3 -", V2], grant(".", 200_000), 2)
        for own in ("", "nonsense\n", "0:\n", "0::/\0\n", "0::/../../a\n", f"0::/{'x' * 5000}\n")
    },
    **{  # of the process's own group, the rest of the path would be mounted
        f"a path that is not mounted, {top}": (
            "0::/kubepods.slice/pod1/0ab\n",
            [V2.replace(" / ", f" {top} ")],
            grant(".", 200_000) | grant("kubepods.slice", 100_000),
            2,
        )
        for top in ("/", "/..")
    },
}


@pytest.mark.parametrize(("own", "mounts", "files", "quota"), QUOTAS.values(), ids=QUOTAS)
def test_cpu_quota(tree, own, mounts, files, quota):
    assert cpu_quota(tree(own, mounts, files)) == quota


@pytest.mark.parametrize(("mount", "folder"), [(V1, "cpu,cpuacct"), (V1_ALONE, "cpu")])
@pytest.mark.parametrize("controllers", ["cpu,cpuacct", "cpu"])
@pytest.mark.parametrize(("of_ancestor", "quota"), [(-1, 3), (250_000, 2.5)])
def test_cpu_quota_of_version_1(tree, mount, folder, controllers, of_ancestor, quota):
    own = f"5:cpuset:/other\n4:{controllers}:/a/b\n0::/c\n"
    groups = {"a/b": 300_000, "a": of_ancestor, "": -1, "other": 50_000, "../cpuset": 50_000}
    files = {path: text for group, time in groups.items() for path, text in grant_v1(f"{folder}/{group}", time).items()}
    assert cpu_quota(tree(own, [mount], files)) == quota


def test_cpu_quota_of_a_mount_elsewhere(tree):
    mount = V2.replace("/sys/fs/cgroup", "/run/groups")
    assert cpu_quota(tree("0::/\n", [mount], grant("../../../run/groups", 200_000) | grant(".", 100_000))) == 2


def test_cpu_quota_without_files_is_none_and_of_this_machine_some_number(tmp_path):
    assert cpu_quota(tmp_path) is None
    assert cpu_quota() is None or cpu_quota() > 0


A_AND_C = "4:memory:/a\n3:cpu:/b\n0::/c\n"
NO_LIMIT = {"memory/memory.limit_in_bytes": 9223372036854771712, "cpu/b/memory.limit_in_bytes": 1 << 30}
OF_OTHERS = {"a/memory.max": 2 << 30, "a/other/memory.max": 1 << 30}
MEMORY = {
    "no file": (A_B, [V2], {}, PHYSICAL),
    "max": (A_B, [V2], {"a/b/memory.max": "max"}, PHYSICAL),
    "more than the machine has": (A_B, [V2], {"a/b/memory.max": 2 * PHYSICAL}, PHYSICAL),
    "the least is an ancestor's": (A_B, [V2], {"a/b/memory.max": 3 << 30} | OF_OTHERS, 2 << 30),
    "version 1, no limit": (A_AND_C, [V1_MEMORY, V1_ALONE], NO_LIMIT, PHYSICAL),
    "version 1": (A_AND_C, [V1_MEMORY, V1_ALONE], NO_LIMIT | {"memory/a/memory.limit_in_bytes": 5 << 30}, 5 << 30),
}


@pytest.mark.parametrize(("own", "mounts", "files", "nbytes"), MEMORY.values(), ids=MEMORY)
def test_memory_limit(tree, own, mounts, files, nbytes):
    assert memory_limit(tree(own, mounts, files), PHYSICAL) == nbytes


def test_memory_limit_of_this_machine_is_plausible():
    assert 1 << 28 < memory_limit() < 1 << 50
