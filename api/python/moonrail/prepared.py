# SPDX-License-Identifier: BSD-2-Clause
"""Prepared transfers: pieces that are checked once and submitted many times."""
from .errors import check, last_error
from .memory import address_of

CHECKED = 1
RESTARTED = 2


class PreparedTransfers:
    """A list of reads or writes of one segment. Segment.prepare_read and prepare_write
    return it. It can be used in a with statement, which releases it at its end:

        with peer.prepare_write([(a, x), (b, y), (c, z)]) as prepared:
            prepared.run()                  # all three
            prepared.submit([0, 2]).result()

    The list keeps the local objects alive. It stays valid when the target's process is
    restarted: the next submission then checks the pieces again. Several threads may use the
    list at the same time.
    """

    def __init__(self, engine, segment, opcode, pieces):
        writable = opcode == 0
        self._engine = engine
        self._keep = (segment, [])
        rows = []
        for i, (local, remote) in enumerate(pieces):
            address, nbytes = address_of(local, writable=writable)
            if isinstance(remote, tuple):
                if nbytes > remote[1]:
                    raise ValueError("piece %d: local memory of %d bytes, remote buffer "
                                     "of %d" % (i, nbytes, remote[1]))
                remote = remote[0]
            self._keep[1].append(local)
            rows.append((address, remote, nbytes))
        self._count = len(rows)
        self._list = None
        self._list = check(engine._handle.prepare(segment._number(), opcode, rows))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_list", None) is not None:
            self.close()

    def __len__(self):
        return self._count

    def __repr__(self):
        return "<PreparedTransfers of %d pieces>" % self._count

    def close(self):
        """Releases the list. Transfers that were submitted continue."""
        made, self._list = self._list, None
        if made is not None:
            self._engine._handle.release_prepared(made)

    def submit(self, indices=None, *, cookie=0, timeout=None):
        """Submits pieces as one request and returns a Transfer.

        indices  a sequence of the pieces' numbers, which may occur several times, or None
                 for all pieces; array.array("I") and numpy.uint32 are not copied
        cookie   a number that Transfer.tasks returns
        timeout  seconds after which the request fails if it has not ended

        If the target's process has been replaced since the last check, the attribute
        restarted of the Transfer, or of the Error that refuses the submission, is True.
        """
        if self._list is None:
            raise ValueError("the prepared transfers were closed")
        checked = 0

        def start(batch):
            nonlocal checked
            code, checked = self._engine._handle.submit_prepared(
                batch, self._list, indices, cookie)
            if code:
                error = last_error()
                error.restarted = bool(checked & RESTARTED)
                raise error
            return code

        transfer = self._engine._start(1, self._keep, timeout, start)
        transfer.checked = bool(checked & CHECKED)
        transfer.restarted = bool(checked & RESTARTED)
        return transfer

    def run(self, indices=None, timeout=None):
        """Submits pieces and waits for their end, as Segment.write does. Returns the number
        of bytes."""
        return self.submit(indices, timeout=timeout)._run()
