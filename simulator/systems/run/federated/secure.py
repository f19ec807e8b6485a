"""Secure aggregation (Bonawitz et al., CCS 2017): the server learns the sum of updates, and no single one.

Four rounds of messages: clients send public keys; they send shares of two secrets to each other, encrypted, through the
server; they send their updates under masks that cancel in the sum; those that are still there reveal shares, from which
the server finds the masks of clients that dropped out, and each client's own mask. Here are bytes, messages and seconds
of each, for a group of n clients.
"""

from math import floor
from typing import Annotated

from pydantic import Field

from ...tables import Rate, Size, Table


class Secure(Table):
    """Secure aggregation (Bonawitz et al., CCS 2017): the server learns the sum of updates, and no single one."""

    key: Size = Field(32, description="bytes of a public key (a_K in the paper)")
    share: Size = Field(32, description="bytes of an encrypted share of a secret (a_S in the paper)")
    bits: Annotated[int, Field(gt=0, le=64)] = Field(16, description="bits of each value of an update without masks")
    threshold: Annotated[float, Field(gt=0, lt=1)] = Field(
        2 / 3, description="more than this share of a group's clients must deliver their update, to remove the masks"
    )
    mask: Rate | None = Field(None, description="bytes of masks that a client makes per second (default: no time)")
    unmask: Rate | None = Field(None, description="bytes of masks that a server makes per second (default: no time)")

    def masked_bytes(self, update_bytes: float, clients: int) -> float:
        """Bytes of an update with masks: values are sums modulo R = n (2^bits - 1) + 1 (CCS 2017, section 7)."""
        return update_bytes * (clients * (2**self.bits - 1)).bit_length() / self.bits

    def setup_bytes(self, clients: int) -> tuple[int, int, int, int]:
        """What a client sends and receives before training: keys sent, received, shares sent, received.

        Two keys of its own against those of all others; for each other client one share of each of two secrets
        (CCS 2017, rounds 0 and 1).
        """
        others = clients - 1
        return 2 * self.key, 2 * others * self.key, 2 * others * self.share, 2 * others * self.share

    def client_bytes(self, update_bytes: float, clients: int) -> float:
        """Bytes that a client sends and receives: 2n a_K + (5n - 4) a_S + m log2 R (CCS 2017, section 7)."""
        return sum(self.setup_bytes(clients)) + clients * self.share + self.masked_bytes(update_bytes, clients)

    def server_bytes(self, update_bytes: float, clients: int) -> float:
        """Bytes of all clients, which all pass the server: O(n^2 + m n) (CCS 2017, section 7)."""
        return clients * self.client_bytes(update_bytes, clients)

    def share_messages(self, clients: int) -> int:
        """Encrypted shares that the server forwards, one from each client to each other: n (n - 1)."""
        return clients * (clients - 1)

    def needed(self, clients: int) -> int:
        """Clients that must deliver (t in the paper): floor(2n / 3) + 1 against clients that side with the server."""
        return floor(round(self.threshold * clients, 6)) + 1

    def mask_s(self, update_bytes: float, clients: int) -> float:
        """Seconds for the masks of one update: one for each other client and one of its own (CCS 2017, section 7)."""
        return clients * self.masked_bytes(update_bytes, clients) / self.mask if self.mask else 0.0

    def unmask_s(self, update_bytes: float, clients: int, delivered: int, missing: int) -> float:
        """Seconds in which the server removes masks: one for each update that came, and one for each pair of such an
        update with one that is missing though its client had sent shares (CCS 2017, section 7).
        """  # fmt: skip
        masks = delivered * (1 + missing)
        return masks * self.masked_bytes(update_bytes, clients) / self.unmask if self.unmask else 0.0
