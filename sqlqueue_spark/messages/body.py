"""The body of a message: never NULL where we write it; its beginning tells its type; it may be too large."""

from sqlqueue_spark.messages.arrow import pa, pc

#: A row with more bytes of headers and body stays where it is: PostgreSQL sends no row of 1 GiB to a client.
#: A sender can write one all the same, out of a table of his own.
LARGEST_ROW = 1_000_000_000
#: The number of bytes at the beginning of a body that tell what it is.
_LOOKED_AT = 128
_BLANKS = r"\A(?:\xef\xbb\xbf)?[ \t\n\r\v\f]*"
_XML = _BLANKS + "<"
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_CHARACTERS = r'(?:[^"\\\x00-\x1f]|\\.)*'
#: An object or an array, as far as one can tell from how it begins.
_NESTED = r'\{\s*["}]|\[\s*(?:["{\[\]]|(?:[-0-9][-+.0-9eE]*|true|false|null)\s*(?:[,\]]|\z))'
#: For a body that is read to its end. An empty body counts as JSON: an empty message has no other type.
_JSON = rf'{_BLANKS}(?:{_NESTED}|(?:"{_CHARACTERS}"|{_NUMBER}|true|false|null)?\s*\z)'
#: For a body that goes on: apart from objects and arrays, only a text can be so long.
_BEGUN_JSON = rf'{_BLANKS}(?:{_NESTED}|"{_CHARACTERS}(?:"\s*|\\)?\z)'


def empty_for_null(bodies: "pa.Array") -> "pa.Array":
    """The bodies, empty ones in the place of NULL.

    A .NET endpoint on PostgreSQL cannot read a NULL: it gives the row back, meets it again, and handles
    nothing more.
    """
    return pc.fill_null(bodies, b"") if bodies.null_count else bodies


def content_types(bodies: "pa.Array") -> "pa.Array":
    """The content type of each body, by its beginning: bodies may be large, and no more of them is read."""
    begins = pc.fill_null(pc.binary_slice(bodies, 0, _LOOKED_AT), b"")
    whole = pc.less_equal(pc.fill_null(pc.binary_length(bodies), 0), _LOOKED_AT)
    xml, json, begun_json = (pc.match_substring_regex(begins, each) for each in (_XML, _JSON, _BEGUN_JSON))
    kind = pc.if_else(pc.if_else(whole, json, begun_json), "application/json", "application/octet-stream")
    return pc.if_else(xml, "text/xml", kind)
