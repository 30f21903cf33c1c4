"""Exercises of lesson 04: right answers in more than one style pass, each typical mistake gets its own hint."""

from __future__ import annotations

import pytest
from build_notebooks import Lesson, learner_notebook, read_source
from exercise_cells import Cells

from ddp_helpers import check

LESSON = Lesson("04_dataparallel_or_ddp")
SCRIPTS = {"04.1": "scripts/04_digits_ddp.py", "04.3": "scripts/04_counter.py"}
CELLS = Cells(LESSON, SCRIPTS)
checked = CELLS.checked
pytestmark = pytest.mark.usefixtures("notebook_folder")


def edited(*changes: tuple[str, str]) -> str:
    """The lesson's migrated script with some of its lines changed."""
    return CELLS.edited("04.1", *changes)


def counter(first: str, then: str) -> str:
    """The lesson's counting model with these lines in __init__ and forward."""
    return CELLS.with_solutions("04.3", first + "\n", then + "\n")


# ---- 04.1 -----------------------------------------------------------------------------------------------------------

SAMPLER = "sampler = DistributedSampler(dataset, shuffle=False)\n"
LOADER = "loader = DataLoader(dataset, batch_size=args.batch // dist.get_world_size(), sampler=sampler)\n"
WHOLE = "loader = DataLoader(dataset, batch_size=args.batch)\n"
JOIN = 'dist.init_process_group("nccl" if device.type == "cuda" else "gloo")\n'
WRAP = "model = DistributedDataParallel(model.to(device))\n"
LOSS = "    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))\n"
SAVE = "if dist.get_rank() == 0:\n    torch.save(model.module.state_dict(), args.save)\n"
SAVED = "torch.save(model.module.state_dict(), args.save)"

OTHER_MIGRATIONS = {
    "each rank cuts its part from the whole batch": edited(
        (SAMPLER, ""),
        (LOADER, WHOLE),
        (
            LOSS,
            "    x, y = (part.chunk(dist.get_world_size())[dist.get_rank()] for part in (x, y))\n" + LOSS,
        ),
    ),
    "the data are dealt, the last rank saves, the wrapper is kept apart": edited(
        (SAMPLER, "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"),
        (
            LOADER,
            "loader = DataLoader(dataset[rank::world] and TensorDataset(*dataset[rank::world]), args.batch // world)\n",
        ),
        (WRAP, "plain = model.to(device)\nmodel = DistributedDataParallel(plain)\n"),
        (
            SAVE,
            "if rank == world - 1:\n    file = open(args.save, 'wb')\n    torch.save(plain.state_dict(), file)\n",
        ),
    ),
    "gradients averaged by hand": edited(
        (WRAP, ""),
        (
            "    loss.backward()\n",
            "    loss.backward()\n    for p in model.parameters(): dist.all_reduce(p.grad, dist.ReduceOp.AVG)\n",
        ),
        (SAVED, "torch.save(model.state_dict(), args.save)"),
    ),
}


@pytest.mark.parametrize("script", OTHER_MIGRATIONS.values(), ids=OTHER_MIGRATIONS)
def test_a_migration_in_another_style_passes(script: str) -> None:
    verdict = checked("04.1", script)
    assert verdict.passed, verdict


