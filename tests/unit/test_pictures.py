"""Pictures: what is drawn, where, and in which colour."""

import base64
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Arc, FancyBboxPatch, Rectangle
from matplotlib.text import Text
from picture_page import assert_texts_fit

from ddp_helpers import pictures
from ddp_helpers.doctor import Machine, recorded_names
from ddp_helpers.doctor.machine import GIB, Cpu, Gpu, Link
from ddp_helpers.pictures.arrival import WHOLE, find_torn
from ddp_helpers.pictures.palette import ALARM, PAPER, contrast
from ddp_helpers.pictures.processes import split_into_nodes
from ddp_helpers.pictures.ranges import ranges, short


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def text_at(figure: Figure, wanted: str) -> Text:
    return next(text for text in figure.axes[0].texts if text.get_text() == wanted)


def chip(figure: Figure, wanted: str) -> str:
    """The colour of the smallest box that holds this text."""
    x, y = text_at(figure, wanted).get_position()
    holding = [
        box for box in figure.axes[0].patches if isinstance(box, FancyBboxPatch) and box.get_bbox().contains(x, y)
    ]
    return to_hex(min(holding, key=lambda box: box.get_width() * box.get_height()).get_facecolor()).upper()


def run_of(*nodes: int) -> Any:
    """A run's ranks: `run_of(2, 2)` is two nodes of two."""
    ranks, first = [], 0
    for count in nodes:
        ranks += [SimpleNamespace(rank=first + n, local_rank=n, pid=5000 + first + n) for n in range(count)]
        first += count
    return SimpleNamespace(ranks=ranks)


