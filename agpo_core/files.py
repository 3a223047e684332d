"""Read a text file, or say what is wrong with it."""

from pathlib import Path


def text_of(path: Path) -> str:
    """A file as text.

    Raises:
        ValueError: the file is empty, is not UTF-8, or holds a NUL character, as a file that was cut off may; the
            message names the line.
    """
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line} is not UTF-8 text ({error.reason}, byte {error.start})") from error
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{path}, line {line} holds a NUL character, which is not text")
    return text
