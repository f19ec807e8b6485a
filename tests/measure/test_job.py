import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.job import Place, first_host

TORCHRUN = {
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "25001",
    "SLURM_STEP_NODELIST": "gpu[007-010,12]",
}


def test_alone_without_a_launcher():
    assert Place.from_environment({}) == Place(0, 1, 0, 0, "127.0.0.1", 0, False)


def test_torchrun_says_all():
    assert Place.from_environment(TORCHRUN) == Place(9, 16, 1, 1, "10.0.0.1", 29500, True)


def test_torchrun_under_srun_wins():
    assert Place.from_environment(SLURM | TORCHRUN) == Place.from_environment(TORCHRUN)


def test_slurm_says_all_but_the_port():
    assert Place.from_environment(SLURM) == Place(5, 8, 1, 1, "gpu007", 20_000 + 25001 % 12_000, False)


def test_what_the_user_exports_wins_over_slurms_nodes():
    place = Place.from_environment(SLURM | {"MASTER_ADDR": "10.1.1.1", "MASTER_PORT": "1234"})
    assert (place.host, place.port) == ("10.1.1.1", 1234)


def test_a_batch_script_is_no_task():
    batch = {key: value for key, value in SLURM.items() if key != "SLURM_STEP_NODELIST"}
    assert Place.from_environment(batch) == Place()


def test_a_variable_that_is_no_number_is_one_line():
    with pytest.raises(ValueError, match="WORLD_SIZE = 'many': expected a number in the environment"):
        Place.from_environment(TORCHRUN | {"WORLD_SIZE": "many"})


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("gpu007", "gpu007"),
        ("gpu[007-010,12]", "gpu007"),
        ("gpu[3]", "gpu3"),
        ("a-1,b-2", "a-1"),
        ("rack[1-2]-node", "rack1-node"),
        ("localhost", "localhost"),
    ],
)
def test_first_host_of_a_node_list(nodes, host):
    assert first_host(nodes) == host


def test_a_restart_by_torchrun_meets_anew():
    assert Place.from_environment(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2"}).epoch == 2