MIGRATIONS = {
    "DataParallel as it was": (
        CELLS.text("scripts/04_digits_dp.py"),
        "no rank joined a process group: 2 processes train 2 models",
    ),
    "nobody cuts the batch": (
        edited((SAMPLER, ""), (LOADER, WHOLE)),
        "rank 0 computes all 96 samples of every step",
    ),
    "the batch of a process is taken for that of the step": (
        edited((LOADER, "loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler)\n")),
        "takes 96 samples a step, so that a step has 192 in all",
    ),
    "the batch is divided and the data are not": (
        edited((SAMPLER, ""), (LOADER, "loader = DataLoader(dataset, args.batch // dist.get_world_size())\n")),
        "goes through all 960 samples, 48 at a time: 20 steps in place of 10",
    ),
    "two epochs": (
        edited(("in loader:", "in [*loader, *loader]:")),
        "goes through its share 2 times. How often did DataParallel see each sample?",
    ),
    "each rank has a stretch of the file": (
        edited(
            (SAMPLER, "rank, world = dist.get_rank(), dist.get_world_size()\n"),
            (LOADER, "loader = DataLoader([*dataset][rank * 960 // world:][:960 // world], args.batch // world)\n"),
        ),
        "in step 0 the ranks together take other samples than DataParallel did",
    ),
    "shuffled": (
        edited(("shuffle=False", "shuffle=True")),
        "in step 0 the ranks together take other samples than DataParallel did",
    ),
    "all ranks have rank 0's share": (
        edited((SAMPLER, "sampler = DistributedSampler(dataset, dist.get_world_size(), 0, shuffle=False)\n")),
        "With 2 processes, ranks 0 and 1 compute the same samples in every step",
    ),
    "the local rank deals the data": (
        edited(
            (
                SAMPLER,
                "rank = int(os.environ['LOCAL_RANK'])\n"
                "sampler = DistributedSampler(dataset, dist.get_world_size(), rank, shuffle=False)\n",
            )
        ),
        "On 2 nodes with 2 processes each, ranks 0 and 2 compute the same samples",
    ),
    "the local rank joins": (
        edited(
            (
                JOIN,
                "world = int(os.environ['WORLD_SIZE'])\n"
                "dist.init_process_group('gloo', rank=int(os.environ['LOCAL_RANK']), world_size=world)\n",
            )
        ),
        "rank 2 (local rank 0) would join as rank 0",
    ),
    "two processes written in": (
        edited((JOIN, "dist.init_process_group(rank=int(os.environ['RANK']), world_size=2)\n")),
        "would join a world of 2",
    ),
    "no wrapper": (
        edited((WRAP, "model.to(device)\n"), (SAVED, "torch.save(model.state_dict(), args.save)")),
        "ranks 0 and 1 end with different models",
    ),
    "what is inside the wrapper is called": (
        edited((LOSS, LOSS.replace("model(", "model.module("))),
        "ranks 0 and 1 end with different models",
    ),
    "the loss is multiplied": (
        edited((LOSS, LOSS + "    loss = loss * dist.get_world_size()\n")),
        "those of a learning rate times 2. Something is multiplied",
    ),
    "averaged twice": (
        edited((LOSS, LOSS + "    loss = loss / dist.get_world_size()\n")),
        "those of a learning rate times 0.5. Something is divided",
    ),
    "another optimizer": (edited(("optim.SGD(", "optim.Adam(")), "Which line of the script is not as it was?"),
    "all save": (edited((SAVE, f"{SAVED}\n")), "ranks 0 and 1 all save, into one file"),
    "one rank of each node saves": (
        edited((SAVE, f"if os.environ['LOCAL_RANK'] == '0':\n    {SAVED}\n")),
        "On 2 nodes with 2 processes each, ranks 0 and 2 all save",
    ),
    "the wrapper is saved": (
        edited((SAVED, "torch.save(model.state_dict(), args.save)")),
        "'module.0.weight' and so on, and a plain model asks for '0.weight'",
    ),
    "the module itself is saved": (
        edited((SAVED, "torch.save(model.module, args.save)")),
        "it holds a Sequential. Save a state_dict",
    ),
    "nobody saves": (edited((SAVE, "")), "no rank saved the model"),
    "saved elsewhere": (edited((SAVED, SAVED.replace("args.save", "'mine.pt'"))), "not to where --save says"),
    "not joined before wrapping": (edited((JOIN, "")), "Default process group has not been initialized"),
}


