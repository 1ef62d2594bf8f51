"""Large tables row by row on two devices of one process, which is started here: the same as on one."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import jax, numpy as np
from tests.tables.test_live import CONTROLS, PARAMETERS, STATES, expect, follow, push, random_rows, sparse, spread
from npro_aif.shards import Shards, laid_over
from npro_aif.tables import live
from npro_aif.tables.labels import find_labels
from npro_aif.tables.index import IndexEmission
from npro_aif.tables.joint import merge_certain

live.ROW_BY_ROW = 0
shards = Shards(jax.sharding.Mesh(np.asarray(jax.devices()), ("parameter",)))
assert shards.count == 2
tables = np.random.default_rng(0).integers(2, size=(2, 1, PARAMETERS, STATES))

def everything(rows, mass, policy, value, tables):
    sites = {name: IndexEmission(table, 3) for name, table in zip("ab", tables)}
    labels = find_labels(certain, sites, PARAMETERS, STATES)
    moved = [function(rows, mass, policy, value) for function in (push, follow, expect, spread)]
    return moved, [labels.evidence(mass, joint=joint) for joint in (False, True)], labels.predict(mass)

def laid(*arguments):
    with laid_over(shards):
        return everything(*arguments)

sites = {name: IndexEmission(jax.numpy.asarray(table), 3) for name, table in zip("ab", tables)}
certain = IndexEmission(merge_certain(sites, jax.numpy.arange(STATES)[:, None], 1).index, 4)
tables_of_mass = sparse(STATES, PARAMETERS), sparse(STATES, CONTROLS, seed=1), sparse(STATES, PARAMETERS, seed=2)
arguments = random_rows(2), *tables_of_mass, tables
whole, parted = jax.jit(everything)(*arguments), jax.jit(laid)(*arguments)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), whole, parted)
print("the same")
"""


def test_two_devices_find_what_one_finds() -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_FLAGS": flags},
        cwd=Path(__file__).parents[2],
        timeout=300,
        check=False,
    )
    assert done.stdout.strip() == "the same", done.stderr[-3000:]
