"""Searches where people already are, each with the real package, if it is installed."""

import importlib
import inspect
import itertools
import runpy
import sys
import types
import warnings

import numpy as np
import pytest
from docs_blocks import DOCS, blocks_of

import dmlcpu
from dmlcpu import reference
from dmlcpu.search import FloatIndex, Int8Index, semantic_search

RNG = np.random.default_rng(0)
CORPUS = RNG.standard_normal((400, 24)).astype(np.float32)
QUERIES = RNG.standard_normal((9, 24)).astype(np.float32)

# Warnings of other packages are no errors of this one.
pytestmark = pytest.mark.filterwarnings("default")


def package(name):
    """Import a package, or skip the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"{name} is not installed ({error})")


def hits(found):
    return [[hit["corpus_id"] for hit in one] for one in found]


def scores_of(found):
    return [[hit["score"] for hit in one] for one in found]


@pytest.mark.parametrize("function", ["cos_sim", "dot_score"])
def test_semantic_search_is_that_of_sentence_transformers(function):
    util, torch = package("sentence_transformers.util"), package("torch")
    tensors = torch.from_numpy(QUERIES), torch.from_numpy(CORPUS)
    expected = util.semantic_search(*tensors, top_k=7, score_function=getattr(util, function))
    found = semantic_search(*tensors, top_k=7, score_function=getattr(util, function))
    assert hits(found) == hits(expected)
    assert np.allclose(scores_of(found), scores_of(expected), rtol=1e-5)
    theirs, ours = (inspect.signature(each).parameters for each in (util.semantic_search, semantic_search))
    assert list(ours)[: len(theirs)] == list(theirs)
    for name in ("query_chunk_size", "corpus_chunk_size", "top_k"):
        assert ours[name].default == theirs[name].default


def test_semantic_search_without_sentence_transformers():
    exact, best = reference.knn(QUERIES, CORPUS, 5, "cosine")
    index = FloatIndex(CORPUS, "cosine")
    for corpus in (CORPUS, index):
        found = semantic_search(QUERIES, corpus, top_k=5)
        assert hits(found) == best.tolist()
        assert scores_of(found) == exact.tolist()
    found = semantic_search(QUERIES, Int8Index(CORPUS, "cosine", floats=True), top_k=5)
    assert hits(found) == best.tolist()
    assert np.allclose(scores_of(found), exact)
    assert semantic_search(QUERIES[0], index, top_k=1) == semantic_search(QUERIES, index, top_k=1)[:1]
    assert len(semantic_search(QUERIES, CORPUS[:3], top_k=5)[0]) == 3
    for bad, message in [
        ({"score_function": max}, "score_function is 'max'; allowed: 'cosine', 'ip', cos_sim, dot_score"),
        ({"query_chunk_size": 0}, "query_chunk_size is 0; allowed: an integer of at least 1"),
        ({"corpus_embeddings": FloatIndex(CORPUS, "l2")}, "corpus_embeddings.metric is 'l2'; allowed: 'cosine', 'ip'"),
        ({"corpus_embeddings": Int8Index(CORPUS, "l2")}, "corpus_embeddings.metric is 'l2'; allowed: 'cosine', 'ip'"),
    ]:
        with pytest.raises(dmlcpu.DmlError, match=message):
            semantic_search(**{"query_embeddings": QUERIES, "corpus_embeddings": CORPUS, **bad})


def test_an_index_in_the_place_of_faiss():
    """`semantic_search_faiss` searches ours as it is; with ranges, its own rescoring finds what floats find."""
    package("faiss")
    quantization = package("sentence_transformers.util.quantization")
    ranges = np.vstack([CORPUS.min(axis=0), CORPUS.max(axis=0)])
    codes = quantization.quantize_embeddings(CORPUS, precision="uint8", ranges=ranges)
    options = {"corpus_precision": "uint8", "top_k": 10, "ranges": ranges, "rescore_multiplier": 4}
    best = reference.knn(QUERIES, CORPUS, 10)[1].tolist()

    def shared(index):
        found = hits(quantization.semantic_search_faiss(QUERIES, corpus_index=index, **options)[0])
        return np.mean([len(set(a) & set(b)) for a, b in zip(found, best, strict=True)])

    assert shared(Int8Index(codes, ranges=ranges)) > 9.5
    assert shared(Int8Index(codes)) < 9  # its bytes are affine: their products are not those of floats


def test_bytes_stand_for_the_middle_of_their_buckets():
    """sentence-transformers rounds down when it quantizes, and decodes to the lower end: half a step below ours."""
    quantization = package("sentence_transformers.util.quantization")
    ranges = np.vstack([CORPUS.min(axis=0), CORPUS.max(axis=0)])
    for precision in ("int8", "uint8"):
        codes = quantization.quantize_embeddings(CORPUS, precision=precision, ranges=ranges)
        decoded = Int8Index(codes, ranges=ranges).space.decoded(codes)
        theirs = quantization._dequantize_embeddings(codes.astype(int), precision, ranges)
        half = (ranges[1] - ranges[0]) / 255 / 2
        assert np.allclose(decoded, theirs + half, atol=1e-5)
        assert (np.abs(decoded - CORPUS) <= 1.001 * half + 1e-6).all()


@pytest.mark.parametrize("make", [FloatIndex, lambda x, metric: Int8Index(x, metric, floats=True)])
def test_the_names_of_faiss(make):
    faiss = package("faiss")
    theirs, ours = faiss.IndexIDMap2(faiss.IndexFlatL2(24)), make(CORPUS[:0], "l2")
    options = {} if isinstance(ours, FloatIndex) else {"rescore": 8}
    for index in (theirs, ours):
        index.train(CORPUS)
        assert index.is_trained
        index.add_with_ids(CORPUS, np.arange(400) * 2)
        assert index.remove_ids(np.array([4, 6, 8])) == 3
        assert (index.d, index.ntotal, index.metric_type) == (24, 397, faiss.METRIC_L2)
        assert (index.reconstruct(2) == CORPUS[1]).all()
        assert (index.reconstruct_batch(np.array([2, 10])) == CORPUS[[1, 5]]).all()
    expected, places = theirs.search(QUERIES, 5)
    scores, found = ours.search(QUERIES, 5, **options)
    assert found.tolist() == places.tolist()
    assert np.allclose(scores, expected, rtol=1e-4)
    ours.reset()
    theirs.reset()
    assert ours.ntotal == theirs.ntotal == 0


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_what_faiss_calls_flat(metric):
    faiss = package("faiss")
    theirs, ours = (faiss.IndexFlatL2 if metric == "l2" else faiss.IndexFlatIP)(24), FloatIndex(CORPUS, metric)
    theirs.add(CORPUS)
    radius = float(theirs.search(QUERIES, 30)[0].mean())
    for found, expected in zip(ours.range_search(QUERIES, radius), theirs.range_search(QUERIES, radius), strict=True):
        assert len(found) == len(expected) > 5
    lims, _, names = theirs.range_search(QUERIES, radius)
    mine = ours.range_search(QUERIES, radius)
    assert mine[0].tolist() == lims.tolist()
    for first, last in itertools.pairwise(lims):
        assert sorted(mine[2][first:last].tolist()) == sorted(names[first:last].tolist())
    assert ours.reconstruct(7).tolist() == theirs.reconstruct(7).tolist()
    assert ours.reconstruct_n(3, 5).tolist() == theirs.reconstruct_n(3, 5).tolist()
    assert ours.reconstruct_batch([5, 2]).tolist() == theirs.reconstruct_batch(np.array([5, 2])).tolist()
    assert ours.assign(QUERIES, 3).tolist() == theirs.assign(QUERIES, 3).tolist()
    for found, expected in zip(
        ours.search_and_reconstruct(QUERIES, 3), theirs.search_and_reconstruct(QUERIES, 3), strict=True
    ):
        assert found.shape == expected.shape
        assert np.allclose(found, expected, rtol=1e-4)


def test_what_faiss_finds():
    """Searches by radius and with vectors, lists of ids, and what is merged."""
    faiss = package("faiss")
    theirs, ours = faiss.IndexFlatL2(24), FloatIndex(CORPUS, "l2")
    theirs.add(CORPUS)
    radius = float(np.sort(ours.search(QUERIES, 40)[0].ravel())[100:102].mean())
    expected, found = theirs.range_search(QUERIES, radius), ours.range_search(QUERIES, radius)
    assert found[0].tolist() == expected[0].tolist()
    for first, last in zip(found[0], found[0][1:], strict=False):
        assert set(found[2][first:last]) == set(expected[2][first:last])
        assert (np.diff(found[1][first:last]) >= 0).all()
    assert (ours.assign(QUERIES, 3) == theirs.assign(QUERIES, 3)).all()
    for one, other in zip(
        ours.search_and_reconstruct(QUERIES, 4), theirs.search_and_reconstruct(QUERIES, 4), strict=True
    ):
        assert np.allclose(one, other, rtol=1e-4)
    assert (ours.reconstruct_n(5, 7) == theirs.reconstruct_n(5, 7)).all()
    some = np.arange(100, 150)
    chosen = theirs.search(QUERIES, 4, params=faiss.SearchParameters(sel=faiss.IDSelectorBatch(some)))
    assert (ours.search(QUERIES, 4, allowlist=some)[1] == chosen[1]).all()
    pairs = [(theirs, faiss.IndexFlatL2(24)), (ours, FloatIndex(CORPUS[:0], "l2"))]
    for index, other in pairs:
        other.add(QUERIES)
        index.merge_from(other)
        assert (index.ntotal, other.ntotal) == (409, 0)
        assert index.search(QUERIES, 1)[1][:, 0].tolist() == list(range(400, 409))
        index.reset()
        assert index.ntotal == 0


def adapter(name, tmp_path, monkeypatch):
    """Return the names of the block of the page of adapters that imports a package."""
    package(name)
    (text,) = [
        text
        for language, text in blocks_of(DOCS / "examples" / "search_adapters.rst")
        if language == "python" and f"from {name}" in text
    ]
    (tmp_path / "the_adapter.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "the_adapter", raising=False)
    return importlib.import_module("the_adapter")


def test_the_page_of_embeddings(monkeypatch):
    """Its lines run with WordLlama's model as a stand-in for that of sentence-transformers: nothing is downloaded."""
    package("wordllama")
    embed = runpy.run_path(str(DOCS.parent / "examples" / "search" / "embedder.py"))["load_model"]()
    (text,) = [text for language, text in blocks_of(DOCS / "embeddings.rst") if language == "python"]
    stand_in = types.ModuleType("sentence_transformers")
    stand_in.SentenceTransformer = lambda name: types.SimpleNamespace(encode=embed)
    monkeypatch.setitem(sys.modules, "sentence_transformers", stand_in)
    names = {"texts": [f"The number {i}." for i in range(20)], "questions": ["The number 7.", "The number 12."]}
    exec(text, names)
    expected = reference.knn(embed(names["questions"]), embed(names["texts"]), 3, "cosine")
    assert names["found"].tolist() == expected[1].tolist()
    assert names["scores"].tolist() == expected[0].tolist()
    assert names["found"][:, 0].tolist() == [7, 12]
    torch = package("torch")
    assert FloatIndex(torch.from_numpy(CORPUS), "cosine").search(torch.from_numpy(QUERIES), 3)[1].shape == (9, 3)


