from asv_files import load


def test_name_of_a_case_has_its_sizes():
    case = load("benchmarks.cases.top_k").TopKCase((3, 4), 2, axis=0, dtype="int8", data="sorted")
    assert str(case) == "3x4 k 2 axis 0 int8 sorted"
