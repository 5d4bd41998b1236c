"""Trees of files as systems and containers show them; see the manual pages cgroups(7) and proc(5)."""

import pytest

from dmlcpu.runtime.quota import cpu_quota, memory_limit

V2 = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
V1_ALONE = "36 31 0:33 {top} /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
OTHERS = """\
22 27 0:20 / /proc rw,nosuid shared:13 - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
"""
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"


@pytest.fixture
def tree(tmp_path):
    """Make a root folder in which the process is in the given groups, mounted as given."""

    def make(own, *mounts):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(own)
        (tmp_path / "proc/self/mountinfo").write_text(OTHERS + "".join(f"{mount}\n" for mount in mounts))
        return tmp_path

    return make


def grant(root, folder, time, period=100_000):
    """Let a group of version 2 have so much time."""
    group = root / "sys/fs/cgroup" / folder
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.max").write_text(f"{time} {period}\n")


def grant_v1(root, folder, time, period=100_000):
    group = root / "sys/fs/cgroup" / folder
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.cfs_quota_us").write_text(f"{time}\n")
    (group / "cpu.cfs_period_us").write_text(f"{period}\n")


def test_a_container_with_a_namespace_of_its_own_sees_its_group_as_the_root(tree):
    root = tree("0::/\n", V2.format(top="/"))
    grant(root, ".", 200_000)
    assert cpu_quota(root) == 2


@pytest.mark.parametrize(("time", "period", "quota"), [(50_000, 100_000, 0.5), (15_000, 10_000, 1.5)])
def test_a_quota_need_not_be_whole(tree, time, period, quota):
    root = tree("0::/\n", V2.format(top="/"))
    grant(root, ".", time, period)
    assert cpu_quota(root) == quota


@pytest.mark.parametrize("least", ["a.slice", "a.slice/b.slice", "a.slice/b.slice/c.scope"])
def test_the_least_of_a_group_and_its_ancestors_counts(tree, least):
    root = tree("0::/a.slice/b.slice/c.scope\n", V2.format(top="/"))
    for folder in ("a.slice", "a.slice/b.slice", "a.slice/b.slice/c.scope"):
        grant(root, folder, 100_000 if folder == least else 300_000)
    grant(root, "a.slice/b.slice/c.scope/child", 50_000)
    grant(root, "a.slice/sibling.scope", 50_000)
    assert cpu_quota(root) == 1


def test_max_is_no_quota(tree):
    root = tree("0::/a.slice/b.scope\n", V2.format(top="/"))
    grant(root, "a.slice/b.scope", "max")
    assert cpu_quota(root) is None
    grant(root, "a.slice", 400_000)
    assert cpu_quota(root) == 4


@pytest.mark.parametrize(("mount", "folder"), [(V1, "cpu,cpuacct"), (V1_ALONE, "cpu")])
@pytest.mark.parametrize("controllers", ["cpu,cpuacct", "cpu"])
def test_version_1(tree, mount, folder, controllers):
    root = tree(f"5:cpuset:/other\n4:{controllers}:/a.slice/b.service\n0::/c\n", mount.format(top="/"))
    grant_v1(root, f"{folder}/a.slice/b.service", 300_000)
    grant_v1(root, folder, -1)
    grant_v1(root, f"{folder}/other", 50_000)
    grant_v1(root, "cpuset", 50_000)
    assert cpu_quota(root) == 3
    grant_v1(root, f"{folder}/a.slice", 250_000)
    assert cpu_quota(root) == 2.5


def test_minus_one_is_no_quota(tree):
    root = tree("4:cpu,cpuacct:/\n", V1.format(top="/"))
    grant_v1(root, "cpu,cpuacct", -1)
    assert cpu_quota(root) is None


def test_what_is_above_the_mount_does_not_count(tree):
    root = tree("0::/b\n", UNIFIED)
    grant(root, "unified/b", 200_000)
    grant(root, ".", 100_000)
    assert cpu_quota(root) == 2


def test_hybrid(tree):
    """Version 2 is mounted for systemd's own use, and version 1 has the controllers."""
    root = tree("4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/b\n", V1.format(top="/"), UNIFIED)
    grant_v1(root, "cpu,cpuacct/a", 150_000)
    (root / "sys/fs/cgroup/unified/b").mkdir(parents=True)
    assert cpu_quota(root) == 1.5
    grant(root, "unified/b", 100_000)
    assert cpu_quota(root) == 1


@pytest.mark.parametrize("inner", ["", "/worker"])
def test_a_container_that_shares_the_hosts_namespace_has_its_part_mounted(tree, inner):
    """Docker with version 1: both files name the host's path."""
    root = tree(f"4:cpu,cpuacct:/docker/0ab{inner}\n", V1.format(top="/docker/0ab"))
    grant_v1(root, "cpu,cpuacct", 300_000)
    grant_v1(root, "cpu,cpuacct/worker", 200_000)
    assert cpu_quota(root) == (2 if inner else 3)


