"""Words of a shell script: variables, arithmetic and conditions are followed as far as the text alone says."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, parse_settings, read_recipe
from runcast.simulator.formats.recipes.commands import seal, unseal
from runcast.simulator.formats.recipes.forms import read_arguments
from runcast.simulator.formats.recipes.shell import Variables
from runcast.simulator.formats.recipes.sources import include_sourced

SMALL = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --micro-batch-size 1 --bf16 "
    "--tensor-model-parallel-size $TP --global-batch-size ${BATCH:-64}"
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A", "3"),
        ("${A}x$A", "3x3"),
        ("$NONE", "$NONE"),
        ("${NONE:-8}", "8"),
        ("${NONE-8}", "8"),
        ("${EMPTY:-8}", "8"),
        ("${EMPTY-8}", ""),
        ("${A:-8}", "3"),
        ("${NONE:-${ALSO:-$A}}", "3"),
        ("${NONE:=5}$NONE", "55"),
        ("${NONE:?is needed}", "${NONE:?is needed}"),
        ("${A:+--flag}", "--flag"),
        ("${NONE:+--flag}", ""),
        ("$1_output", "$1_output"),
        ("${1:-8}", "8"),
        ("$((A * 2))", "6"),
        ("$(($A*(2+1) - 1))", "8"),
        ("$(( -7 / 2 ))", "-3"),
        ("$(( -7 % 3 ))", "-1"),
        ("$((A / 0))", "$((A / 0))"),
        ("$((NONE * 2))", "$((NONE * 2))"),
        ("$((2 ** 64))", "$((2 ** 64))"),
        ("$(nproc --all)", "$(nproc --all)"),
    ],
)
def test_what_stands_for_a_variable(text, value):
    variables = Variables({"A": "3", "EMPTY": ""})

    assert unseal(variables.substitute(seal(text))) == value


@pytest.mark.parametrize(
    ("script", "read"),
    [
        ("if [ $A = 3 ]; then {yes}; else {no}; fi", ["yes"]),
        ("if [ $A -gt 3 ]; then {yes}; else {no}; fi", ["no"]),
        ('if [[ "$A" == 4 ]]; then {yes}; elif [[ $A != 4 ]]; then {no}; else {last}; fi', ["no"]),
        ('if [ -z "$NONE" ] && [ -n "$A" ]; then {yes}; fi', ["yes"]),
        ("if [[ -v NONE ]] || [[ $A -eq 4 ]]; then {yes}; else {no}; fi", ["no"]),
        ("if ! [ $A = 3 ]; then {yes}; else {no}; fi", ["no"]),
        ("if [[ ! -z $A ]]; then {yes}; else {no}; fi", ["yes"]),
        ('if [ "$(hostname)" = x ]; then {yes}; else {no}; fi', ["yes", "no"]),
        ("if nvidia-smi; then {yes}; else {no}; fi", ["yes", "no"]),
        ("if [ -f x ]; then {yes}; elif [ $A = 3 ]; then {no}; else {last}; fi", ["yes", "no"]),
        ("if [ $A = 4 ]; then if [ $A = 3 ]; then {yes}; else {no}; fi; fi; {last}", ["last"]),
        ("if (( A * 2 >= 6 )); then {yes}; else {no}; fi", ["yes"]),
        ("if (( A > NONE )); then {yes}; else {no}; fi", ["yes", "no"]),
        ("case $A in 2) {yes} ;; 3|4) {no} ;; *) {last} ;; esac", ["no"]),
        ("case $A in 2) {yes} ;; [4-9]) {no} ;; *) {last} ;; esac", ["last"]),
        ("case $(arch) in x) {yes} ;; *) {no} ;; esac", ["yes", "no"]),
        ("A=4; if [ $A = 3 ]; then {yes}; else {no}; fi", ["yes"]),
        ("B=4; if [ $B = 3 ]; then {yes}; else {no}; fi", ["no"]),
        ('[ "$A" = 1 ] && X="--yes"\n{last}', ["last"]),
        ('(( A - 3 )) && X+=" --yes"\n{last}', ["last"]),
        ('[[ $A == 3 ]] || X+=" --yes"\n{last}', ["last"]),
        ("test $A -eq 1 && X=--yes || X=--no", ["no"]),
        ("[[ $A == 3 && $NONE == 1 ]] && X=--yes\n{last}", ["last"]),
        ("[ $A = 3 ] && {{ X=--yes; }} || {{ X=--no; }}", ["yes"]),
        ("grep -q a b && X=--yes\n{last}", ["yes", "last"]),
        ("if false; then {yes}; elif true; then {no}; else {last}; fi", ["no"]),
        ("F=false; if $F; then {yes}; fi; {last}", ["last"]),
        ("if [[ $A =~ ^1 ]]; then {yes}; elif [[ $A =~ ^(2|3)$ ]]; then {no}; fi", ["no"]),
        ("while [ $A = 1 ]; do {yes}; done; {last}", ["last"]),
        ("for i in 1 2; do {yes}; done; {last}", ["yes", "last"]),
        ("f() {{ {yes}; }}\nfunction g {{\n{no}\n}}\nf; {last}", ["yes", "last"]),
        ('echo "--yes 1"\nprintf "--no"\n{last}', ["last"]),
    ],
)
def test_the_branches_that_a_shell_would_take(script, read):
    text = script.format(yes="x --yes", no="x --no", last="x --last")
    found = [argument.name for argument in read_arguments(text, "x", Variables({"A": "3"}))]

    assert found == read


@pytest.mark.parametrize(
    ("script", "read"),
    [
        ("python - <<'PY'\nprint(\"it's\")\nPY\nx --yes", ["yes"]),
        ("sbatch <<EOF\nsrun x --yes\nEOF\nx --no", ["yes", "no"]),
        ("x --${TYPE:-bf16} --lr 1", ["bf16", "lr"]),
        ("MORE='--yes'\nMORE=\"$MORE --split '9,1'\"\nx --lr 1 $MORE", ["yes", "split", "lr"]),
    ],
)
def test_arguments_wherever_a_script_has_them(script, read):
    assert [argument.name for argument in read_arguments(script, "x")] == read


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("for ((i=1; i<$(nproc); i++))", "for (( i=1 ; i < $(nproc) ; i++ ))"),
        ("for i in $(ls)", "for i in $(ls)"),
        ("while (( i < 4 ))", "while (( i < 4 ))"),
    ],
)
@pytest.mark.parametrize("adds", ["P+='*E'", 'P="$P*E"', 'P="${P}*E"'])
def test_a_loop_that_adds_to_a_variable_is_noted(loop, said, adds):
    variables, text = Variables({}), f"P='*-'\n{loop}; do\n  {adds}\n  Q=1\ndone\nx --hybrid-layer-pattern $P"
    read_arguments(text, "x", variables)
    fixed = Variables({"P": "MMMM"})
    read_arguments(text, "x", fixed)

    assert (variables.grown, fixed.grown) == ({"P": said}, {})


@pytest.mark.parametrize(
    ("loop", "values"),
    [
        ("for ((i=1; i<4; i++)); do", "123"),
        ("for (( i = N ; i > 0 ; i -= 2 ))\ndo", "531"),
        ("for ((i=3; i>=1; --i)); do", "321"),
        ("for i in $(seq 1 3); do", "123"),
        ("for i in `seq 3`; do", None),
        ("for i in $(seq $N); do", "12345"),
        ("for i in {4..2}; do", "432"),
        ("for i in {0..6..3}; do", "036"),
        ("for i in {6..0..3}; do", "630"),
        ("for i in $(seq 1 $N 9); do", "16"),
        ("for i in $(seq 9 -4 1); do", "951"),
        ("for i in $(seq 9 0 1); do", None),
        ("for i in a b; do", "ab"),
        ("for i in *; do", None),
        ("for ((i=0; i<9; i+=0)); do", None),
        ("for ((i=0; i<2000; i++)); do", None),
    ],
)
@pytest.mark.parametrize("adds", ["P+=$i", 'P="${P}$i"'])
def test_a_loop_that_only_assigns_is_read_turn_by_turn(loop, values, adds):
    variables = Variables({})
    found = read_arguments(f"N=5\nP=x\n{loop}\n  {adds}\ndone\nx --split $P", "x", variables)
    assert (found[0].values == (f"x{values}",), "P" in variables.grown) == (values is not None, values is None)


def test_a_loop_that_counts_and_prints_is_noted():
    variables = Variables({})
    read_arguments("N=2\nfor i in 1 2; do\n  N=$((N+2))\n  echo $N\ndone\nx --split $N", "x", variables)
    assert list(variables.grown) == ["N"]


def test_a_loop_that_starts_runs_is_read_once():
    script = "for i in 1 2; do\n  A=$i\n  torchrun pretrain_gpt.py --split 3\ndone"
    assert [argument.name for argument in read_arguments(script, "x")] == ["program", "split"]


@pytest.mark.parametrize(("fixed", "found"), [({}, ["--bf16"]), ({"FP8": "1"}, ["--bf16", "--fp8-format", "--lr"])])
def test_a_variable_may_bring_arguments(fixed, found):
    variables = Variables(fixed)

    read = read_arguments("pretrain_gpt.py --bf16 ${FP8:+--fp8-format hybrid --lr 1}", "r.sh", variables)

    assert ([one.spelled for one in read if one.is_flag], "FP8" in variables.mentioned) == (found, True)


def test_arguments_of_other_programs_are_left_out():
    others = "B=(--seq-length 1)\npython preprocess_data.py ${B[@]} --lr 1\npython convert.py --seq-length 2"
    found = read_arguments(f"A=(--bf16)\n{others}\ntorchrun --nnodes 2 pretrain_gpt.py ${{A[@]}} --lr 3", "x")

    assert [(argument.name, argument.first) for argument in found if argument.name != "program"] == [
        ("bf16", ""),
        ("nnodes", "2"),
        ("lr", "3"),
    ]


def test_a_condition_that_only_a_shell_can_tell_is_named(tmp_path):
    (tmp_path / "r.sh").write_text(f"TP=1\nif nvidia-smi; then TP=2; fi\n{SMALL}")
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100")

    assert 'all branches of "if nvidia-smi" are read, as only a shell can tell' in recipe.assumed


def test_files_that_a_script_reads_count_where_they_lie_beside_it(tmp_path):
    (tmp_path / "common.sh").write_text("TP=2\nsource common.sh")
    (tmp_path / "r.sh").write_text(f'source $(dirname $0)/common.sh\n. "$HERE/other.sh"\n{SMALL}')
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100")

    assert recipe.table["parallel"]["tp"] == 2
    assert "other.sh is not beside the file: what it says is not read" in recipe.assumed


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ('source "${HERE}/conf/${NAME}.sh"', {"NAME": "a/sizes"}),
        ("NAME=a/sizes\n. conf/$NAME.sh", {}),
        ('exec bash "${HERE}/conf/a/sizes.sh" "$@"', {}),
        ("sh conf/a/sizes.sh \\\n  more", {}),
    ],
)
def test_a_script_of_sizes_may_be_named_by_a_variable_or_started(tmp_path, line, settings):
    (tmp_path / "conf/a").mkdir(parents=True)
    (tmp_path / "conf/a/sizes.sh").write_text(f"TP=1\nx {SMALL}")
    (tmp_path / "r.sh").write_text(f"{line}\n")
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100", additions=Additions(settings=settings))

    told = [line for line in recipe.assumed if "beside" in line]
    assert (recipe.config["num_hidden_layers"], told) == (4, [])


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("bash run.sh 16 $N", "16 $N $10"),
        ("sh run.sh '16' --fast", "16 --fast $10"),
        ('bash run.sh "$@"', "${1:-8} ${2-4} $10"),
        ("bash run.sh 16 && sleep 5", "16 ${2-4} $10"),
        ("bash run.sh $2 b", "$2 b $10"),
        ("bash run.sh", "${1:-8} ${2-4} $10"),
    ],
)
def test_a_started_script_has_its_arguments(tmp_path, line, arguments):
    (tmp_path / "run.sh").write_text("set -e\nx ${1:-8} ${2-4} $10")
    assert include_sourced(line, tmp_path) == f"set -e\nx {arguments}"


@pytest.mark.parametrize("own", ["f() { x $1; }\nf 2", "A=$1\nshift\nx $1", "awk '{print $1}'", r"x \$1"])
def test_what_has_arguments_of_its_own_keeps_them(tmp_path, own):
    (tmp_path / "run.sh").write_text(own)
    assert include_sourced("bash run.sh 16", tmp_path) == own


@pytest.mark.parametrize(
    ("line", "given", "nodes"),
    [
        ("#SBATCH --nodes=2 --ntasks-per-node=4", None, 2),
        ("#SBATCH -t 1:00:00 -N 4", None, 4),
        ("#SBATCH --nodes 16", 8, 8),
        ("# SBATCH --nodes 16", None, 1),
        ("#SBATCH --nodes=16\n# runcast: nodes = 2", None, 2),
    ],
)
def test_nodes_are_those_that_a_script_asks_slurm_for(tmp_path, line, given, nodes):
    (tmp_path / "r.sh").write_text(f"{line}\nTP=1\n{SMALL}")

    assert read_recipe(tmp_path / "r.sh", "dgx-h100", given).beside["nodes"] == nodes


def test_a_file_that_is_put_together_of_others_is_told(tmp_path):
    (tmp_path / "r.yaml").write_text("base: &base !include ../common.yaml\nMODEL_ARGS: !reference [base, ARGS]\n")
    with pytest.raises(UserError, match=r"is put together of other files .!include.: give what they make"):
        read_recipe(tmp_path / "r.yaml", "dgx-h100")


def test_a_script_that_is_started_beside_sizes_is_another_run(tmp_path):
    (tmp_path / "other.sh").write_text("x --tensor-model-parallel-size 2")
    (tmp_path / "r.sh").write_text(f"bash other.sh\nTP=1\n{SMALL}")

    assert read_recipe(tmp_path / "r.sh", "dgx-h100").table["parallel"]["tp"] == 1


def test_where_something_is_missing_a_file_that_is_not_there_is_named(tmp_path):
    (tmp_path / "r.sh").write_text(f"source CONFIG.sh\n{SMALL}".replace("--hidden-size", "--hidden-sizes"))
    with pytest.raises(UserError, match=r"CONFIG\.sh: is not beside it, and may say what is missing"):
        read_recipe(tmp_path / "r.sh", "dgx-h100")


def test_a_variable_that_doubles_itself_ends():
    text = "A=xx\n" + "A=$A$A\n" * 100 + "--save $A"

    assert len(read_arguments(text, "x")[0].first) <= 10_000


@pytest.mark.parametrize(
    ("lines", "tp", "batch"),
    [
        (["TP=2"], 2, 64),
        (["TP=2", "BATCH=128"], 2, 128),
        (["TP=2", "global-batch-size=256"], 2, 256),
        (["tensor_model_parallel_size=4"], 4, 64),
        (["--tensor-model-parallel-size=4"], 4, 64),
    ],
)
def test_what_is_set_counts_instead_of_what_the_file_has(tmp_path, lines, tp, batch):
    (tmp_path / "r.sh").write_text(f"BATCH=${{BATCH:-64}}\n{SMALL}")
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100", additions=Additions(settings=parse_settings(lines)))

    assert (recipe.table["parallel"]["tp"], recipe.table["batch"]["global"]) == (tp, batch)


def test_a_variable_that_is_set_is_named_in_the_report(tmp_path):
    (tmp_path / "r.sh").write_text(SMALL)
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100", additions=Additions(settings={"TP": "2"}))

    assert "TP = 2: from --set" in recipe.assumed


def test_trainers_take_no_settings(tmp_path):
    (tmp_path / "r.yaml").write_text("base_model: llama3-8b\nsequence_len: 4096\nmicro_batch_size: 1\n")
    with pytest.raises(
        UserError, match="--set: goes with recipes of megatron, torchtitan, bridge, nemo, verl, slime, not"
    ):
        read_recipe(tmp_path / "r.yaml", "dgx-h100", form="axolotl", additions=Additions(settings={"x": "1"}))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "--tensor-model-parallel-size = '[$]TP': the file assigns no TP; give --set TP=VALUE"),
        ({"TP": "2", "BACTH": "8"}, "--set BACTH: neither a variable of .* nor an argument .*; did you mean BATCH?"),
        ({"TP": "2", "NUM_LAYERS": "8"}, "--set NUM_LAYERS: neither a variable"),
        ({"tensor-model-parallel-size": "x"}, "--set tensor-model-parallel-size = 'x': expected a whole number"),
    ],
)
def test_what_is_not_there_to_set_is_one_line(tmp_path, settings, line):
    (tmp_path / "r.sh").write_text(SMALL)
    with pytest.raises(UserError, match=line) as refused:
        read_recipe(tmp_path / "r.sh", "dgx-h100", additions=Additions(settings=settings))

    assert len(refused.value.faults) == 1


def test_a_setting_has_a_name_and_a_value():
    with pytest.raises(UserError, match="--set = 'TP': expected NAME=VALUE, such as TP=8 or seq-length=4096"):
        parse_settings(["TP"])
