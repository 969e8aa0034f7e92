"""Elasticsearch's `_search` as it looks on the wire, over one small index of products.

Where the facts come from:

- request and reply: https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-search
- queries: https://www.elastic.co/docs/reference/query-languages/querydsl
- `simple_query_string`: https://www.elastic.co/docs/reference/query-languages/query-dsl/query-dsl-simple-query-string-query
- error bodies: https://github.com/elastic/elasticsearch (`ElasticsearchException`)

Scores are a toy: matching words, rarer ones weigh more. They order hits; their size says nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias

from mocks.vendor import Ask, Fault, Vendor, Wire, Work, answer

_WINDOW: Final = 10_000
_TEXT: Final = ("title", "body", "sku")
_SHARDS: Final = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}

_SHELF: Final[Mapping[str, Sequence[tuple[str, float, str]]]] = MappingProxyType(
    {
        "mug": (
            ("Blue mug", 19.99, "Stoneware coffee mug in deep blue, 350 ml, dishwasher safe."),
            ("White mug", 14.5, "Plain porcelain mug for coffee or tea, 300 ml."),
            ("Travel mug", 24.0, "Steel travel mug with lid, keeps coffee hot for six hours."),
            ("Enamel mug", 12.0, "Light enamel camping mug with a black rim."),
            ("Mug set", 49.0, "Four stackable mugs in blue, green, grey and sand."),
        ),
        "shirt": (
            ("Red shirt", 29.0, "Cotton T-shirt in red, sizes S to XL."),
            ("Blue shirt", 29.0, "Cotton T-shirt in blue, sizes S to XL."),
            ("Linen shirt", 59.0, "White linen shirt with long sleeves for summer."),
            ("Flannel shirt", 45.0, "Warm checked shirt in red and black."),
        ),
        "book": (
            ("Bread book", 32.0, "Sixty recipes for bread with sourdough and yeast."),
            ("Garden book", 27.5, "A year in a small kitchen garden, month by month."),
            ("Tea book", 22.0, "Where tea grows, how it is made and how to brew it."),
            ("Star atlas", 38.0, "Maps of the night sky for binoculars and small telescopes."),
        ),
        "tea": (
            ("Green tea", 9.9, "Loose green tea from spring leaves, 100 g."),
            ("Black tea", 8.5, "Strong black breakfast tea, 125 g."),
            ("Mint tea", 7.0, "Dried peppermint leaves without caffeine, 50 g."),
        ),
        "coffee": (
            ("Espresso beans", 13.9, "Dark roasted coffee beans for espresso, 500 g."),
            ("Filter coffee", 11.9, "Ground coffee for filter and press, 500 g."),
            ("Coffee grinder", 79.0, "Hand grinder with steel burrs for coffee beans."),
        ),
        "kettle": (
            ("Steel kettle", 39.0, "Electric kettle of brushed steel, 1.7 litres."),
            ("Glass teapot", 34.0, "Teapot of heat-proof glass with a strainer for loose tea."),
        ),
        "lamp": (
            ("Desk lamp", 54.0, "Dimmable desk lamp with a flexible arm."),
            ("Reading lamp", 25.0, "Small clip-on lamp for reading books in bed."),
        ),
        "bag": (
            ("Tote bag", 15.0, "Canvas tote bag with a long strap."),
            ("Backpack", 89.0, "Water-repellent backpack with a laptop sleeve, 20 litres."),
        ),
        "note": (
            ("Notebook", 6.5, "Dotted notebook with 120 pages and a red cover."),
            ("Fountain pen", 28.0, "Steel nib fountain pen with a blue cartridge."),
            ("Pencil set", 9.0, "Twelve graphite pencils from 2H to 8B."),
        ),
        "home": (
            ("Wool blanket", 69.0, "Grey blanket of recycled wool, 130 by 180 cm."),
            ("Beeswax candle", 12.5, "Candle of pure beeswax, burns for 40 hours."),
            ("Oak board", 35.0, "Cutting board of oiled oak for bread and vegetables."),
            ("Plant pot", 18.0, "Terracotta pot with a saucer, 16 cm."),
        ),
    }
)

PRODUCTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        f"{kind}-{number}": {
            "title": title,
            "body": body,
            "price": price,
            "sku": f"{kind.upper()}-{number}",
        }
        for kind, rows in _SHELF.items()
        for number, (title, price, body) in enumerate(rows, start=1)
    }
)
"""The default documents by `_id`: title, body, price (in the shop's currency) and sku."""

Document: TypeAlias = Mapping[str, Any]
Score: TypeAlias = Callable[[Document], float | None]
"""A parsed query: the score of a document, or None where it does not match."""


class _RefusedError(Exception):
    """A reply that ends the work of an endpoint."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body["error"]["reason"])
        self.status = status
        self.body = body


def error_body(status: int, kind: str, reason: str, **more: Any) -> dict[str, Any]:
    """Return the body of an error; `more` are JSON values that stand beside the reason."""
    root = {"type": kind, "reason": reason, **more}
    return {"error": {"root_cause": [root], **root}, "status": status}


def rejected(*, at: str = "*", nth: int | None = None, times: int = 1) -> Fault:
    """Make the 429 of a node whose search queue is full."""
    cause = {"type": "es_rejected_execution_exception", "reason": "rejected execution of a search"}
    row = {"shard": 0, "index": "products", "node": "mock", "reason": cause}
    failed = {"phase": "query", "grouped": True, "failed_shards": [row]}
    outer = {"type": "search_phase_execution_exception", "reason": "all shards failed", **failed}
    body = {"error": {"root_cause": [cause], **outer}, "status": 429}
    return answer(429, body, at=at, nth=nth, times=times)


def unavailable(*, at: str = "*", nth: int | None = None, times: int = 1) -> Fault:
    """Make the 503 of a cluster without a master node."""
    body = error_body(503, "master_not_discovered_exception", "no master")
    return answer(503, body, at=at, nth=nth, times=times)


def timed_out(*, at: str = "*", nth: int | None = None, times: int = 1) -> Fault:
    """Make the 200 that ran out of time before it found a hit."""
    return answer(200, _found([], timed_out=True), at=at, nth=nth, times=times)


def shards_failed(*, at: str = "*", nth: int | None = None, times: int = 1) -> Fault:
    """Make the 200 without hits in which a shard did not answer: no proof that there are none."""
    body = _found([])
    cause = {"type": "node_not_connected_exception", "reason": "node is gone"}
    row = {"shard": 1, "index": "products", "node": "mock", "reason": cause}
    shards = {"total": 2, "successful": 1, "skipped": 0, "failed": 1, "failures": [row]}
    return answer(200, {**body, "_shards": shards}, at=at, nth=nth, times=times)


class ElasticsearchMock(Vendor):
    """One index with a search endpoint.

    Args:
        faults: what goes wrong, see `Fault`.
        index: name of the index.
        documents: by `_id`; the default is `PRODUCTS`.
        base_url, key: see `Vendor`.
    """

    url: ClassVar[str] = "https://search.example:9200"
    json_type: ClassVar[str] = "application/vnd.elasticsearch+json;compatible-with=8"
    scheme: ClassVar[str] = "ApiKey"

    def __init__(
        self,
        *,
        faults: Iterable[Fault] = (),
        index: str = "products",
        documents: Mapping[str, Document] = PRODUCTS,
        base_url: str | None = None,
        key: str = "bW9jazptb2Nr",
    ) -> None:
        """Start with the documents indexed and visible."""
        super().__init__(faults=faults, base_url=base_url, key=key)
        self.index = index
        self.documents: dict[str, Document] = dict(documents)
        for path in (r"/(?P<index>[^/]+)/_search", "/_search"):
            self.route("GET", path, self._search)
            self.route("POST", path, self._search)

    def perform(self, ask: Ask, work: Work) -> Wire:
        """Check the API key, then do the work."""
        try:
            if ask.headers.get("authorization") != f"ApiKey {self.key}":
                reason = f"unable to authenticate with provided credentials for [{ask.path}]"
                raise _refused(401, "security_exception", reason)
            return work(ask)
        except _RefusedError as refused:
            return self.reply(refused.status, refused.body)

    def own_headers(self, ask: Ask) -> dict[str, str]:
        """Return the headers of an Elasticsearch node; clients check the first one."""
        return {"x-elastic-product": "Elasticsearch", **super().own_headers(ask)}

    def _search(self, ask: Ask) -> Wire:
        wanted = ask.parts.get("index", "*")
        names = wanted.split(",")
        for name in names:
            if "*" not in name and name not in (self.index, "_all"):
                raise _no_index(name)
        body = _body(ask)
        first, size = _whole(body, "from", 0), _whole(body, "size", 10)
        if first + size > _WINDOW:
            reason = f"Result window is too large: {first + size} is over {_WINDOW}"
            raise _refused(400, "illegal_argument_exception", reason)
        if not any(name == "_all" or fnmatchcase(self.index, name) for name in names):
            return self.reply(200, _found([]))
        score = _query(body.get("query", {"match_all": {}}), tuple(self.documents.values()))
        scored = ((score(document), key) for key, document in self.documents.items())
        rows = [(value, key) for value, key in scored if value is not None]
        rows.sort(key=lambda row: -row[0])  # stable, so equal scores keep the index order
        page = [self._hit(key, value, body) for value, key in rows[first : first + size]]
        return self.reply(200, _found(page, total=len(rows), best=rows[0][0] if rows else None))

    def _hit(self, key: str, value: float, body: Mapping[str, Any]) -> dict[str, Any]:
        document = self.documents[key]
        hit: dict[str, Any] = {"_index": self.index, "_id": key, "_score": value}
        source = _source(document, body.get("_source", True))
        if source is not None:
            hit["_source"] = source
        fields = body.get("highlight", {}).get("fields", {})
        marked = _highlight(document, fields, set(_words_of(body.get("query", {}))))
        return {**hit, "highlight": marked} if marked else hit


def _found(
    hits: list[dict[str, Any]],
    *,
    total: int = 0,
    best: float | None = None,
    timed_out: bool = False,
) -> dict[str, Any]:
    count = {"value": total, "relation": "eq"}
    found = {"total": count, "max_score": best, "hits": hits}
    return {"took": 1, "timed_out": timed_out, "_shards": dict(_SHARDS), "hits": found}


def _refused(status: int, kind: str, reason: str, **more: Any) -> _RefusedError:
    return _RefusedError(status, error_body(status, kind, reason, **more))


def _no_index(name: str) -> _RefusedError:
    more = {"resource.type": "index_or_alias", "resource.id": name}
    more |= {"index_uuid": "_na_", "index": name}
    return _refused(404, "index_not_found_exception", f"no such index [{name}]", **more)


def _unparsed(reason: str) -> _RefusedError:
    return _refused(400, "parsing_exception", reason, line=1, col=1)


def _unreadable(text: str) -> _RefusedError:
    """Refuse query text its own parser cannot read; this fails in the shards, not before."""
    cause = {"type": "query_shard_exception", "reason": f"Failed to parse query [{text}]"}
    cause |= {"index": "products"}
    row = {"shard": 0, "index": "products", "node": "mock", "reason": cause}
    outer = {"type": "search_phase_execution_exception", "reason": "all shards failed"}
    more = {"phase": "query", "grouped": True, "failed_shards": [row]}
    return _RefusedError(400, {"error": {"root_cause": [cause], **outer, **more}, "status": 400})


_KEYS: Final = frozenset(
    {
        "_source",
        "from",
        "highlight",
        "min_score",
        "query",
        "size",
        "sort",
        "timeout",
        "track_total_hits",
    }
)


def _body(ask: Ask) -> dict[str, Any]:
    text = ask.text.strip()
    if not text:
        return {}
    try:
        body = ask.json()
    except ValueError:
        reason = "[1:1] Unexpected character in the request body"
        raise _refused(400, "x_content_parse_exception", reason) from None
    if not isinstance(body, dict):
        reason = "Expected [START_OBJECT] at the start of the request body"
        raise _unparsed(reason)
    for key in body:
        if key not in _KEYS:
            reason = f"Unknown key for a {_token(body[key])} in [{key}]."
            raise _unparsed(reason)
    return body


def _token(value: object) -> str:
    """Name a JSON value as Elasticsearch's parser does."""
    if isinstance(value, dict):
        return "START_OBJECT"
    if isinstance(value, list):
        return "START_ARRAY"
    return "VALUE_STRING" if isinstance(value, str) else "VALUE_NUMBER"


def _whole(body: Mapping[str, Any], key: str, default: int) -> int:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        reason = f"Failed to parse value of [{key}]"
        raise _refused(400, "x_content_parse_exception", reason)
    if value < 0:
        reason = f"[{key}] parameter cannot be negative, found [{value}]"
        raise _refused(400, "illegal_argument_exception", reason)
    return value


# Words, as an index with the `english` analyzer roughly sees them.


def _words(text: str) -> list[str]:
    """Return the terms of a text: lower case, plural endings cut."""
    found = re.findall(r"\w+", text.lower())
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found]  # noqa: PLR2004