def gpu_machine(kinds: dict[tuple[int, int], str], models: list[str] | None = None) -> Machine:
    count = 1 + max(b for _, b in kinds)
    names = models or ["NVIDIA A100"] * count
    return Machine(
        "test",
        torch_cuda="13.0",
        cpus=tuple(Cpu(n, n, n // 8, n // 8) for n in range(16)),
        gpus=tuple(Gpu(n, name, 40 * GIB, 0, numa=2 * n // count) for n, name in enumerate(names)),
        links=tuple(Link(a, b, kind) for (a, b), kind in kinds.items()),
    )


EVERY_PICTURE = {
    "here": lambda: pictures.topology(),
    "here with 10 ranks": lambda: pictures.topology(ranks=10),
    "many cores": lambda: pictures.topology(Machine("big", cpus=tuple(Cpu(n, n % 64, 0, n % 2) for n in range(128)))),
    "one core": lambda: pictures.topology(Machine("small", cpus=(Cpu(0, 0),))),
    "two nodes": lambda: pictures.processes(run_of(2, 2)),
    "sixteen ranks": lambda: pictures.processes(run_of(8, 8)),
    "one rank": lambda: pictures.processes(run_of(1)),
    "torn": lambda: pictures.torn_lines("\n".join(["hello 0", "hello" * 40, ""] * 300), ["hello 0"]),
    "nothing": lambda: pictures.torn_lines("", ["hello 0"]),
    "pairs": lambda: pictures.topology(gpu_machine({(0, 1): "NV4", (0, 2): "SYS", (1, 2): "SYS"})),
    **{name: (lambda name=name: pictures.topology(name)) for name in recorded_names()},
}


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_no_text_leaves_the_page_and_no_two_texts_touch(name: str) -> None:
    figure = EVERY_PICTURE[name]()
    assert_texts_fit(figure)


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_every_picture_brings_a_white_page_and_readable_text(name: str) -> None:
    figure = EVERY_PICTURE[name]()
    assert to_hex(figure.get_facecolor()).upper() == PAPER
    for text in figure.axes[0].texts:
        if text.get_text() and to_hex(text.get_color()).upper() != "#FFFFFF":  # white ink: tested with the palette
            assert contrast(to_hex(text.get_color()), "#F3F3F3") >= 4.5


def test_pictures_leave_pyplot_alone() -> None:
    script = (
        "import sys; from ddp_helpers import pictures; assert 'matplotlib' not in sys.modules; "
        "pictures.topology('8-gpu-server'); print('matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "False", run.stderr


# -- palette ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", range(20))
def test_ink_on_a_ranks_colour_is_readable(rank: int) -> None:
    assert contrast(pictures.colour(rank), pictures.ink(rank)) >= 4.5
    assert pictures.ink(rank) in ("#000000", "#FFFFFF")


def test_contrast_agrees_with_the_standards_own_examples() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#FFFFFF", "#FFFFFF") == 1
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)  # WCAG's well-known near miss


def test_eight_ranks_have_eight_colours_and_the_ninth_starts_again() -> None:
    assert len({pictures.colour(rank) for rank in range(8)}) == 8
    assert pictures.colour(8) == pictures.colour(0)


@pytest.mark.parametrize("matrix", ["protan", "deutan"])
def test_ranks_stay_apart_for_colour_blind_eyes(matrix: str) -> None:
    # Machado, Oliveira and Fernandes 2009, severity 1.0, applied to linear RGB
    seen = {
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    }[matrix]

    def as_seen(colour: str) -> list[float]:
        channels = [(int(colour[start : start + 2], 16) / 255) ** 2.2 for start in (1, 3, 5)]
        return [max(0.0, sum(w * c for w, c in zip(row, channels, strict=True))) ** (1 / 2.2) for row in seen]

    for rank in range(8):
        for other in range(rank + 1, 8):
            a, b = as_seen(pictures.colour(rank)), as_seen(pictures.colour(other))
            apart = sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5
            assert apart > (0.25 if max(rank, other) < 4 else 0.19), (rank, other)


# -- topology --------------------------------------------------------------------------------------------------------


def test_each_rank_sits_on_its_gpu_in_its_colour() -> None:
    figure = pictures.topology("8-gpu-server")
    for rank in range(8):
        assert chip(figure, f"GPU {rank}\nrank {rank}") == pictures.colour(rank)
    across = [text_at(figure, f"GPU {rank}\nrank {rank}").get_position()[0] for rank in range(8)]
    assert across == sorted(across)


def test_gpus_stand_in_the_box_of_their_numa_node() -> None:
    figure = pictures.topology("8-gpu-server")
    nodes = [text_at(figure, f"processor, NUMA node {node}").get_position()[0] for node in (0, 1)]
    for rank in range(8):
        x = text_at(figure, f"GPU {rank}\nrank {rank}").get_position()[0]
        assert abs(x - nodes[rank // 4]) < abs(x - nodes[1 - rank // 4])
    assert "cores 0–55, 112–167" in texts(figure)
    assert "SYS" in texts(figure)


def test_nvlink_between_all_is_one_bar_that_every_gpu_reaches() -> None:
    figure = pictures.topology("8-gpu-server")
    label = text_at(figure, "NVLink joins every pair: 18 links (NV18)")
    thick = [line for line in figure.axes[0].lines if line.get_linewidth() == 4]
    assert len(thick) == 8
    assert all(min(line.get_ydata()) > label.get_position()[1] for line in thick)
    assert not [patch for patch in figure.axes[0].patches if isinstance(patch, Arc)]


def test_nvlink_between_some_pairs_is_an_arc_a_pair_wider_for_more_links() -> None:
    machine = gpu_machine({(0, 1): "NV1", (0, 2): "NV2", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "NV2", (2, 3): "NV1"})
    figure = pictures.topology(machine)
    arcs = [patch for patch in figure.axes[0].patches if isinstance(patch, Arc)]
    at = [text_at(figure, f"GPU {gpu}\nrank {gpu}").get_position()[0] for gpu in range(4)]
    drawn = {}
    for arc in arcs:
        ends = arc.get_center()[0] - arc.get_width() / 2, arc.get_center()[0] + arc.get_width() / 2
        pair = tuple(min(range(4), key=lambda gpu, end=end: abs(at[gpu] - end)) for end in ends)
        drawn[pair] = arc.get_linewidth()
    assert drawn == {(0, 1): 2, (0, 2): 3, (1, 3): 3, (2, 3): 2}
    assert "NV1: 1 NVLink" in texts(figure)
    assert "NV2: 2 NVLinks" in texts(figure)


def test_a_gpu_of_another_model_is_left_out_and_named() -> None:
    figure = pictures.topology("mixed-gpus")
    assert chip(figure, "GPU 1\nleft out") == PAPER
    assert chip(figure, "GPU 2\nrank 1") == pictures.colour(1)
    assert "RTX 3090 Ti" in texts(figure)


def test_gpus_without_nvlink_say_how_they_talk() -> None:
    ways = next(text for text in texts(pictures.topology("mixed-gpus")) if text.startswith("no NVLink"))
    assert "PHB: through the processor's PCIe bridge" in ways
    assert "/dev/shm" in ways


def test_a_recorded_machine_says_that_it_is_one() -> None:
    assert any("made by hand from public reports" in text for text in texts(pictures.topology("8-gpu-server")))


def test_cores_are_drawn_once_each_with_their_number() -> None:
    figure = pictures.topology(Machine("laptop", cpus=tuple(Cpu(n, n // 2) for n in range(8))), ranks=2)
    squares = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_fill()]
    frames = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert (len(squares), len(frames)) == (8, 4)  # hardware threads, physical cores
    assert [text for text in texts(figure) if text.isdigit()] == [str(n) for n in range(8)]
    assert texts(figure).count("4 threads") == 2
    assert "a core for each rank" in texts(figure)


def test_more_ranks_than_cores_take_turns() -> None:
    figure = pictures.topology(Machine("laptop", cpus=(Cpu(0, 0), Cpu(1, 1))), ranks=4)
    assert "4 ranks, 2 cores: they take turns" in texts(figure)
    assert [chip(figure, f"rank {rank}") for rank in range(4)] == [pictures.colour(rank) for rank in range(4)]
    assert texts(figure).count("1 thread") == 4


def test_threads_are_those_that_the_user_set() -> None:
    cpus = tuple(Cpu(n, n) for n in range(8))
    assert texts(pictures.topology(Machine("laptop", cpus=cpus), ranks=2)).count("4 threads") == 2
    fixed = Machine("laptop", cpus=cpus, omp_num_threads="3")
    assert texts(pictures.topology(fixed, ranks=2)).count("3 threads") == 2


def test_more_ranks_than_gpus_are_drawn_on_the_cores_where_they_would_run() -> None:
    machine = gpu_machine({(0, 1): "NV4"})
    assert "GPU 1\nrank 1" in texts(pictures.topology(machine, ranks=2))
    assert texts(pictures.topology(machine, ranks=3))[0] == "test: 3 ranks on 16 cores"


def test_a_picture_without_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        pictures.topology(ranks=0)


def test_runs_of_numbers_are_shortened() -> None:
    assert ranges([0, 1, 2, 8]) == "0–2, 8"
    assert ranges([5, 3]) == "3, 5"
    assert ranges([]) == ""
    assert short(range(0, 128, 2)) == "0, 2, … 126"
    assert short([0, 1, 2, 8]) == "0–2, 8"


# -- processes -------------------------------------------------------------------------------------------------------


def test_a_node_begins_where_the_local_rank_is_zero_again() -> None:
    nodes = split_into_nodes(list(reversed(run_of(2, 3, 1).ranks)))
    assert [[rank.rank for rank in node] for node in nodes] == [[0, 1], [2, 3, 4], [5]]


def test_every_process_shows_rank_and_local_rank() -> None:
    figure = pictures.processes(run_of(2, 2))
    for rank, local in [(0, 0), (1, 1), (2, 0), (3, 1)]:
        assert chip(figure, f"rank {rank}\nlocal rank {local}") == pictures.colour(rank)
    assert texts(figure)[0] == "world size 4: 4 processes on 2 nodes"
    assert texts(figure).count("torchrun") == 2


def test_ranks_stand_in_the_box_of_their_node() -> None:
    figure = pictures.processes(run_of(2, 2))
    boxes = sorted((box.get_bbox() for box in figure.axes[0].patches), key=lambda box: -box.width * box.height)[:2]
    for rank, local in [(0, 0), (1, 1), (2, 0), (3, 1)]:
        holding = [
            box for box in boxes if box.contains(*text_at(figure, f"rank {rank}\nlocal rank {local}").get_position())
        ]
        assert len(holding) == 1
        assert holding[0].contains(*text_at(figure, f"node {rank // 2}").get_position())


def test_a_line_leads_from_torchrun_to_each_of_its_ranks() -> None:
    figure = pictures.processes(run_of(3))
    ends = [line.get_xdata()[1] for line in figure.axes[0].lines]
    assert ends == pytest.approx([text_at(figure, f"rank {n}\nlocal rank {n}").get_position()[0] for n in range(3)])


def test_a_run_without_ranks_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="started no rank"):
        pictures.processes(run_of())


# -- torn lines ------------------------------------------------------------------------------------------------------


def squares_of(figure: Figure) -> list[str]:
    return [to_hex(p.get_facecolor()).upper() for p in figure.axes[0].patches if isinstance(p, Rectangle)]


def test_torn_lines_are_marked_where_they_arrived() -> None:
    figure = pictures.torn_lines("hello 0\nhellohello  01\n\nhello 1\n", ["hello 0", "hello 1"])
    assert squares_of(figure) == [WHOLE, ALARM, ALARM, WHOLE]
    assert texts(figure)[0] == "2 of 4 lines arrived torn (50%)"
    crosses = next(line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert len(crosses.get_xdata()) == 2  # seen without colour, too
    assert "'hellohello  01'" in texts(figure)
    assert "''" in texts(figure)


def test_whole_lines_raise_no_alarm() -> None:
    figure = pictures.torn_lines("hello 0\nhello 1\n", ["hello 0", "hello 1"])
    assert squares_of(figure) == [WHOLE, WHOLE]
    assert texts(figure)[0] == "all 2 lines arrived whole"


def test_all_lines_are_counted_though_not_all_are_drawn() -> None:
    figure = pictures.torn_lines("\n".join(["a", "b"] * 1000), ["a"])
    assert texts(figure)[0] == "1000 of 2000 lines arrived torn (50%)"
    assert len(squares_of(figure)) == 400
    assert any("the first 400 of 2000" in text for text in texts(figure))


def test_an_example_is_shown_once_however_often_it_arrived() -> None:
    figure = pictures.torn_lines("\n".join(["ab"] * 5 + ["x" * 200]), ["a"])
    assert texts(figure).count("'ab'") == 1
    assert any(text.endswith("…'") for text in texts(figure))


def test_torn_lines_are_found_by_what_was_printed() -> None:
    assert find_torn(["ab", "abab", "", "ab"], ["ab"]) == [1, 2]


# -- display ---------------------------------------------------------------------------------------------------------


def test_a_figure_shows_as_a_sharp_png_and_without_our_formatter_it_does_not() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    figure = Figure(figsize=(2, 1), dpi=100)
    figure.add_axes((0, 0, 1, 1))
    plain, _ = shell.display_formatter.format(figure)
    assert "image/png" not in plain
    pictures.show_figures(shell)
    shown, metadata = shell.display_formatter.format(figure)
    picture = base64.b64decode(shown["image/png"])
    assert picture.startswith(b"\x89PNG")
    width = int.from_bytes(picture[16:20], "big")
    assert metadata["image/png"]["width"] * 2 == pytest.approx(width, abs=1)


def test_our_pictures_are_stored_small_and_look_the_same() -> None:
    import io

    from matplotlib import image

    from ddp_helpers.pictures.display import png

    figure = pictures.topology("8-gpu-server")
    shown, size = png(figure)
    stored = base64.b64decode(shown)
    full = io.BytesIO()
    figure.savefig(full, format="png", dpi=2 * figure.dpi)
    assert len(stored) < len(full.getvalue()) / 2
    assert (size["width"], size["height"]) == tuple(round(100 * inches) for inches in figure.get_size_inches())
    pixels, wanted = (image.imread(io.BytesIO(data))[..., :3] for data in (stored, full.getvalue()))
    assert abs(pixels - wanted).mean() < 0.005


def test_a_formatter_of_the_users_stays() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.display_formatter.formatters["image/png"].for_type(Figure, lambda figure: b"mine")
    pictures.show_figures(shell)
    assert shell.display_formatter.format(Figure())[0]["image/png"] == b"mine"
