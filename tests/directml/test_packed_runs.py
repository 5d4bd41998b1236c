"""The short way that packed tensors in memory of their own take: the same results and refusals."""

import numpy as np
import pytest
from desc_builders import ROWS, check_top_k, outputs, small_scatter_desc, tensor, top_k1_desc

from dmlcpu import TopK, compile_operator
from dmlcpu.errors import BindingError
from dmlcpu.runtime.threads import use_budget

FORMS = {
    "of its own memory": np.copy,
    "a view": lambda x: np.concatenate([x, x])[: len(x)],
    "read-only": lambda x: np.broadcast_to(x.copy(), x.shape),
    "fortran": np.asfortranarray,
    "flat": lambda x: x.reshape(-1).copy(),
}


@pytest.mark.parametrize("form", FORMS)
def test_however_tensors_are_bound_the_results_are_the_same(form):
    values, indices = outputs()
    given = {"input_tensor": FORMS[form](ROWS), "output_value_tensor": values, "output_index_tensor": indices}
    check_top_k(compile_operator(top_k1_desc())(**given))
    check_top_k(TopK(values, indices))
    x = np.array([[1, 2, 3, 4, 5, 6, 7, 8]], np.float32)
    out = np.empty_like(x)
    found = compile_operator(small_scatter_desc())(
        input_tensor=FORMS[form](x),
        indices_tensor=np.array([[4], [3], [1], [7]], np.int32),
        updates_tensor=np.array([[9, 10, 11, 12]], np.float32),
        output_tensor=out,
    )
    assert found is out
    np.testing.assert_array_equal(out, [[1, 11, 3, 10, 9, 6, 7, 12]])


def test_packed_tensors_run_without_views(monkeypatch):
    values, indices = outputs()
    op = compile_operator(top_k1_desc())
    monkeypatch.setattr(op, "_run", op._run._replace(general=None))
    check_top_k(op(input_tensor=ROWS.copy(), output_value_tensor=values, output_index_tensor=indices))
    check_top_k(op(input_tensor=ROWS.copy(), output_index_tensor=indices))  # an output is allocated
    with pytest.raises(TypeError, match="not callable"):
        op(input_tensor=np.asfortranarray(ROWS), output_value_tensor=values, output_index_tensor=indices)


def test_one_array_bound_twice_is_refused():
    desc = top_k1_desc(input_tensor=tensor("UINT32", 1, 1, 3, 4), output_value_tensor=tensor("UINT32", 1, 1, 3, 2))
    both = np.full((1, 1, 3, 2), 7, np.uint32)
    with pytest.raises(BindingError, match="OutputIndexTensor is sharing memory with OutputValueTensor"):
        compile_operator(desc)(input_tensor=ROWS.astype(np.uint32), output_value_tensor=both, output_index_tensor=both)
    assert (both == 7).all()


def test_the_number_of_threads_may_change_between_calls():
    values, indices = outputs()
    op = compile_operator(top_k1_desc())
    for threads in (1, 2):
        with use_budget(threads, grain=1):
            check_top_k(op(input_tensor=ROWS.copy(), output_value_tensor=values, output_index_tensor=indices))