@pytest.mark.parametrize(("script", "hint"), MIGRATIONS.values(), ids=MIGRATIONS)
def test_each_mistake_of_a_migration_gets_its_own_hint(script: str, hint: str) -> None:
    verdict = checked("04.1", script)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in MIGRATIONS.values() if other != hint and other in verdict.text]


# ---- 04.2 -----------------------------------------------------------------------------------------------------------

P, X, Y = 4 * 25_557_032, 4 * 3200 * 150_528, 4 * 3200 * 1000
DP, RING = 14 * P + 7 / 8 * (X + 2 * Y), 7 / 4 * P

BYTES = {
    "no gradients come back": (DP - 7 * P, RING, "the parameters or the gradients. What goes out"),
    "no parameters go out and no inputs": (
        DP - 7 * P - 7 / 8 * X,
        RING,
        "the inputs and the parameters or the gradients",
    ),
    "no inputs": (DP - 7 / 8 * X, RING, "missing: the inputs. Where does the batch lie"),
    "the outputs go one way": (DP - 7 / 8 * Y, RING, "the outputs or the outputs' gradients. The loss is on GPU 0"),
    "no outputs at all": (DP - 7 / 4 * Y, RING, "the outputs and the outputs' gradients. Where is the loss"),
    "the whole batch travels": (DP + X / 8, RING, "the inputs are counted for all 8 GPUs"),
    "eight copies of the parameters": (DP + P, RING, "counted for all 8 GPUs"),
    "numbers, not bytes": (DP / 4, RING, "How many bytes has a float32?"),
    "something else": (5.0, RING, "no sum of the five things"),
    "the ring once": (DP, RING / 2, "bytes are half of it: the ring goes round twice"),
    "all ranks together": (DP, RING * 8, "are what all 8 ranks send together"),
    "the gradients once": (DP, P, "bytes are one copy of the gradients"),
    "the gradients twice": (DP, 2 * P, "which one stays?"),
    "a copy to each": (DP, 7 * P, "would be a copy to each of the others"),
    "the ring in numbers": (DP, RING / 4, "DDP: 44,724,806 numbers, that is right"),
    "the ring and the inputs": (DP, RING + X / 8, "with DDP no inputs and no outputs travel"),
}


@pytest.mark.parametrize(("dataparallel", "ddp", "hint"), BYTES.values(), ids=BYTES)
def test_a_wrong_number_of_bytes_is_told_which_part_is_missing(dataparallel: float, ddp: float, hint: str) -> None:
    verdict = check("04.2", {"DataParallel": dataparallel, "DDP": ddp})
    assert verdict.kind == "wrong" and hint in verdict.text, verdict


@pytest.mark.parametrize("exact", [float, round])
def test_the_right_numbers_pass_as_integers_too(exact: type) -> None:
    assert check("04.2", {"DataParallel": exact(DP), "DDP": exact(RING)}).passed


def test_the_lessons_own_count_passes_and_its_stub_is_not_attempted() -> None:
    for read, kind in ((read_source, "passed"), (learner_notebook, "unattempted")):
        cell = next(cell for cell in read(LESSON).cells if cell.source.startswith("answer = {"))
        names: dict[str, object] = {}
        exec(cell.source, names)
        assert check("04.2", names["answer"]).kind == kind


def test_an_answer_of_another_kind_is_told_what_is_asked() -> None:
    assert "a dict with two numbers" in check("04.2", 3).text
    assert "DDP: the answer is a number of bytes; yours is '3'" in check("04.2", {"DataParallel": 1, "DDP": "3"}).text


# ---- 04.3 -----------------------------------------------------------------------------------------------------------

BUFFER = 'self.register_buffer("seen", torch.zeros((), dtype=torch.long))'
ADD = "if self.training:\n    {}"
ALL = "samples = torch.tensor(len(x))\n    dist.all_reduce(samples)\n    self.seen += samples"

