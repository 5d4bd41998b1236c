"""zarr folders of remote file systems. This module is imported only where zarr is installed."""

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore

from dmlcpu.batch.files.base import FileError
from dmlcpu.batch.files.bounded_zarr import Limited
from dmlcpu.batch.files.remote import file_system, is_web, options_of, reached


class RemoteStore(Limited, FsspecStore):
    """A remote folder."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return an object or a part of it; None if there is none."""
        is_range = isinstance(byte_range, RangeByteRequest | SuffixByteRequest)
        most = self.most_of_range if is_range else self.most
        part = byte_range or RangeByteRequest(0, most + 1)
        if isinstance(part, OffsetByteRequest):
            part = RangeByteRequest(part.offset, part.offset + most + 1)
        size = part.suffix if isinstance(part, SuffixByteRequest) else part.end - part.start
        with reached():
            found = await super().get(key, prototype, part) if size <= most + 1 else None
        if is_range and found is not None and len(found) > size:
            raise FileError(f"all of {key}, where {size:,} bytes were requested", "a server that sends parts of files")
        if size > most + 1 or (found is not None and len(found) > most):
            raise FileError(f"{key}, which has more than {most:,} bytes", "what the shape of the chunks needs")
        return found


def store_of(url: str) -> FsspecStore:
    """Return the folder at a URL."""
    file_system(url)  # which says what is not installed
    with reached():
        store = RemoteStore.from_url(url, storage_options=options_of(url), read_only=True)
    store.supports_listing = not is_web(url)
    return store