def test_every_adapter_of_the_page_is_tested():
    texts = [text for language, text in blocks_of(DOCS / "examples" / "search_adapters.rst") if language == "python"]
    assert [each for text in texts for each in ADAPTERS if f"from {each}" in text] == list(ADAPTERS)
    for text in texts:
        of_class = text[text.index("\nclass ") :].strip().splitlines()
        assert 6 <= sum(bool(line.strip()) for line in of_class) <= 22


ADAPTERS = ("langchain_core", "llama_index", "haystack", "txtai")


def test_langchain(tmp_path, monkeypatch):
    store_of = adapter("langchain_core", tmp_path, monkeypatch).ExactStore
    peer = package("langchain_core.vectorstores").InMemoryVectorStore
    texts = [str(i) for i in range(400)]
    embedding = types.SimpleNamespace(
        embed_documents=lambda texts: [CORPUS[int(text)].tolist() for text in texts],
        embed_query=lambda text: QUERIES[int(text)].tolist(),
    )
    expected = peer.from_texts(texts, embedding).similarity_search_with_score("1", k=5)
    store = store_of.from_texts(texts[:300], embedding, [{"row": i} for i in range(300)])
    assert store.add_texts(iter(texts[300:])) == texts[300:]
    found = store.similarity_search_with_score("1", k=5)
    assert [each.page_content for each, _ in found] == [each.page_content for each, _ in expected]
    assert np.allclose([score for _, score in found], [score for _, score in expected])
    retrieved = store.as_retriever(search_kwargs={"k": 5}).invoke("1")
    assert retrieved == [each for each, _ in found] == store.similarity_search("1", 5)
    assert store.similarity_search("1", 4, exclude=[[int(found[0][0].page_content)]]) == retrieved[1:]
    assert store.similarity_search("1", 1, allowlist=[7])[0].metadata == {"row": 7}