OTHER_COUNTERS = {
    "objects are gathered, and added to a new buffer of floats": counter(
        "self.register_buffer('seen', torch.zeros(1))",
        """
        if torch.is_grad_enabled() and self.training:
            sizes = [None] * dist.get_world_size()
            dist.all_gather_object(sizes, x.shape[0])
            self.seen = self.seen + sum(sizes)
        """,
    ),
    "a parameter that is not trained": counter(
        "self.seen = nn.Parameter(torch.zeros(()), requires_grad=False)",
        """
        if self.training:
            ones = torch.ones(len(x)).sum()
            dist.all_reduce(ones)
            self.seen.data.add_(ones)
        """,
    ),
    "a number, saved as extra state": counter(
        "self.seen = 0",
        """
        if self.training:
            samples = torch.tensor(len(x))
            dist.all_reduce(samples)
            self.seen += samples.item()
        """,
    ).replace(
        "    def forward",
        "    def get_extra_state(self):\n        return self.seen\n\n"
        "    def set_extra_state(self, state):\n        self.seen = state\n\n    def forward",
    ),
}

COUNTERS = {
    "an attribute of each rank": (
        counter("self.seen = 0", ADD.format("self.seen += len(x)")),
        "Each rank counts its own",
    ),
    "a buffer of each rank": (
        counter(BUFFER, ADD.format("self.seen += len(x)")),
        "its own last batch of 8: before each forward, DDP copies rank 0's buffers",
    ),
    "the count is reduced in place of the batch": (
        counter(BUFFER, ADD.format("self.seen += len(x)\n    dist.all_reduce(self.seen)")),
        "is added again in every step",
    ),
    "times the world size": (
        counter("self.seen = 0", ADD.format("self.seen += len(x) * dist.get_world_size()")),
        "is right only when all batches have the same size",
    ),
    "steps": (counter(BUFFER, ADD.format("self.seen += 1")), "Steps are counted"),
    "evaluation too": (
        counter(BUFFER, ALL.replace("\n    ", "\n")),
        "How does a module know that it is being trained?",
    ),
    "evaluation with gradients": (
        counter(BUFFER, ADD.format(ALL).replace("self.training", "torch.is_grad_enabled()")),
        "How does a module know that it is being trained?",
    ),
    "not saved": (
        counter(
            "self.seen = 0",
            ADD.format(ALL + ".item()"),
        ),
        "What does a module save besides its parameters?",
    ),
    "a buffer that is not saved": (
        counter(BUFFER.replace("long)", "long), persistent=False"), ADD.format(ALL)),
        "What does a module save besides its parameters?",
    ),
    "a list of batches": (
        counter("self.seen = []", ADD.format("self.seen.append(len(x))")),
        "which is no number of samples",
    ),
    "no counter": (counter("pass", "pass"), "has no attribute `seen`"),
    "never added to": (counter(BUFFER, "pass"), "Nothing is counted"),
    "two samples for one": (
        counter(BUFFER, ADD.format(ALL + " * 2")),
        "All ranks agree, on a wrong number",
    ),
    "only rank 0 counts": (
        counter("self.seen = 0", ADD.format("self.seen += len(x) if dist.get_rank() == 0 else 0")),
        "The ranks do not agree",
    ),
}


@pytest.mark.parametrize("script", OTHER_COUNTERS.values(), ids=OTHER_COUNTERS)
def test_a_counter_in_another_style_passes(script: str) -> None:
    verdict = checked("04.3", script)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("script", "hint"), COUNTERS.values(), ids=COUNTERS)
def test_each_mistake_of_a_counter_gets_its_own_hint(script: str, hint: str) -> None:
    verdict = checked("04.3", script)
    assert verdict.kind == "wrong" and hint in verdict.text, verdict
    assert not [other for _, other in COUNTERS.values() if other != hint and other in verdict.text]


# ---- neither passes on what it left before --------------------------------------------------------------------------


def test_a_check_runs_the_script_anew_each_time() -> None:
    assert checked("04.3", CELLS.solved("04.3")).passed
    assert not checked("04.3", COUNTERS["steps"][0]).passed
