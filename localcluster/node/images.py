"""Bring images into a node: from a builder's store, from a file, or made here."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

from localcluster.errors import ImageError

from .requirements import find

_PLATFORMS = {"x86_64": "amd64", "aarch64": "arm64"}


def import_file(archive: Path, socket: Path) -> None:
    """Import the images of an OCI or docker archive into the containerd behind `socket`.

    Raises:
        ImageError: containerd refused the archive.
    """
    _run([_tool("ctr"), "--address", str(socket), "-n", "k8s.io", "images", "import", str(archive)])


def export(image: str, archive: Path) -> None:
    """Write an image of buildah's store into an OCI archive.

    Raises:
        ImageError: There is no buildah, or no such image.
    """
    _run([_tool("buildah"), "push", "--quiet", image, f"oci-archive:{archive}:{image}"])


def import_built(image: str, sockets: list[Path]) -> None:
    """Bring an image of buildah's store into nodes."""
    with tempfile.TemporaryDirectory(prefix="rowlock-image-") as folder:
        archive = Path(folder) / "image.tar"
        export(image, archive)
        for socket in sockets:
            import_file(archive, socket)


def write_single(program: Path, image: str, archive: Path, machine: str) -> None:
    """Write a docker archive of an image that holds one static program and runs it.

    Args:
        program: The program.
        image: Name and tag of the image.
        archive: The file to write.
        machine: As `platform.machine` calls it.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, program.name, program.read_bytes(), mode=0o755)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": _PLATFORMS.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _tool(name: str) -> str:
    path = find(name)
    if path is None:
        raise ImageError(f"{name} is missing: apt-get install --no-install-recommends {name}")
    return str(path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"{' '.join(command[:3])} … failed: {done.stderr.strip()}")