@pytest.mark.parametrize("top", ["/", "/.."])
def test_a_path_that_is_not_mounted_stands_for_the_mount(tree, top):
    root = tree("0::/kubepods.slice/pod1/0ab\n", V2.format(top=top))
    grant(root, ".", 200_000)
    grant(root, "kubepods.slice", 100_000)  # somebody else's: the process's own would have the rest of the path
    assert cpu_quota(root) == 2


def test_a_mount_elsewhere(tree):
    root = tree("0::/\n", V2.format(top="/").replace("/sys/fs/cgroup", "/run/groups"))
    grant(root, "../../../run/groups", 200_000)
    grant(root, ".", 100_000)
    assert cpu_quota(root) == 2


@pytest.mark.parametrize(
    "text", ["", "\n", "many 100000", "200000", "200000 0", "0 100000", "-5 -5", "1 2 3", "9" * 4000 + " 1", b"\xff 1"]
)
def test_odd_contents_are_no_quota_and_hide_no_other(tree, text):
    root = tree("0::/a/b\n", V2.format(top="/"))
    grant(root, "a/b", 1)
    (root / "sys/fs/cgroup/a/b/cpu.max").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert cpu_quota(root) is None
    grant(root, "a", 200_000)
    assert cpu_quota(root) == 2


def test_a_folder_where_a_file_should_be(tree):
    root = tree("0::/\n", V2.format(top="/"))
    (root / "sys/fs/cgroup/cpu.max").mkdir(parents=True)
    assert cpu_quota(root) is None


@pytest.mark.parametrize("own", ["", "nonsense\n", "0:\n", "0::/\0\n", "0::/../../a\n", f"0::/{'x' * 5000}\n"])
def test_an_odd_group_stands_for_the_mount(tree, own):
    root = tree(own, "nonsense", "1 2 3 -", V2.format(top="/"))
    grant(root, ".", 200_000)
    assert cpu_quota(root) == 2


def test_mounts_with_odd_names_hide_no_other(tree):
    root = tree("0::/\n", V2.format(top="/").replace("/sys", "/\0"), V2.format(top="/"))
    with (root / "proc/self/mountinfo").open("ab") as file:
        file.write(b"90 23 0:50 / /media/\xff rw - ext4 /dev/sdb rw\n")
    grant(root, ".", 200_000)
    assert cpu_quota(root) == 2


@pytest.mark.parametrize("missing", ["proc/self/mountinfo", "sys/fs/cgroup/cpu.max"])
def test_missing_files_are_no_quota(tree, missing):
    root = tree("0::/\n", V2.format(top="/"))
    grant(root, ".", 200_000)
    (root / missing).unlink()
    assert cpu_quota(root) is None


def test_no_file_at_all_as_on_other_systems(tmp_path):
    assert cpu_quota(tmp_path) is None


def test_this_machine_answers():
    quota = cpu_quota()
    assert quota is None or quota > 0


PHYSICAL = 64 << 30
V1_MEMORY = "36 31 0:33 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


@pytest.fixture
def physical(monkeypatch):
    monkeypatch.setattr("dmlcpu.runtime.quota._physical_memory", lambda: PHYSICAL)


def limit(root, file, nbytes):
    path = root / "sys/fs/cgroup" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{nbytes}\n")


def test_memory_is_what_the_machine_has(tree, physical):
    root = tree("0::/a.slice/b.scope\n", V2.format(top="/"))
    assert memory_limit(root) == PHYSICAL
    limit(root, "a.slice/b.scope/memory.max", "max")
    assert memory_limit(root) == PHYSICAL
    limit(root, "a.slice/b.scope/memory.max", 2 * PHYSICAL)
    assert memory_limit(root) == PHYSICAL


def test_the_least_memory_of_a_group_and_its_ancestors_counts(tree, physical):
    root = tree("0::/a.slice/b.scope\n", V2.format(top="/"))
    limit(root, "a.slice/b.scope/memory.max", 3 << 30)
    limit(root, "a.slice/memory.max", 2 << 30)
    limit(root, "a.slice/other.scope/memory.max", 1 << 30)
    assert memory_limit(root) == 2 << 30


def test_memory_in_version_1(tree, physical):
    root = tree("4:memory:/a\n3:cpu:/b\n0::/c\n", V1_MEMORY.format(top="/"), V1_ALONE.format(top="/"))
    limit(root, "memory/memory.limit_in_bytes", 9223372036854771712)  # no limit
    limit(root, "cpu/b/memory.limit_in_bytes", 1 << 30)
    assert memory_limit(root) == PHYSICAL
    limit(root, "memory/a/memory.limit_in_bytes", 5 << 30)
    assert memory_limit(root) == 5 << 30


def test_this_machine_has_memory():
    assert 1 << 28 < memory_limit() < 1 << 50
