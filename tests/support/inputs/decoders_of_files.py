"""What people and other programs write: configurations, results, data, certificates, pages asked for."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.config import load_config as load_aggregator_config
from dcfpca import web_server
from dcfpca.errors import BadMessage
from dcfpca.identity import Identity, Role
from dcfpca.operator.connection import connect_settings
from dcfpca.pki.authority import CertificateRequest, new_request, read_request
from dcfpca.pki.ca_directory import Authority, create_authority, issue_certificate, list_records, revoke_certificates
from dcfpca.pki.keys import load_private_key, new_private_key
from dcfpca.pki.revocation import load_revocations
from dcfpca.pki.trust import verify_peer
from participant.config import load_config as load_participant_config
from participant.data.data_config import DataTable
from participant.data.facts import measure
from participant.data.readers import open_matrix
from participant.results.reading import load_features, load_model, read_manifests
from tests.support.inputs.decoding import Decoder, from_file
from tests.support.paths import ROOT

NOW = datetime.now(UTC)


def aggregator_config(folder: Path) -> Decoder:
    sound = (ROOT / "deploy/config/aggregator.toml").read_bytes()
    return Decoder(sound, from_file(folder / "aggregator.toml", load_aggregator_config))


def participant_config(folder: Path) -> Decoder:
    sound = (ROOT / "deploy/config/participant.toml").read_bytes()
    return Decoder(sound, from_file(folder / "participant.toml", load_participant_config))


def operator_config(folder: Path) -> Decoder:
    nothing: dict[str, str | None] = dict.fromkeys(("aggregator", "ca", "cert", "key"))
    sound = (ROOT / "deploy/config/operator.toml").read_bytes()
    return Decoder(sound, from_file(folder / "operator.toml", lambda path: connect_settings(nothing, path)))


def manifest(folder: Path) -> Decoder:
    sound = (
        b'{"run": "r", "method": "subspace", "rounds": 3, "rank": 2, "outcome": "done", "files": {"L.npy": {}}, '
        b'"spec": {"features": ["a", "b"]}}'
    )
    (folder / "r").mkdir()

    def read(path: Path) -> object:
        return read_manifests(folder), load_features(folder, "r")

    return Decoder(sound, from_file(folder / "r" / "manifest.json", read))


def model(folder: Path) -> Decoder:
    (folder / "r").mkdir()
    np.save(folder / "U.npy", np.arange(12.0).reshape(6, 2))
    sound = (folder / "U.npy").read_bytes()
    return Decoder(sound, from_file(folder / "r" / "U.npy", lambda path: load_model(folder, "r")))


def data_file(folder: Path, sound: Path) -> Decoder:
    """A new name each time: HDF5 remembers a file by its place."""
    numbers = itertools.count()

    def read(body: bytes) -> object:
        path = folder / f"{next(numbers)}{sound.suffix}"
        path.write_bytes(body)
        try:
            return measure(open_matrix(DataTable(path=path), folder / "spool").columns, path.name)
        finally:
            path.unlink()

    return Decoder(sound.read_bytes(), read)


MATRIX = np.arange(54.0).reshape(6, 9)


def data_npy(folder: Path) -> Decoder:
    np.save(folder / "sound.npy", MATRIX)
    return data_file(folder, folder / "sound.npy")


def data_npz(folder: Path) -> Decoder:
    np.savez(folder / "sound.npz", M=MATRIX)
    return data_file(folder, folder / "sound.npz")


def data_csv(folder: Path) -> Decoder:
    np.savetxt(folder / "sound.csv", MATRIX, delimiter=",", header=",".join("abcdefghi"), comments="")
    return data_file(folder, folder / "sound.csv")


def data_parquet(folder: Path) -> Decoder:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"c{index}": MATRIX[:, index] for index in range(9)}
    parquet.write_table(arrow.table(columns), folder / "sound.parquet")
    return data_file(folder, folder / "sound.parquet")


def data_hdf5(folder: Path) -> Decoder:
    with pytest.importorskip("h5py").File(folder / "sound.h5", "w") as file:
        file["M"] = MATRIX
    return data_file(folder, folder / "sound.h5")


def web_request(folder: Path) -> Decoder:
    sound = b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9464\r\nAccept: */*\r\n\r\n"

    async def read(body: bytes) -> object:
        reader = asyncio.StreamReader(limit=web_server.LARGEST_REQUEST)
        reader.feed_data(body)
        reader.feed_eof()
        request = await web_server._read(reader)
        if request is None:
            raise BadMessage("no request")
        return web_server._refusal(request, "127.0.0.1", 1)

    return Decoder(sound, lambda body: asyncio.run(read(body)), slow=10)


def authority_in(folder: Path) -> Authority:
    return create_authority(folder / "ca", "acme", NOW)


def site_of(authority: Authority) -> x509.Certificate:
    wanted = CertificateRequest(Identity("acme", Role.PARTICIPANT, "ann"), (), new_private_key().public_key())
    return issue_certificate(authority, wanted, NOW)


def certificate(folder: Path) -> Decoder:
    authority = authority_in(folder)

    def read(body: bytes) -> object:
        return verify_peer(body, [authority.certificate], frozenset(), None, NOW)

    return Decoder(site_of(authority).public_bytes(Encoding.DER), read)


def revocation_list(folder: Path) -> Decoder:
    authority = authority_in(folder)
    site_of(authority)
    revoke_certificates(authority, list_records(authority.directory).records, NOW, x509.ReasonFlags.unspecified)
    read = from_file(folder / "crl.pem", lambda path: load_revocations(path, [authority.certificate], NOW))
    return Decoder(authority.crl_path.read_bytes(), read)


def signing_request(folder: Path) -> Decoder:
    made = new_request(Identity("acme", Role.AGGREGATOR, "agg"), ["agg.example.org"], new_private_key())
    return Decoder(made.public_bytes(Encoding.PEM), lambda body: read_request(body, "agg.csr"))


def private_key(folder: Path) -> Decoder:
    sound = (authority_in(folder).directory / "ca.key").read_bytes()
    return Decoder(sound, from_file(folder / "some.key", load_private_key))


def authority_index(folder: Path) -> Decoder:
    authority = authority_in(folder)
    site_of(authority)
    sound = (authority.directory / "index.json").read_bytes()
    return Decoder(sound, from_file(folder / "index.json", lambda path: list_records(path.parent)))


DECODERS = (
    aggregator_config,
    participant_config,
    operator_config,
    manifest,
    model,
    data_npy,
    data_npz,
    data_csv,
    data_parquet,
    data_hdf5,
    web_request,
    certificate,
    revocation_list,
    signing_request,
    private_key,
    authority_index,
)