def test_llama_index(tmp_path, monkeypatch):
    store = adapter("llama_index", tmp_path, monkeypatch).ExactStore()
    types_, schema = package("llama_index.core.vector_stores.types"), package("llama_index.core.schema")
    peer = package("llama_index.core.vector_stores").SimpleVectorStore()
    nodes = [schema.TextNode(id_=f"n{i}", text=str(i), embedding=x.tolist()) for i, x in enumerate(CORPUS)]
    for i, node in enumerate(nodes):
        node.relationships[schema.NodeRelationship.SOURCE] = schema.RelatedNodeInfo(node_id=f"d{i // 4}")
    query = types_.VectorStoreQuery(query_embedding=QUERIES[0].tolist(), similarity_top_k=6)
    for each in (store, peer):
        assert each.add(nodes[:300]) == [node.node_id for node in nodes[:300]]
        each.add(nodes[300:])
    gone = store.query(query).nodes[0].ref_doc_id
    for each in (store, peer):
        each.delete(gone)
    found, expected = store.query(query), peer.query(query)
    assert found.ids == expected.ids == [node.node_id for node in found.nodes]
    assert np.allclose(found.similarities, expected.similarities)
    assert store.client.ntotal == len(store.nodes) == 396


def test_haystack(tmp_path, monkeypatch):
    retriever_of = adapter("haystack", tmp_path, monkeypatch).ExactRetriever
    haystack, store = package("haystack"), package("haystack.document_stores.in_memory").InMemoryDocumentStore
    documents = [haystack.Document(id=str(i), content=str(i), embedding=x.tolist()) for i, x in enumerate(CORPUS)]
    peer = store(embedding_similarity_function="cosine")
    peer.write_documents(documents)
    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", retriever_of(documents, top_k=5))
    for query in QUERIES.tolist():
        found = pipeline.run({"retriever": {"query_embedding": query}})["retriever"]["documents"]
        expected = peer.embedding_retrieval(query, top_k=5)
        assert [each.id for each in found] == [each.id for each in expected]
        assert np.allclose([each.score for each in found], [each.score for each in expected])


def test_txtai(tmp_path, monkeypatch):
    adapter("txtai", tmp_path, monkeypatch)
    factory = package("txtai.ann").ANNFactory
    x = CORPUS / np.linalg.norm(CORPUS, axis=1, keepdims=True)
    config = {"backend": "the_adapter.Exact", "dimensions": 24}
    ann = factory.create(config)
    ann.index(x[:300])
    ann.append(x[300:])
    ann.delete([5, 6])
    assert ann.count() == 398
    expected = reference.knn(x[:3], x, 4, mask=~np.isin(np.arange(400), [5, 6]))
    ann.save(str(tmp_path / "txtai"))
    again = factory.create(config)
    again.load(str(tmp_path / "txtai"))
    for each in (ann, again):
        found = each.search(x[:3], 4)
        assert [[i for i, _ in row] for row in found] == expected[1].tolist()
        assert [[score for _, score in row] for row in found] == expected[0].tolist()
    again.append(x[:2])
    assert again.search(x[:1], 2)[0][1][0] == 400
