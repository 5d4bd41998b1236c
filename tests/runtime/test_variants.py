import numpy as np
import pytest

from dmlcpu.runtime import jit
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.variants import specialized, variant

FACTOR = 10


@device
def step(value):
    return value + 1


@device
def unconcerned(value):
    return value * FACTOR


@device
def story(value):
    return unconcerned(step(value))


@inlined
def chapter(value):
    return story(value) + step(value)


def book(part, parts, x):
    for i in range(part, x.size, parts):
        x[i] = chapter(x[i])


@device
def double(value):
    return 2 * value


def result(kernel, parts=1):
    x = np.arange(4)
    kernel(parts, x)
    return x.tolist()


def test_helpers_of_helpers_see_the_new_name():
    assert result(variant(book, "plain", step=step)) == [(v + 1) * 10 + v + 1 for v in range(4)]
    assert result(variant(book, "doubled", step=double)) == [2 * v * 10 + 2 * v for v in range(4)]
    assert result(variant(book, "threefold", FACTOR=3, step=double)) == [2 * v * 3 + 2 * v for v in range(4)]


def test_a_variant_has_a_name_and_a_digest_of_its_own():
    plain, doubled = variant(book, "plain", step=step), variant(book, "doubled", step=double)
    assert (plain.name, doubled.name) == ("plain", "doubled")
    assert jit.digest(plain.function) != jit.digest(doubled.function)
    assert jit.digest(doubled.function) == jit.digest(variant(book, "doubled", step=double).function)


doubled_story, doubled_chapter = specialized(story, step=double), specialized(chapter, step=double)


def two_stories(part, parts, x):
    for i in range(part, x.size, parts):
        x[i] = story(x[i]) + 100 * doubled_story(x[i]) + 10_000 * doubled_chapter(x[i])


def test_a_kernel_may_use_a_helper_and_a_specialized_copy_of_it():
    expected = [(v + 1) * 10 + 100 * 2 * v * 10 + 10_000 * (2 * v * 10 + 2 * v) for v in range(4)]
    assert result(Kernel(two_stories)) == expected


def test_a_specialized_helper_is_compiled_as_the_original_which_stays_as_it_was():
    variant(book, "doubled", step=double)
    for helper, copied in ((story, doubled_story), (chapter, doubled_chapter)):
        assert copied is not helper
        assert copied.targetoptions == helper.targetoptions
        assert copied.py_func.__name__ == helper.py_func.__name__
    assert book.__globals__["step"] is story.py_func.__globals__["step"] is step


def test_helpers_that_do_not_reach_the_name_are_shared():
    assert doubled_chapter.py_func.__globals__["story"] is not story
    assert doubled_story.py_func.__globals__["unconcerned"] is unconcerned


def test_a_plain_function_is_specialized_to_a_plain_function():
    assert specialized(unconcerned.py_func, FACTOR=3)(5) == 15


def test_every_specialized_copy_counts_in_the_digest(monkeypatch):
    before = jit.digest(two_stories)
    monkeypatch.setitem(two_stories.__globals__, "doubled_story", specialized(story, step=unconcerned))
    assert jit.digest(two_stories) != before


def test_a_name_that_nothing_uses_is_refused():
    with pytest.raises(NameError, match=r"^variant doubled: nothing in book is called stride$"):
        variant(book, "doubled", stride=double)
    with pytest.raises(NameError, match=r"^specialized: nothing in story is called stride$"):
        specialized(story, step=double, stride=double)
