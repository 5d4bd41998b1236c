from processes import run

from dmlcpu.common.imports import unknown


def test_the_names_that_are_like_it_are_suggested():
    assert str(unknown("m", "topk", ["knn", "top_k"])) == "module 'm' has no attribute 'topk'; did you mean 'top_k'?"
    assert str(unknown("m", "aab", ["aac", "aad", "xyz"])).endswith("; did you mean 'aad' or 'aac'?")


def test_the_name_that_is_meant_is_suggested_alone():
    text = str(unknown("m", "topk", ["knn", "top_k"], meant="knn"))
    assert text == "module 'm' has no attribute 'topk'; did you mean 'knn'?"


def test_other_names_get_no_suggestion():
    assert str(unknown("m", "xyz", ["top_k"])) == "module 'm' has no attribute 'xyz'"
    assert str(unknown("m", "_top_k", ["top_k"])) == "module 'm' has no attribute '_top_k'"


def test_at_interpreter_shutdown_there_is_no_suggestion():
    code = """
    import sys
    from dmlcpu.common.imports import unknown
    sys.modules["difflib"] = sys.meta_path = None
    print(unknown("m", "topk", ["top_k"]))
    """
    assert run(code).strip() == "module 'm' has no attribute 'topk'"