def _text(document: Document, name: str) -> str:
    return str(document.get(name, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What a text query asks of a document."""

    words: tuple[str, ...]
    """Terms, each of which adds to the score."""

    fields: Mapping[str, float]
    """Field names and their boost."""

    every: bool = False
    """Whether all terms must occur."""

    phrases: tuple[tuple[str, ...], ...] = ()
    """Runs of terms, each of which must occur as it stands."""

    prefixes: tuple[str, ...] = ()
    """Beginnings of words, each of which adds to the score."""

    absent: tuple[str, ...] = ()
    """Terms that must not occur."""

    def scorer(self, corpus: Sequence[Document]) -> Score:
        """Bind it to the documents that say how rare a word is."""
        have = [set(self._all(document)) for document in corpus]
        rare = {
            word: math.log(1 + len(have) / (1 + sum(word in words for words in have))) for word in self.words
        }

        def score(document: Document) -> float | None:
            everything = self._all(document)
            hit = {word for word in self.words if word in everything}
            value = sum(
                boost * rare[word]
                for name, boost in self.fields.items()
                for word in hit.intersection(_words(_text(document, name)))
            )
            value += sum(any(word.startswith(begin) for word in everything) for begin in self.prefixes)
            value += sum(_holds(everything, phrase) for phrase in self.phrases)
            short = self.every and len(hit) < len(set(self.words))
            missing = not all(_holds(everything, phrase) for phrase in self.phrases)
            banned = any(word in everything for word in self.absent)
            if short or missing or banned or value <= 0:
                return None
            return round(value, 6)

        return score

    def _all(self, document: Document) -> list[str]:
        return [word for name in self.fields for word in _words(_text(document, name))]


def _holds(words: Sequence[str], run: Sequence[str]) -> bool:
    size = len(run)
    return any(tuple(words[at : at + size]) == tuple(run) for at in range(len(words)))


# Queries: one function a kind, chosen by name.


def _query(clause: object, corpus: Sequence[Document]) -> Score:
    if not isinstance(clause, dict) or not clause:
        reason = "query malformed, empty clause found"
        raise _refused(400, "illegal_argument_exception", reason)
    name, *others = clause
    if others:
        reason = f"[{name}] malformed query, expected [END_OBJECT] but found [FIELD_NAME]"
        raise _unparsed(reason)
    parse = _QUERIES.get(name)
    if parse is None:
        reason = f"unknown query [{name}]"
        cause = {"type": "named_object_not_found_exception", "reason": f"unknown field [{name}]"}
        body = error_body(400, "parsing_exception", reason, line=1, col=1)
        body["error"]["caused_by"] = cause
        raise _RefusedError(400, body)
    options = clause[name]
    if not isinstance(options, dict):
        reason = f"[{name}] query malformed, no start_object after query name"
        raise _unparsed(reason)
    return parse(options, corpus)


def _match_all(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    del options, corpus
    return lambda _: 1.0


def _match(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    name, value = _single("match", options)
    detail = value if isinstance(value, dict) else {"query": value}
    terms = _Terms(
        words=tuple(_words(_string("match", detail))),
        fields={name: float(detail.get("boost", 1))},
        every=str(detail.get("operator", "or")).lower() == "and",
    )
    return terms.scorer(corpus)


def _match_phrase(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    name, value = _single("match_phrase", options)
    detail = value if isinstance(value, dict) else {"query": value}
    phrase = tuple(_words(_string("match_phrase", detail)))
    return _Terms(words=(), fields={name: 1.0}, phrases=(phrase,)).scorer(corpus)


def _multi_match(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    known = {"boost", "fields", "fuzziness", "minimum_should_match", "operator", "query", "type"}
    _only("multi_match", options, known | {"tie_breaker", "lenient"})
    terms = _Terms(
        words=tuple(_words(_string("multi_match", options))),
        fields=_fields(options),
        every=str(options.get("operator", "or")).lower() == "and",
    )
    return terms.scorer(corpus)


def _simple_query_string(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    known = {"analyze_wildcard", "default_operator", "fields", "flags", "lenient", "query"}
    _only("simple_query_string", options, known | {"minimum_should_match", "boost"})
    return _operators(_string("simple_query_string", options), options).scorer(corpus)


def _query_string(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    known = {"analyze_wildcard", "default_field", "default_operator", "fields", "lenient", "query"}
    _only("query_string", options, known | {"minimum_should_match", "boost"})
    text = _string("query_string", options)
    open_end = re.search(r"(\b(AND|OR|NOT)|[:(\[{/])\s*$|^\s*(AND|OR)\b", text)
    if open_end or text.count('"') % 2 or text.count("(") != text.count(")"):
        raise _unreadable(text)
    plain = re.sub(r"\b(AND|OR)\b", " ", text)
    return _operators(plain.replace("NOT ", "-"), options).scorer(corpus)


def _operators(text: str, options: Mapping[str, Any]) -> _Terms:
    """Read `"a phrase"`, `-not`, `begin*` and plain words; nothing in it can be malformed."""
    phrases = [tuple(_words(found)) for found in re.findall(r'"([^"]*)"', text)]
    rest = re.sub(r'"[^"]*"', " ", text).split()
    absent = [word for piece in rest if piece.startswith("-") for word in _words(piece)]
    kept = [piece for piece in rest if not piece.startswith("-")]
    prefixes = [piece.strip("+(").rstrip("*)").lower() for piece in kept if "*" in piece]
    words = [word for piece in kept if "*" not in piece for word in _words(piece)]
    return _Terms(
        words=tuple(words),
        fields=_fields(options),
        every=str(options.get("default_operator", "or")).lower() == "and",
        phrases=tuple(phrase for phrase in phrases if phrase),
        prefixes=tuple(begin for begin in prefixes if begin),
        absent=tuple(absent),
    )


def _term(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    del corpus
    name, value = _single("term", options)
    wanted = value.get("value") if isinstance(value, dict) else value
    return lambda document: 1.0 if _exact(document, name) == wanted else None


def _terms(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    del corpus
    name, wanted = _single("terms", options)
    if not isinstance(wanted, list):
        reason = "[terms] query requires an array of terms"
        raise _unparsed(reason)
    return lambda document: 1.0 if _exact(document, name) in wanted else None


def _range(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    del corpus
    name, bounds = _single("range", options)
    if not isinstance(bounds, dict) or not set(bounds) <= set(_BOUNDS):
        reason = f"[range] query does not support [{bounds}]"
        raise _unparsed(reason)

    def score(document: Document) -> float | None:
        value = document.get(name)
        if not isinstance(value, int | float):
            return None
        return 1.0 if all(_BOUNDS[key](value, limit) for key, limit in bounds.items()) else None

    return score


def _bool(options: Mapping[str, Any], corpus: Sequence[Document]) -> Score:
    known = {"boost", "filter", "minimum_should_match", "must", "must_not", "should"}
    _only("bool", options, known)
    part = {
        key: [_query(clause, corpus) for clause in _listed(options.get(key, []))]
        for key in ("must", "filter", "should", "must_not")
    }
    needed = not part["must"] and not part["filter"] and bool(part["should"])

    def score(document: Document) -> float | None:
        must = [query(document) for query in part["must"]]
        should = [query(document) for query in part["should"]]
        good = [value for value in (*must, *should) if value is not None]
        filtered = any(query(document) is None for query in part["filter"])
        banned = any(query(document) is not None for query in part["must_not"])
        if None in must or filtered or banned or (needed and not good):
            return None
        return round(sum(good), 6)

    return score


_BOUNDS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "gt": lambda value, limit: value > limit,
    "gte": lambda value, limit: value >= limit,
    "lt": lambda value, limit: value < limit,
    "lte": lambda value, limit: value <= limit,
}

_QUERIES: Final[Mapping[str, Callable[[Mapping[str, Any], Sequence[Document]], Score]]] = {
    "bool": _bool,
    "match": _match,
    "match_all": _match_all,
    "match_phrase": _match_phrase,
    "multi_match": _multi_match,
    "query_string": _query_string,
    "range": _range,
    "simple_query_string": _simple_query_string,
    "term": _term,
    "terms": _terms,
}


def _single(query: str, options: Mapping[str, Any]) -> tuple[str, Any]:
    names = list(options)
    if len(names) != 1:
        reason = f"[{query}] query takes one field, found {names}"
        raise _unparsed(reason)
    return names[0], options[names[0]]


def _only(query: str, options: Mapping[str, Any], known: set[str]) -> None:
    for name in options:
        if name not in known:
            reason = f"[{query}] query does not support [{name}]"
            raise _unparsed(reason)


def _string(query: str, options: Mapping[str, Any]) -> str:
    value = options.get("query")
    if value is None or isinstance(value, dict | list):
        reason = f"[{query}] query needs a [query] value"
        raise _unparsed(reason)
    return str(value)


def _fields(options: Mapping[str, Any]) -> dict[str, float]:
    fields: dict[str, float] = {}
    for given in options.get("fields") or _TEXT:
        name, _, boost = str(given).partition("^")
        names = _TEXT if name == "*" else (name,)
        fields.update(dict.fromkeys(names, float(boost or 1)))
    return fields


def _listed(clauses: object) -> list[object]:
    return clauses if isinstance(clauses, list) else [clauses]


def _exact(document: Document, name: str) -> object:
    return document.get(name.removesuffix(".keyword"))


def _source(document: Document, wanted: object) -> dict[str, Any] | None:
    """Pick the parts of a document that `_source` asks for; None: none at all."""
    if wanted is False:
        return None
    if wanted is True:
        return dict(document)
    if isinstance(wanted, dict):
        includes = _listed(wanted.get("includes", "*"))
        excludes = _listed(wanted.get("excludes", []))
    else:
        includes, excludes = _listed(wanted), []
    return {
        name: value
        for name, value in document.items()
        if any(fnmatchcase(name, str(glob)) for glob in includes)
        and not any(fnmatchcase(name, str(glob)) for glob in excludes)
    }


def _words_of(clause: object) -> list[str]:
    """Return every word a query mentions, for highlighting."""
    if isinstance(clause, dict):
        said = [value for key, value in clause.items() if key not in ("fields", "operator")]
        return [word for value in said for word in _words_of(value)]
    if isinstance(clause, list):
        return [word for value in clause for word in _words_of(value)]
    return _words(clause) if isinstance(clause, str) else []


def _highlight(document: Document, fields: Mapping[str, Any], words: set[str]) -> dict[str, list[str]]:
    """Mark the words in each asked field; like the vendor, it escapes nothing else."""

    def mark(found: re.Match[str]) -> str:
        return f"<em>{found[0]}</em>" if set(_words(found[0])) & words else found[0]

    marked = {name: re.sub(r"\w+", mark, _text(document, name)) for name in fields}
    return {name: [text] for name, text in marked.items() if "<em>" in text}
